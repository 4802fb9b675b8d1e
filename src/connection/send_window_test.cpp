#include "connection/send_window.h"

#include <gtest/gtest.h>

#include "base/covers.h"

namespace metaroce::connection {
namespace {

constexpr uint32_t kWindow = 1024;
constexpr uint32_t kStart = 0xFFFFFFE0u;

struct Rig {
  Slab<SendChunk> chunks{64};
  SendWindow w{chunks, kWindow, kStart};

  uint32_t create() {
    uint32_t cpsn = 0;
    EXPECT_NE(w.create(cpsn), nullptr);
    return cpsn;
  }
  void decide(uint32_t cpsn) {
    w.at(cpsn).state = SendEntry::State::kDecided;
    w.advance();
  }
};

TEST(SendWindow, NumbersAreConsecutive) {
  MR_COVERS("MR-CPSN-001");
  Rig r;
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(r.create(), kStart + i);
  EXPECT_EQ(r.w.size(), 200u);
}

TEST(SendWindow, NeverAWindowAboveTheLowestUndecided) {
  MR_COVERS("MR-CPSN-009");
  Rig r;
  while (r.w.room(true) > 0) r.create();
  EXPECT_EQ(r.w.size(), kWindow);
  for (uint32_t i = 1; i < kWindow; ++i) r.decide(kStart + i);
  EXPECT_EQ(r.w.room(true), 0u);  // all but the lowest are decided: it still holds the window
  r.decide(kStart);
  EXPECT_EQ(r.w.room(true), kWindow);
}

TEST(SendWindow, TheLastPlacesAreForControl) {
  MR_COVERS("MR-CPSN-012");
  Rig r;
  while (r.w.room(false) > 0) r.create();
  EXPECT_EQ(r.w.size(), kWindow - 64);
  EXPECT_EQ(r.w.room(true), 64u);
  while (r.w.room(true) > 0) r.create();
  EXPECT_EQ(r.w.room(false), 0u);
}

TEST(SendWindow, ChunksComeBack) {
  Rig r;
  for (int round = 0; round < 10; ++round) {
    const uint32_t first = r.w.next();
    for (int i = 0; i < 300; ++i) r.create();
    EXPECT_GE(r.chunks.used(), 5u);
    for (uint32_t c = first; c != r.w.next(); ++c) r.decide(c);
    EXPECT_EQ(r.chunks.used(), 0u);
  }
}

TEST(SendWindow, AnExhaustedSlabGivesNothing) {
  Slab<SendChunk> chunks{1};
  SendWindow w(chunks, kWindow, 0);
  uint32_t cpsn = 0;
  for (uint32_t i = 0; i < kChunkEntries; ++i) ASSERT_NE(w.create(cpsn), nullptr);
  EXPECT_EQ(w.create(cpsn), nullptr);
  EXPECT_EQ(w.next(), kChunkEntries);
}

TEST(RepairList, KeepsOrderAndGivesUpFromAnywhere) {
  Rig r;
  for (int i = 0; i < 6; ++i) r.create();
  RepairList list;
  for (uint32_t i = 0; i < 6; ++i) list.push(r.w, kStart + i, 7);
  EXPECT_EQ(r.w.at(kStart + 2).list, 7);
  const auto contents = [&] {
    std::vector<uint32_t> out;
    RepairList copy = list;
    for (uint32_t c = copy.head, n = copy.size; n > 0; --n, c = r.w.at(c).next)
      out.push_back(c - kStart);
    return out;
  };
  list.remove(r.w, kStart + 2);
  EXPECT_EQ(contents(), (std::vector<uint32_t>{0, 1, 3, 4, 5}));
  list.remove(r.w, kStart + 0);
  list.remove(r.w, kStart + 5);
  EXPECT_EQ(contents(), (std::vector<uint32_t>{1, 3, 4}));
  EXPECT_EQ(r.w.at(kStart + 5).list, kNoList);
  list.push(r.w, kStart + 0, 7);
  EXPECT_EQ(contents(), (std::vector<uint32_t>{1, 3, 4, 0}));
  while (list.size > 0) list.remove(r.w, list.head);
  list.push(r.w, kStart + 3, 7);
  EXPECT_EQ(contents(), (std::vector<uint32_t>{3}));
}

}  // namespace
}  // namespace metaroce::connection
