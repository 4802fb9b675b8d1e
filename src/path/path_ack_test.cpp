// What acknowledgements and timers mean: gaps, reorder window, RTT, probes, health.
#include <gtest/gtest.h>

#include "base/covers.h"
#include "path/test_rig.h"

namespace metaroce::path {
namespace {

TEST(PathAck, WhatWasNeverSentIsInvalid) {
  MR_COVERS("MR-PATH-032");
  Rig r;
  r.send_many(3);
  EXPECT_TRUE(r.ack(3).valid);
  EXPECT_FALSE(r.ack(4).valid);       // base above the next sequence
  EXPECT_FALSE(r.ack(3, {3}).valid);  // top not below it
  EXPECT_FALSE(r.ack(1, {200}).valid);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 3);
}

TEST(PathAck, ABaseBelowTheStartIsInvalid) {
  MR_COVERS("MR-PATH-033");
  Rig r;
  r.send_many(3);
  const wire::AckPacket old = r.ack_packet(static_cast<uint32_t>(-5), {});
  EXPECT_FALSE(r.tx.on_ack(r.now, old, r).valid);
  EXPECT_TRUE(r.delivered.empty());
}

TEST(PathAck, AnOvertakenAckSettlesSequencesAndNothingElse) {
  MR_COVERS("MR-PATH-034");
  Rig r;
  r.send_many(6);
  wire::AckPacket old = r.ack_packet(2, {});
  old.f.status = 5;
  r.now = r.now + microseconds(10);
  r.ack(1, {});
  const Duration srtt = r.tx.srtt();
  const Duration window = r.tx.reorder_window();
  old.f.counter = 0;
  old.f.stamp = wire::stamp_of(r.now - milliseconds(2));
  const AckOutcome out = r.tx.on_ack(r.now, old, r);
  EXPECT_FALSE(out.newer);
  EXPECT_EQ(r.delivered.size(), 2u);  // its base counts
  EXPECT_EQ(r.tx.srtt(), srtt);
  EXPECT_EQ(r.tx.reorder_window(), window);  // its late count does not
}

TEST(PathAck, AGapIsLostAtOnceWhenNothingWasEverLate) {
  MR_COVERS("MR-LOSS-001");
  MR_COVERS("MR-LOSS-005");
  Rig r;
  r.send_many(4);
  EXPECT_EQ(r.tx.reorder_window().ns, 0);
  r.ack(1, {2});
  ASSERT_EQ(r.lost.size(), 1u);
  EXPECT_EQ(r.lost[0], (Rig::Told{kStart + 1, 101, false, false}));
  EXPECT_EQ(r.tx.in_flight_packets(), 1u);
  EXPECT_EQ(r.tx.counters->lost, 1u);
}

TEST(PathAck, AGapWaitsForTheReorderWindow) {
  MR_COVERS("MR-LOSS-001");
  Rig r;
  r.send_many(2);
  r.ack(0, {1});
  r.now = r.now + microseconds(30);
  r.ack(2);  // it was only late by 30 us
  const Duration window = r.tx.reorder_window();
  ASSERT_GE(window, microseconds(30));
  r.lost.clear();
  r.send_many(2);
  r.ack(2, {3});
  EXPECT_TRUE(r.lost.empty());
  const Time shown = r.now;
  r.now = shown + window - microseconds(1);
  r.tx.on_timer(r.now, r);
  EXPECT_TRUE(r.lost.empty());
  EXPECT_LE(r.tx.deadline(), shown + window + microseconds(1));
  r.now = shown + window + microseconds(1);
  r.tx.on_timer(r.now, r);
  EXPECT_EQ(r.lost.size(), 1u);
}

TEST(PathAck, TheReorderWindowGrowsToTheLatenessAndNoFurtherThanTwoRoundTrips) {
  MR_COVERS("MR-LOSS-006");
  MR_COVERS("MR-LOSS-005");
  Rig r;
  r.send_many(2);
  r.ack(0, {1});
  r.now = r.now + microseconds(40);
  const AckOutcome out = r.ack(2);
  EXPECT_EQ(out.spurious, 1u);
  EXPECT_EQ(r.delivered.back(), (Rig::Told{kStart, 100, false, true}));
  EXPECT_GE(r.tx.reorder_window(), microseconds(40));
  EXPECT_LE(r.tx.reorder_window(), microseconds(50));
  r.send_many(2);
  r.ack(2, {3});
  r.now = r.now + kRtt * 9;
  r.ack(4);
  EXPECT_LE(r.tx.reorder_window(), r.tx.srtt() * 2 + microseconds(1));
}

TEST(PathAck, ALateCountAloneDoublesTheReorderWindow) {
  MR_COVERS("MR-LOSS-007");
  Rig r;
  r.send_many(6);
  wire::AckPacket ack = r.ack_packet(1, {});
  ack.f.status = 1;
  r.tx.on_ack(r.now, ack, r);
  const Duration first = r.tx.reorder_window();
  EXPECT_EQ(first, r.tx.srtt() / 4);
  ack = r.ack_packet(2, {});
  ack.f.status = 2;
  r.tx.on_ack(r.now, ack, r);
  EXPECT_EQ(r.tx.reorder_window(), first * 2);
  for (uint8_t i = 3; i < 6; ++i) {
    ack = r.ack_packet(i, {});
    ack.f.status = i;
    r.tx.on_ack(r.now, ack, r);
  }
  EXPECT_LE(r.tx.reorder_window(), r.tx.srtt() * 2);
}

TEST(PathAck, TheReorderWindowHalvesAfterSixteenRoundTrips) {
  MR_COVERS("MR-LOSS-008");
  Rig r;
  r.send_many(2);
  r.ack(0, {1});
  r.now = r.now + microseconds(40);
  r.ack(2);
  const Duration window = r.tx.reorder_window();
  const Time rose = r.now;
  r.now = rose + r.tx.srtt() * 15;
  r.tx.on_timer(r.now, r);
  EXPECT_EQ(r.tx.reorder_window(), window);
  r.now = rose + r.tx.srtt() * 16;
  r.tx.on_timer(r.now, r);
  EXPECT_EQ(r.tx.reorder_window(), window / 2);
  r.probes_until(r.now + r.tx.srtt() * 16 * 10);
  EXPECT_EQ(r.tx.reorder_window().ns, 0);
}

TEST(PathAck, TheReorderWindowHalvesAlsoWhenOnlyTheLateCountRaisedIt) {
  MR_COVERS("MR-LOSS-008");
  Rig r;
  r.send_many(2);
  wire::AckPacket ack = r.ack_packet(2, {});
  ack.f.status = 1;
  r.tx.on_ack(r.now, ack, r);
  const Duration window = r.tx.reorder_window();
  ASSERT_GT(window.ns, 0);
  r.probes_until(r.now + r.tx.srtt() * 17);
  EXPECT_EQ(r.tx.reorder_window(), window / 2);
}

TEST(PathAck, AnotherEpochShowsNoGapBeforeTheDrainTimerEnded) {
  MR_COVERS("MR-LOSS-002");
  Rig r;
  r.send_many(3);
  ASSERT_TRUE(r.tx.change_port(r.now, 41000));
  const Time changed = r.now;
  r.send_many(2);
  r.now = r.now + microseconds(50);
  r.ack(1, {3, 4});  // 1 and 2 went another way
  EXPECT_TRUE(r.lost.empty());
  r.now = changed + kRtt;
  r.tx.on_timer(r.now, r);
  EXPECT_TRUE(r.lost.empty());
  r.now = changed + kRtt * 4;
  r.tx.on_timer(r.now, r);
  EXPECT_EQ(r.lost.size(), 2u);
}

TEST(PathAck, TheOldEpochIsStillJudgedByItsOwn) {
  Rig r;
  r.send_many(3);
  ASSERT_TRUE(r.tx.change_port(r.now, 41000));
  r.send_many(1);
  r.ack(0, {2});
  EXPECT_EQ(r.lost.size(), 2u);
}

TEST(PathAck, AnOldEpochIsJudgedByLaterOnesAfterTheDrainTimer) {
  MR_COVERS("MR-LOSS-002");
  Rig r;
  r.send_many(2);
  ASSERT_TRUE(r.tx.change_port(r.now, 41000));
  r.now = r.now + kRtt * 4;
  r.tx.on_timer(r.now, r);  // nothing of the new epoch is known yet
  EXPECT_TRUE(r.lost.empty());
  r.send_many(1);
  r.ack(0, {2});
  EXPECT_EQ(r.lost.size(), 2u);
}

TEST(PathAck, RefusedIsToldWithTheFate) {
  MR_COVERS("MR-CPSN-016");
  Rig r;
  r.send_many(3);
  wire::AckPacket ack = r.ack_packet(0, {0, 1});
  ack.is_long = true;
  ack.refused.set(1);
  r.tx.on_ack(r.now, ack, r);
  ASSERT_EQ(r.delivered.size(), 2u);
  EXPECT_FALSE(r.delivered[0].refused);
  EXPECT_TRUE(r.delivered[1].refused);
}

TEST(PathAck, DecidedThroughSettlesNothing) {
  MR_COVERS("MR-CPSN-017");
  Rig r;
  r.send_many(3);
  wire::AckPacket ack = r.ack_packet(0, {});
  ack.f.decided_through = 103;  // all three CPSNs, says the receiver
  const AckOutcome out = r.tx.on_ack(r.now, ack, r);
  EXPECT_TRUE(out.valid);
  EXPECT_FALSE(out.answered);
  EXPECT_TRUE(r.delivered.empty());
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart);
}

TEST(PathAck, TheFirstSampleReplacesTheGuess) {
  MR_COVERS("MR-LOSS-041");
  Rig r;
  r.send();
  r.now = r.now + microseconds(300);
  wire::AckPacket ack = r.ack_packet(1, {});
  ack.f.stamp = wire::stamp_of(r.now - microseconds(64));
  ack.f.delay = wire::encode_delay(microseconds(4));
  r.tx.on_ack(r.now, ack, r);
  EXPECT_TRUE(r.tx.rtt_known());
  EXPECT_NEAR(static_cast<double>(r.tx.srtt().ns), 60'000.0, 400.0);
  // Not positive: discarded.
  r.send();
  ack = r.ack_packet(2, {});
  ack.f.stamp = wire::stamp_of(r.now);
  ack.f.delay = wire::encode_delay(milliseconds(1));
  const Duration before = r.tx.srtt();
  r.tx.on_ack(r.now, ack, r);
  EXPECT_EQ(r.tx.srtt(), before);
}

TEST(PathAck, NoSampleWhenItCouldBeAmbiguous) {
  MR_COVERS("MR-LOSS-040");
  const auto takes_sample = [](Duration age, uint8_t delay) {
    Rig r;
    r.send_many(2);
    r.now = r.now + age;
    wire::AckPacket ack = r.ack_packet(2, {});
    ack.f.delay = delay;
    r.tx.on_ack(r.now, ack, r);
    return r.tx.rtt_known();
  };
  EXPECT_TRUE(takes_sample(microseconds(90), 0));
  EXPECT_FALSE(takes_sample(microseconds(90), wire::kDelaySaturated));
  EXPECT_FALSE(takes_sample(milliseconds(501), 0));
}

TEST(PathAck, AnRttAboveTheProbeIntervalIsLearned) {
  MR_COVERS("MR-LOSS-040");
  Rig r;
  r.send();
  const Time sent = r.now;
  r.probes_until(sent + milliseconds(20));
  ASSERT_EQ(r.tx.state(), State::kSuspect);
  wire::AckPacket ack = r.ack_packet(1, {});
  ack.f.stamp = wire::stamp_of(sent);
  EXPECT_TRUE(r.tx.on_ack(r.now, ack, r).recovered);
  EXPECT_NEAR(static_cast<double>(r.tx.srtt().ns), 20e6, 200.0);
}

TEST(PathAck, AProbeGoesOutAfterT) {
  MR_COVERS("MR-LOSS-030");
  Rig r;
  r.send();
  const Time sent = r.now;
  EXPECT_EQ(r.tx.probe_timeout(), kRtt + kRtt / 4 + kRtt * 2);  // var is half the guess
  EXPECT_EQ(r.tx.deadline(), sent + r.tx.probe_timeout());
  r.now = sent + r.tx.probe_timeout();
  r.tx.on_timer(r.now, r);
  EXPECT_TRUE(r.tx.wants_probe());
  EXPECT_EQ(r.tx.on_probe_sent(r.now, 0), kStart + 1);
  // Nothing out, nothing to probe.
  Rig idle;
  EXPECT_EQ(idle.tx.deadline(), kNever);
}

TEST(PathAck, NoProbeWhileNewsKeepComing) {
  Rig r;
  r.send_many(10);
  for (uint32_t i = 1; i < 10; ++i) {
    r.now = r.now + r.tx.probe_timeout() - microseconds(1);
    r.tx.on_timer(r.now, r);
    EXPECT_FALSE(r.tx.wants_probe()) << i;
    r.send();  // keeps the newest transmission young
    r.ack(i);
  }
}

TEST(PathAck, UnansweredProbesFollowAfterOneTwoAndFourTimesT) {
  MR_COVERS("MR-LOSS-031");
  Rig r;
  r.send();
  const Duration t = r.tx.probe_timeout();
  std::vector<Time> at;
  for (int i = 0; i < 6; ++i) {
    r.next_probe();
    at.push_back(r.now);
  }
  EXPECT_EQ(at[1] - at[0], t);
  EXPECT_EQ(at[2] - at[1], t * 2);
  EXPECT_EQ(at[3] - at[2], t * 4);
  EXPECT_EQ(at[4] - at[3], t * 4);
  EXPECT_EQ(at[5] - at[4], t * 4);
  // An answer returns the interval to T.
  r.ack(0, {3});
  EXPECT_EQ(r.tx.unanswered(), 0u);
  r.send();
  const Time sent = r.now;
  r.next_probe();
  EXPECT_LE(r.now - sent, r.tx.probe_timeout());
  const Time first = r.now;
  r.next_probe();
  EXPECT_EQ(r.now - first, r.tx.probe_timeout());
}

TEST(PathAck, AnyAckThatCoversAProbeAnswersIt) {
  MR_COVERS("MR-LOSS-032");
  for (const bool by_base : {false, true}) {
    Rig r;
    r.send();
    r.next_probe();
    r.next_probe();
    EXPECT_EQ(r.tx.state(), State::kSuspect);
    const AckOutcome out = by_base ? r.ack(3) : r.ack(0, {2});
    EXPECT_TRUE(out.answered);
    EXPECT_TRUE(out.recovered);
    EXPECT_EQ(r.tx.state(), State::kGood);
  }
}

TEST(PathAck, AtTheReachTheLastProbeIsRepeatedUntilTheBaseMoves) {
  MR_COVERS("MR-PATH-031");
  Rig r;
  r.send();
  while (!r.tx.must_repeat_probe()) {
    r.decided.insert(r.next_cpsn - 1);
    ASSERT_TRUE(r.tx.can_probe(r.now, r));
    r.next_probe();
  }
  EXPECT_EQ(r.tx.state(), State::kSuspect);
  const uint32_t next = r.tx.next_seq();
  EXPECT_EQ(next, kStart + kReach - 1);
  for (int i = 0; i < 12; ++i) {
    while (!r.tx.wants_probe()) {
      ASSERT_NE(r.tx.deadline(), kNever);
      r.now = r.tx.deadline();
      r.tx.on_timer(r.now, r);
    }
    EXPECT_FALSE(r.tx.can_probe(r.now, r));
    r.tx.on_probe_repeated(r.now);
    EXPECT_EQ(r.tx.next_seq(), next);
  }
  EXPECT_FALSE(r.tx.rtt_known());
  wire::AckPacket ack = r.ack_packet(kReach - 1, {});
  EXPECT_TRUE(r.tx.on_ack(r.now, ack, r).recovered);
  EXPECT_FALSE(r.tx.must_repeat_probe());
  EXPECT_TRUE(r.tx.can_send(r.now, r));
}

TEST(PathAck, AnAnsweredProbeShowsTheGapBelowIt) {
  MR_COVERS("MR-LOSS-001");
  Rig r;
  r.send_many(3);
  r.next_probe();
  r.ack(0, {3});
  EXPECT_EQ(r.lost.size(), 3u);  // the tail is lost, and known to be after one round trip
  EXPECT_EQ(r.tx.state(), State::kGood);
}

TEST(PathAck, TheFirstUnansweredProbeMakesItSuspectAndMovesWhatIsOut) {
  MR_COVERS("MR-HEALTH-001");
  MR_COVERS("MR-HEALTH-002");
  Rig r;
  r.send_many(4);
  TimerOutcome out;
  r.next_probe(&out);
  EXPECT_FALSE(out.suspect);
  EXPECT_EQ(r.tx.state(), State::kGood);
  r.next_probe(&out);
  EXPECT_TRUE(out.suspect);
  EXPECT_TRUE(out.unanswered);
  EXPECT_EQ(r.tx.state(), State::kSuspect);
  EXPECT_EQ(r.lost.size(), 4u);
  EXPECT_EQ(r.tx.in_flight(), 0u);
  EXPECT_FALSE(r.tx.can_send(r.now, r));
  EXPECT_EQ(r.tx.counters->suspects, 1u);
  const AckOutcome ack = r.ack(2);  // one that was held lost arrived after all
  EXPECT_TRUE(ack.recovered);
  EXPECT_EQ(ack.spurious, 2u);
  EXPECT_EQ(r.tx.state(), State::kGood);
}

TEST(PathAck, ADeadPathIsProbedInABurstAndThenSeldom) {
  MR_COVERS("MR-HEALTH-008");
  Rig r;
  r.send();
  r.tx.become_suspect(r.now, r);
  r.tx.become_dead(r.now, r);
  EXPECT_EQ(r.tx.counters->deaths, 1u);
  std::vector<Time> at;
  for (int i = 0; i < 20; ++i) {
    r.next_probe();
    at.push_back(r.now);
  }
  for (int i = 1; i < 8; ++i) EXPECT_LE(at[i] - at[i - 1], kRtt) << i;
  Duration expected = nanoseconds(r.settings.dead_probe_min);
  for (int i = 8; i < 20; ++i) {
    const Duration wait = at[i] - at[i - 1];
    EXPECT_GE(wait, expected - expected / 8) << i;
    EXPECT_LE(wait, expected + expected / 8) << i;
    expected = std::min(expected * 2, nanoseconds(r.settings.dead_probe_max));
  }
  EXPECT_EQ(expected, milliseconds(100));
}

TEST(PathAck, ADeadPathComesBackAfterThreeAnswersOfEight) {
  MR_COVERS("MR-HEALTH-009");
  Rig r;
  r.send();
  r.tx.become_dead(r.now, r);
  std::vector<uint32_t> probes;
  for (int i = 0; i < 8; ++i) probes.push_back(r.next_probe() - kStart);
  EXPECT_FALSE(r.ack(0, {probes[1]}).recovered);
  EXPECT_FALSE(r.ack(0, {probes[1], probes[4]}).recovered);
  EXPECT_EQ(r.tx.state(), State::kDead);
  EXPECT_TRUE(r.ack(0, {probes[1], probes[4], probes[7]}).recovered);
  EXPECT_EQ(r.tx.state(), State::kGood);
  EXPECT_EQ(r.tx.window().bytes(), r.settings.max_payload);
}

TEST(PathAck, AnswersLongAgoDoNotCount) {
  MR_COVERS("MR-HEALTH-009");
  Rig r;
  r.send();
  r.tx.become_dead(r.now, r);
  const uint32_t a = r.next_probe() - kStart;
  const uint32_t b = r.next_probe() - kStart;
  r.ack(0, {a, b});
  for (int i = 0; i < 8; ++i) r.next_probe();
  const uint32_t c = r.next_probe() - kStart;
  EXPECT_FALSE(r.ack(0, {a, b, c}).recovered);
  EXPECT_EQ(r.tx.state(), State::kDead);
}

TEST(PathAck, HasteOnlyWhenThePeerAnsweredForSomethingAsYoung) {
  Rig r;
  r.send();
  r.now = r.now + kRtt;
  r.ack(1);  // a first sample
  r.send();
  const Time sent = r.now;
  const Time usual = r.tx.deadline();
  r.tx.hasten_probe(r.now, sent - r.tx.srtt());
  EXPECT_EQ(r.tx.deadline(), usual);
  r.tx.hasten_probe(r.now, sent);
  EXPECT_LT(r.tx.deadline(), usual);
  EXPECT_GE(r.tx.deadline(), sent + r.tx.srtt());
}

TEST(PathAck, MarksAreCountedFromTheDifference) {
  MR_COVERS("MR-ACK-016");
  Rig r;
  EXPECT_EQ(r.tx.ce_delta(0xFFFE), 0xFFFE);
  EXPECT_EQ(r.tx.ce_delta(3), 5);
  EXPECT_EQ(r.tx.ce_delta(3), 0);
}

TEST(PathAck, ARisingRttCountsOnlyAboveTheNoiseAndWithoutMarks) {
  MR_COVERS("MR-CC-004");
  MR_COVERS("MR-CC-005");
  const auto rising = [](Duration rtt, bool marks) {
    Rig r;
    r.settings.rtt_noise = 200'000;
    for (uint32_t i = 0; i < 60; ++i) {
      r.send();
      const Duration d = i == 0 ? kRtt : rtt;
      r.now = r.now + d;
      wire::AckPacket ack = r.ack_packet(i + 1, {});
      ack.f.stamp = wire::stamp_of(r.now - d);
      r.tx.on_ack(r.now, ack, r);
    }
    if (marks) r.tx.ce_delta(1);
    return r.tx.loss_means_congestion();
  };
  EXPECT_FALSE(rising(kRtt, false));
  EXPECT_FALSE(rising(kRtt * 2, false));  // within the noise
  EXPECT_TRUE(rising(kRtt * 5, false));
  EXPECT_FALSE(rising(kRtt * 5, true));
}

}  // namespace
}  // namespace metaroce::path
