#include "connection/run_writer.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/covers.h"

namespace metaroce::connection {
namespace {

struct Rig {
  std::vector<TxRun> runs{4};
  message::GatherSpace gather{64};
  RunWriter w{runs, kMaxRun, gather};

  void begin(uint8_t path) { w.begin().path = path; }
  void commit(uint32_t header, uint32_t payload) {
    std::fill_n(w.header(), header, std::byte{runs[w.used() - 1].count});
    w.commit(header, nullptr, payload);
  }
};

TEST(RunWriter, EqualPacketsOfOnePathFollow) {
  MR_COVERS("MR-WIRE-011");
  Rig r;
  r.begin(1);
  r.commit(44, 1000);
  EXPECT_TRUE(r.w.can_append(1, 1044));
  EXPECT_FALSE(r.w.can_append(2, 1044));  // another path
  EXPECT_FALSE(r.w.can_append(1, 1045));  // longer
  r.commit(44, 1000);
  EXPECT_EQ(r.runs[0].count, 2);
  EXPECT_EQ(r.w.used(), 1u);
}

TEST(RunWriter, AShorterPacketIsTheLast) {
  MR_COVERS("MR-WIRE-011");
  Rig r;
  r.begin(1);
  r.commit(44, 1000);
  EXPECT_TRUE(r.w.can_append(1, 500));
  r.commit(44, 456);
  EXPECT_FALSE(r.w.can_append(1, 500));
  EXPECT_FALSE(r.w.can_append(1, 10));
}

TEST(RunWriter, NoMoreThanTheLongestRun) {
  Rig r;
  r.begin(1);
  for (uint32_t i = 0; i < kMaxRun; ++i) {
    EXPECT_EQ(r.w.can_append(1, 100), i > 0);
    r.commit(44, 56);
  }
  EXPECT_FALSE(r.w.can_append(1, 100));
}

TEST(RunWriter, HeadersStandBehindEachOtherWithRoomForTheTrailer) {
  Rig r;
  r.begin(1);
  r.commit(44, 0);
  r.commit(44, 0);
  r.commit(36, 0);
  EXPECT_EQ(r.runs[0].headers[0], std::byte{0});
  EXPECT_EQ(r.runs[0].headers[48], std::byte{1});
  EXPECT_EQ(r.runs[0].headers[96], std::byte{2});
  EXPECT_EQ(r.runs[0].header_length[2], 36);
}

TEST(RunWriter, AnEndedRunTakesNothingMore) {
  Rig r;
  r.begin(1);
  r.commit(32, 0);
  r.w.end();
  EXPECT_FALSE(r.w.can_append(1, 32));
  EXPECT_FALSE(r.w.is_open_for(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(r.w.full());
    r.begin(1);
  }
  EXPECT_TRUE(r.w.full());
}

}  // namespace
}  // namespace metaroce::connection
