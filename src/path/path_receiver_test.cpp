// Base, map, late arrivals, marks, and when an acknowledgement is due.
#include "path/path_receiver.h"

#include <gtest/gtest.h>

#include "base/covers.h"
#include "wire/minifloat.h"

namespace metaroce::path {
namespace {

constexpr uint32_t kBase = 0xFFFFFF80u;
constexpr Duration kRtt = microseconds(80);

struct Receiver {
  Settings settings;
  PathCounters counters;
  PathReceiver rx;
  Time now{seconds(1).ns};

  Receiver() {
    settings.ack_delay = 20'000;
    settings.ack_every = 4;
    rx.counters = &counters;
    rx.open(0, 0, kBase, {});
  }
  void take(uint32_t offset, uint32_t floor = 255, bool refused = false) {
    Arrival a = arrival(offset, floor);
    a.refused = refused;
    rx.note(now, a, settings, kRtt);
  }
  /// Floor 255 stands for "as far down as the base", clipped to what exists.
  Arrival arrival(uint32_t offset, uint32_t floor = 255) const {
    Arrival a;
    a.seq = kBase + offset;
    a.floor = static_cast<uint8_t>(floor == 255 ? std::min(offset, 255u) : floor);
    return a;
  }
  wire::AckPacket ack() {
    wire::AckPacket p;
    rx.fill_ack(now, p);
    return p;
  }
  uint32_t base() const { return rx.base() - kBase; }
};

TEST(PathReceiver, TheBaseMovesOverWhatWasReceived) {
  MR_COVERS("MR-PATH-021");
  Receiver r;
  EXPECT_EQ(r.base(), 0u);
  r.take(0);
  EXPECT_EQ(r.base(), 1u);
  r.take(2);
  EXPECT_EQ(r.base(), 1u);
  r.take(3);
  r.take(1);
  EXPECT_EQ(r.base(), 4u);
  r.take(1);  // a duplicate moves nothing back
  EXPECT_EQ(r.base(), 4u);
}

TEST(PathReceiver, TheFloorMovesTheBaseAndNothingMovesItBack) {
  MR_COVERS("MR-PATH-022");
  Receiver r;
  r.take(10, 3);
  EXPECT_EQ(r.base(), 7u);
  r.take(11, 11);
  EXPECT_EQ(r.base(), 7u);
  r.take(300, 0);
  EXPECT_EQ(r.base(), 301u);
}

TEST(PathReceiver, OnlyTheFloorMovesTheBaseOverARefusedPacket) {
  MR_COVERS("MR-PATH-023");
  Receiver r;
  r.take(0, 0, true);
  r.take(1, 1);
  r.take(2, 2);
  EXPECT_EQ(r.base(), 0u);
  r.take(3, 0);  // the sender knows: its floor lies above
  EXPECT_EQ(r.base(), 4u);
  r.take(4, 0);
  r.take(5, 1, true);
  r.take(6, 2);
  EXPECT_EQ(r.base(), 5u);
}

TEST(PathReceiver, ReachIsFourMapsOnBothSides) {
  MR_COVERS("MR-PATH-024");
  Receiver r;
  EXPECT_TRUE(r.rx.in_reach(kBase + 1023));
  EXPECT_FALSE(r.rx.in_reach(kBase + 1024));
  EXPECT_TRUE(r.rx.in_reach(kBase - 1023));
  EXPECT_FALSE(r.rx.in_reach(kBase - 1024));
  EXPECT_FALSE(r.rx.in_reach(kBase + 0x80000000u));
}

TEST(PathReceiver, APacketMustFitTheMapAfterItsOwnFloor) {
  MR_COVERS("MR-PATH-025");
  Receiver r;
  EXPECT_TRUE(r.rx.fits(kBase + 255, 255));
  EXPECT_TRUE(r.rx.fits(kBase + 256, 255));   // the floor moves the base to 1
  EXPECT_TRUE(r.rx.fits(kBase + 1000, 255));
  EXPECT_TRUE(r.rx.fits(kBase - 5, 0));
  r.take(400, 0);
  EXPECT_TRUE(r.rx.fits(kBase + 401 + 255, 255));
  // A floor that does not reach beyond the base leaves the sequence above the map.
  Receiver q;
  q.take(0);
  EXPECT_TRUE(q.rx.fits(kBase + 256, 255));
  Receiver below;
  below.take(1);  // base stays at 0
  EXPECT_TRUE(below.rx.fits(kBase + 255, 255));
}

TEST(PathReceiver, TheMapShowsWhatIsAboveTheBase) {
  MR_COVERS("MR-PATH-027");
  Receiver r;
  r.take(1);
  r.take(200, 200);
  r.take(255, 255, true);
  const wire::AckPacket ack = r.ack();
  EXPECT_EQ(ack.f.base, kBase);
  EXPECT_EQ(ack.map.count(), 3);
  EXPECT_TRUE(ack.map.test(1) && ack.map.test(200) && ack.map.test(255));
  EXPECT_EQ(ack.refused.count(), 1);
  EXPECT_TRUE(ack.refused.test(255));
}

TEST(PathReceiver, TheLongFormStandsWhileSomethingInTheMapIsRefused) {
  MR_COVERS("MR-ACK-011");
  Receiver r;
  r.take(0);
  EXPECT_FALSE(r.ack().is_long);
  r.rx.set_refusal(kBase + 1, wire::Refusal::kKey, 9, 77, 5);
  r.take(1, 1, true);
  wire::AckPacket ack = r.ack();
  EXPECT_TRUE(ack.is_long);
  EXPECT_EQ(ack.f.reason, wire::Refusal::kKey);
  EXPECT_EQ(ack.f.refusal_stream, 9);
  EXPECT_EQ(ack.f.refusal_rq_seq, 77u);
  EXPECT_EQ(ack.f.refusal_delay, 5);
  r.take(2, 2);
  EXPECT_TRUE(r.ack().is_long);  // every later ACK repeats it
  r.take(3, 0);
  EXPECT_FALSE(r.ack().is_long);
}

TEST(PathReceiver, TheReasonIsThatOfTheHighestRefusedSequence) {
  MR_COVERS("MR-ACK-013");
  Receiver r;
  r.take(0);
  r.rx.set_refusal(kBase + 5, wire::Refusal::kKey, 5, 0, 0);
  r.take(5, 5, true);
  r.rx.set_refusal(kBase + 3, wire::Refusal::kSpan, 3, 0, 0);  // arrives later, lies below
  r.take(3, 3, true);
  EXPECT_EQ(r.ack().f.reason, wire::Refusal::kKey);
  // A refused copy that another path brought first has no reason here.
  r.take(6, 6, true);
  const wire::AckPacket ack = r.ack();
  ASSERT_TRUE(ack.is_long);
  EXPECT_EQ(ack.f.reason, wire::Refusal::kUnknown);
  EXPECT_EQ(ack.f.refusal_stream, 0);
}

TEST(PathReceiver, AnAckIsASnapshot) {
  MR_COVERS("MR-ACK-005");
  Receiver r;
  r.take(0);
  r.take(2);
  const wire::AckPacket lost = r.ack();
  r.take(5);
  const wire::AckPacket later = r.ack();
  EXPECT_EQ(later.f.base, lost.f.base);
  EXPECT_EQ((later.map & lost.map), lost.map);
  // Nothing new: nothing is due, however long nothing is heard.
  EXPECT_EQ(r.rx.ack_at(), kNever);
}

TEST(PathReceiver, LateArrivalsAreCountedDuplicatesAreNot) {
  MR_COVERS("MR-LOSS-009");
  Receiver r;
  const auto late = [&r] { return r.ack().f.status & 0x0F; };
  for (uint32_t i = 0; i < 4; ++i) r.take(i);
  EXPECT_EQ(late(), 0);
  r.take(2);  // a duplicate made by the network
  EXPECT_EQ(late(), 0);
  r.take(20, 5);  // the floor leaves 4 to 14 behind
  EXPECT_EQ(r.base(), 15u);
  r.take(7, 0);  // late, below the base
  EXPECT_EQ(late(), 1);
  r.take(7, 0);  // once more: remembered
  EXPECT_EQ(late(), 1);
  r.take(3, 0);  // received before the floor passed it
  EXPECT_EQ(late(), 1);
}

TEST(PathReceiver, WhatTheMapShowsIsNotCountedAsLate) {
  MR_COVERS("MR-LOSS-009");
  Receiver r;
  r.take(0);
  r.take(5);
  r.take(3);
  EXPECT_EQ(r.ack().f.status & 0x0F, 0);
  EXPECT_EQ(r.counters.rx_late, 1u);  // the statistics know it
}

TEST(PathReceiver, APacketBelowTheBaseChangesNoBitAndIsAcknowledged) {
  MR_COVERS("MR-PATH-026");
  Receiver r;
  r.take(20, 5);
  r.take(22, 7);
  const wire::AckPacket before = r.ack();
  r.take(3, 0);
  EXPECT_NE(r.rx.ack_at(), kNever);
  const wire::AckPacket after = r.ack();
  EXPECT_EQ(after.map, before.map);
  EXPECT_EQ(after.f.base, before.f.base);
}

TEST(PathReceiver, LateCountWrapsAtSixteen) {
  Receiver r;
  r.take(100, 0);
  for (uint32_t i = 0; i < 17; ++i) r.take(50 + i, 0);
  EXPECT_EQ(r.ack().f.status & 0x0F, 1);
}

TEST(PathReceiver, MarksAreCountedOncePerSequence) {
  MR_COVERS("MR-ACK-016");
  Receiver r;
  Arrival a = r.arrival(0);
  a.ce = true;
  r.rx.note(r.now, a, r.settings, kRtt);
  r.rx.note(r.now, a, r.settings, kRtt);
  a = r.arrival(2);
  a.ce = true;
  r.rx.note(r.now, a, r.settings, kRtt);
  r.rx.note(r.now, a, r.settings, kRtt);
  EXPECT_EQ(r.ack().f.ce_count, 2);
}

TEST(PathReceiver, TheStampOfTheHighestSequenceIsEchoed) {
  MR_COVERS("MR-ACK-015");
  Receiver r;
  const Time first = r.now;
  Arrival a = r.arrival(5);
  a.stamp = 500;
  r.rx.note(r.now, a, r.settings, kRtt);
  r.now = r.now + microseconds(3);
  a = r.arrival(2);
  a.stamp = 200;
  r.rx.note(r.now, a, r.settings, kRtt);
  const wire::AckPacket ack = r.ack();
  EXPECT_EQ(ack.f.stamp, 500u);
  EXPECT_EQ(ack.f.delay, wire::encode_delay(r.now - first));
}

TEST(PathReceiver, AtOnceForGapMarkRequestAndRefusal) {
  MR_COVERS("MR-ACK-001");
  const auto due_at_once = [](auto change, bool prime) {
    Receiver r;
    r.take(0);
    r.ack();
    r.now = r.now + kRtt * 2;  // the quarter timer is over
    if (prime) {
      r.take(5);
      r.ack();
      r.now = r.now + kRtt * 2;
    }
    Arrival a = r.arrival(prime ? 6 : 1);
    change(a);
    r.rx.note(r.now, a, r.settings, kRtt);
    return r.rx.ack_at() <= r.now;
  };
  EXPECT_FALSE(due_at_once([](Arrival&) {}, false));
  EXPECT_TRUE(due_at_once([](Arrival& a) { a.ack_now = true; }, false));
  EXPECT_TRUE(due_at_once([](Arrival& a) { a.new_refusal = a.refused = true; }, false));
  EXPECT_TRUE(due_at_once([](Arrival& a) { a.ce = true; }, false));
  EXPECT_TRUE(due_at_once([](Arrival& a) { a.seq += 1; a.floor += 1; }, false));  // a new gap
  EXPECT_FALSE(due_at_once([](Arrival&) {}, true));  // an old gap is no news
}

TEST(PathReceiver, OnlyTheFirstOfARowOfMarksIsUrgent) {
  MR_COVERS("MR-ACK-001");
  Receiver r;
  for (uint32_t i = 0; i < 2; ++i) {
    Arrival a = r.arrival(i);
    a.ce = true;
    r.rx.note(r.now, a, r.settings, kRtt);
    EXPECT_EQ(r.rx.ack_at() <= r.now, i == 0);
    r.ack();
    r.now = r.now + kRtt * 2;
  }
}

TEST(PathReceiver, OtherwiseAfterSoManyPacketsOrTheTimer) {
  MR_COVERS("MR-ACK-002");
  Receiver r;
  r.take(0);
  EXPECT_EQ(r.rx.ack_at(), r.now + microseconds(20));
  r.now = r.now + microseconds(5);
  r.take(1);
  r.take(2);
  EXPECT_EQ(r.rx.ack_at(), r.now + microseconds(15));  // counted from the first
  r.take(3);
  EXPECT_LE(r.rx.ack_at(), r.now);  // ack_every
  r.ack();
  EXPECT_EQ(r.rx.ack_at(), kNever);
  // A longer round trip stretches the timer.
  r.rx.note(r.now, r.arrival(4), r.settings, milliseconds(8));
  EXPECT_EQ(r.rx.ack_at(), r.now + milliseconds(1));
}

TEST(PathReceiver, AtMostOneImmediateAckInAQuarterTimer) {
  MR_COVERS("MR-ACK-003");
  Receiver r;
  Arrival a = r.arrival(0);
  a.ack_now = true;
  r.rx.note(r.now, a, r.settings, kRtt);
  EXPECT_LE(r.rx.ack_at(), r.now);
  const Time first = r.now;
  r.ack();
  r.now = r.now + microseconds(1);
  a = r.arrival(1);
  a.ack_now = true;
  r.rx.note(r.now, a, r.settings, kRtt);
  EXPECT_EQ(r.rx.ack_at(), first + microseconds(5));
  a = r.arrival(2);  // joined into the same one
  a.ack_now = true;
  r.rx.note(r.now, a, r.settings, kRtt);
  EXPECT_EQ(r.rx.ack_at(), first + microseconds(5));
  r.now = first + microseconds(5);
  EXPECT_EQ(r.ack().f.base, kBase + 3);
}

TEST(PathReceiver, AnUnsolicitedAckGivesNoSample) {
  MR_COVERS("MR-WIRE-045");
  Receiver r;
  r.take(0);
  EXPECT_EQ(r.ack().f.status & wire::ack_status::kUnsolicited, 0);
  r.rx.ack_soon(r.now);
  const wire::AckPacket ack = r.ack();
  EXPECT_NE(ack.f.status & wire::ack_status::kUnsolicited, 0);
  EXPECT_EQ(ack.f.delay, wire::kDelaySaturated);
}

TEST(PathReceiver, OpeningAgainForgetsEverything) {
  MR_COVERS("MR-PATH-041");
  Receiver r;
  r.take(0);
  r.take(3, 3, true);
  Arrival a = r.arrival(5);
  a.ce = true;
  r.rx.note(r.now, a, r.settings, kRtt);
  r.rx.open(2, 1, 7000, {});
  const wire::AckPacket ack = r.ack();
  EXPECT_EQ(ack.f.base, 7000u);
  EXPECT_FALSE(ack.map.any());
  EXPECT_FALSE(ack.is_long);
  EXPECT_EQ(ack.f.ce_count, 0);
  EXPECT_EQ(r.rx.generation, 1);
  EXPECT_EQ(r.rx.plane, 2);
}

}  // namespace
}  // namespace metaroce::path
