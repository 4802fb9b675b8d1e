#include "congestion/window.h"

#include <gtest/gtest.h>

#include "base/covers.h"

namespace metaroce::congestion {
namespace {

constexpr Duration kRtt = microseconds(100);
constexpr Limits kLimits{.minimum = 1000, .maximum = 100'000, .packet = 1000};

struct Rig {
  Window w;
  Time now{seconds(1).ns};

  explicit Rig(uint64_t bytes, bool slow_start = true) {
    w.start(bytes);
    if (slow_start) return;
    w.on_congestion_loss(now, kRtt, kLimits);  // ends slow start, halves
    w.undo();
    next_round();
  }
  void next_round() { now = now + kRtt; }
  void ack(uint32_t packets, uint32_t marked, bool limited = true) {
    w.on_ack({.now = now,
              .srtt = kRtt,
              .packets = packets,
              .bytes = uint64_t{packets} * 1000,
              .marked = marked,
              .limited = limited},
             kLimits);
  }
};

TEST(Window, SlowStartGrowsByWhatWasAcknowledged) {
  Rig r(10'000);
  r.ack(10, 0);
  EXPECT_EQ(r.w.bytes(), 20'000u);
  r.ack(20, 0);
  EXPECT_EQ(r.w.bytes(), 40'000u);
  r.ack(100, 0);
  EXPECT_EQ(r.w.bytes(), 100'000u);  // never above the maximum
}

TEST(Window, NoGrowthUnlessTheWindowWasInUse) {
  Rig slow(10'000);
  slow.ack(10, 0, false);
  EXPECT_EQ(slow.w.bytes(), 10'000u);
  Rig r(10'000, false);
  r.ack(10, 0, false);
  r.next_round();
  r.ack(10, 0, false);
  EXPECT_EQ(r.w.bytes(), 10'000u);
}

TEST(Window, TheFirstMarkEndsSlowStartAtOnce) {
  Rig r(40'000);
  r.ack(4, 1);
  EXPECT_FALSE(r.w.in_slow_start());
  EXPECT_EQ(r.w.bytes(), 30'000u);
}

TEST(Window, OnePacketARoundWithoutMarks) {
  Rig r(10'000, false);
  r.ack(10, 0);
  const uint64_t before = r.w.bytes();
  r.next_round();
  r.ack(10, 0);
  EXPECT_EQ(r.w.bytes(), before + 1000);
  r.ack(10, 0);  // same round
  EXPECT_EQ(r.w.bytes(), before + 1000);
}

TEST(Window, MarksCutAtMostOnceARound) {
  MR_COVERS("MR-CC-002");
  Rig r(50'000, false);
  r.ack(10, 0);
  r.next_round();
  r.ack(10, 10);  // ends a round in which everything was marked
  const uint64_t cut = r.w.bytes();
  EXPECT_LT(cut, 50'000u);
  EXPECT_GE(cut, 25'000u);
  r.ack(10, 10);
  r.ack(10, 10);
  EXPECT_EQ(r.w.bytes(), cut);
  r.next_round();
  r.ack(10, 10);
  EXPECT_LT(r.w.bytes(), cut);
}

TEST(Window, TheCutFollowsTheShareOfMarks) {
  MR_COVERS("MR-CC-002");
  const auto after_rounds = [](uint32_t marked) {
    Rig r(50'000, false);
    for (int i = 0; i < 200; ++i) {  // until the smoothed share has settled
      r.ack(10, marked);
      r.next_round();
    }
    return r.w.mark_fraction();
  };
  EXPECT_LT(after_rounds(0), 64u);
  EXPECT_NEAR(after_rounds(1), 6'554, 100);
  EXPECT_NEAR(after_rounds(5), 32'768, 200);
  EXPECT_NEAR(after_rounds(10), 65'536, 200);
}

TEST(Window, NeverBelowOnePacket) {
  Rig r(3000, false);
  for (int i = 0; i < 50; ++i) {
    r.ack(10, 10);
    r.next_round();
  }
  EXPECT_EQ(r.w.bytes(), kLimits.minimum);
}

TEST(Window, LossWithRisingRttHalvesOnceARound) {
  MR_COVERS("MR-CC-005");
  Rig r(40'000);
  r.w.on_congestion_loss(r.now, kRtt, kLimits);
  EXPECT_EQ(r.w.bytes(), 20'000u);
  r.w.on_congestion_loss(r.now + kRtt / 2, kRtt, kLimits);
  EXPECT_EQ(r.w.bytes(), 20'000u);
  r.w.on_congestion_loss(r.now + kRtt, kRtt, kLimits);
  EXPECT_EQ(r.w.bytes(), 10'000u);
}

TEST(Window, UndoTakesBackACutForLossOnly) {
  Rig r(40'000);
  r.w.on_congestion_loss(r.now, kRtt, kLimits);
  r.w.undo();
  EXPECT_EQ(r.w.bytes(), 40'000u);
  r.w.undo();  // once
  EXPECT_EQ(r.w.bytes(), 40'000u);
  Rig marked(40'000, false);
  marked.ack(10, 10);
  marked.next_round();
  marked.ack(10, 10);
  const uint64_t cut = marked.w.bytes();
  marked.w.undo();
  EXPECT_EQ(marked.w.bytes(), cut);
}

TEST(Window, RestartIsOnePacketInSlowStart) {
  Rig r(40'000, false);
  r.w.restart(kLimits);
  EXPECT_EQ(r.w.bytes(), kLimits.minimum);
  EXPECT_TRUE(r.w.in_slow_start());
}

}  // namespace
}  // namespace metaroce::congestion
