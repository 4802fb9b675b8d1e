// Sequences, floor, span, reach and the resolving of what was lost.
#include "path/path_sender.h"

#include <gtest/gtest.h>

#include "base/covers.h"
#include "path/test_rig.h"

namespace metaroce::path {
namespace {

TEST(PathSender, EveryTransmissionTakesTheNextSequence) {
  MR_COVERS("MR-PATH-001");
  Rig r;
  EXPECT_EQ(r.send(), kStart);
  EXPECT_EQ(r.tx.on_probe_sent(r.now, 0), kStart + 1);
  EXPECT_EQ(r.send(), kStart + 2);
  // A repair of the same CPSN takes a fresh one as well.
  ASSERT_TRUE(r.tx.can_send(r.now, r));
  EXPECT_EQ(r.tx.on_sent(r.now, 100, 1000, SentKind::kData), kStart + 3);
  EXPECT_EQ(r.tx.next_seq(), kStart + 4);
}

TEST(PathSender, FloorIsTheDistanceToTheLowestUnresolved) {
  MR_COVERS("MR-PATH-004");
  Rig r;
  EXPECT_EQ(r.tx.floor_of(r.send()), 0);
  EXPECT_EQ(r.tx.floor_of(r.send()), 1);
  EXPECT_EQ(r.tx.floor_of(r.send()), 2);
  r.ack(2);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 2);
  EXPECT_EQ(r.tx.floor_of(r.send()), 1);
}

TEST(PathSender, AnAckResolvesWhatItShowsBelowTheBaseOrInTheMap) {
  MR_COVERS("MR-PATH-010");
  Rig r;
  r.send_many(6);
  r.ack(2, {4});
  ASSERT_EQ(r.delivered.size(), 3u);
  EXPECT_EQ(r.delivered[0], (Rig::Told{kStart, 100, false, false}));
  EXPECT_EQ(r.delivered[1], (Rig::Told{kStart + 1, 101, false, false}));
  EXPECT_EQ(r.delivered[2], (Rig::Told{kStart + 4, 104, false, false}));
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 2);
  EXPECT_EQ(r.tx.in_flight_packets(), 1u);  // 5; 2 and 3 are gaps and lost at once
}

TEST(PathSender, NothingIsSentBeyondTheSpan) {
  MR_COVERS("MR-PATH-005");
  Rig r;
  for (uint32_t i = 0; i < 256; ++i) EXPECT_EQ(r.tx.floor_of(r.send()), i);
  EXPECT_FALSE(r.tx.can_send(r.now, r));
  EXPECT_FALSE(r.tx.can_probe(r.now, r));  // a probe is bound by it too
  EXPECT_EQ(r.tx.span_room(), 0u);
  r.ack(1);
  EXPECT_TRUE(r.tx.can_send(r.now, r));
  EXPECT_EQ(r.tx.floor_of(r.send()), 255);
  EXPECT_FALSE(r.tx.can_send(r.now, r));
}

TEST(PathSender, WithAFullSpanTheLowestIsGivenOutAndResolved) {
  MR_COVERS("MR-PATH-008");
  Rig r;
  r.send_many(256);
  uint32_t cpsn = 0;
  ASSERT_TRUE(r.tx.take_lowest(r, cpsn));
  EXPECT_EQ(cpsn, 100u);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 1);
  ASSERT_TRUE(r.tx.can_send(r.now, r));
  EXPECT_EQ(r.tx.floor_of(r.tx.on_sent(r.now, cpsn, 1000, SentKind::kData)), 255);
  // With room left there is nothing to take: a probe can go out.
  r.ack(10);
  EXPECT_FALSE(r.tx.take_lowest(r, cpsn));
}

TEST(PathSender, AProbeNeverHoldsTheFloor) {
  MR_COVERS("MR-PATH-015");
  Rig r;
  r.tx.on_probe_sent(r.now, 0);
  EXPECT_EQ(r.tx.floor_of(r.send()), 0);
  r.tx.on_probe_sent(r.now, 0);
  EXPECT_EQ(r.tx.floor_of(r.send()), 2);  // because of the data packet two below
  r.ack(0, {1});                          // neither probe arrived
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 3);
}

TEST(PathSender, APaddedProbeHoldsTheFloorWhileItIsOut) {
  Rig r;
  r.tx.on_probe_sent(r.now, 1500);
  EXPECT_EQ(r.tx.floor_of(r.send()), 1);
  const AckOutcome out = r.ack(1);
  EXPECT_EQ(out.padded_acked, 1500);
  r.tx.on_probe_sent(r.now, 4096);
  r.tx.expire_padded(r.now, {}, r);
  ASSERT_EQ(r.lost.size(), 1u);
  EXPECT_EQ(r.lost[0].cpsn, 4096u);
  EXPECT_EQ(r.tx.loss_fraction(), 0u);  // says nothing about the path's loss
}

TEST(PathSender, ALostSequenceIsResolvedOnlyAfterItWasSentAgainAndARoundTripPassed) {
  MR_COVERS("MR-PATH-011");
  Rig r;
  r.send_many(2);
  r.ack(0, {1});
  ASSERT_EQ(r.lost.size(), 1u);
  EXPECT_EQ(r.lost[0].seq, kStart);
  r.now = r.now + kRtt * 50;
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart);  // not sent again yet: it stays, however long
  r.tx.on_resent(r.now, kStart);
  r.now = r.now + r.tx.srtt() - nanoseconds(128);
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart);
  r.now = r.now + r.tx.reorder_window() + nanoseconds(256);
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 2);
}

TEST(PathSender, AShortSpanResolvesTheResentAtOnce) {
  Rig r;
  r.send_many(2);
  r.ack(0, {1});
  r.tx.on_resent(r.now, kStart);
  r.send_many(190);
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart);  // 192 are not above three quarters
  r.send();
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 2);
}

TEST(PathSender, AKnownFateResolvesALostSequence) {
  MR_COVERS("MR-PATH-014");
  Rig r;
  r.send_many(2);
  r.ack(0, {1});
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart);
  r.decided.insert(100);  // another path's map told it
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart + 2);
}

TEST(PathSender, OnlyWhatIsLostCanBeMarkedAsSentAgain) {
  MR_COVERS("MR-PATH-013");
  Rig r;
  r.send_many(3);
  // An idle copy of a packet that is not held lost resolves nothing.
  r.tx.on_resent(r.now, kStart);
  r.now = r.now + kRtt * 10;
  r.tx.can_probe(r.now, r);
  EXPECT_EQ(r.tx.lowest_unresolved(), kStart);
  EXPECT_EQ(r.tx.in_flight_packets(), 3u);
}

/// Sends up to the reach with nothing acknowledged: every sequence is lost and decided at once.
void exhaust_reach(Rig& r) {
  for (;;) {
    r.decided.insert(r.next_cpsn);
    if (r.send() == 0 && !r.tx.can_send(r.now, r)) break;
    r.tx.become_suspect(r.now, r);
    r.tx.become_good(false);
  }
}

TEST(PathSender, DataStaysTwoAndProbesOneBelowTheReach) {
  MR_COVERS("MR-PATH-030");
  Rig r;
  r.tx.open(3, 1, 5000, 40000, State::kGood, kRtt);
  exhaust_reach(r);
  EXPECT_EQ(r.tx.next_seq(), 5000 + kReach - 2);
  ASSERT_TRUE(r.tx.can_probe(r.now, r));
  r.tx.on_probe_sent(r.now, 0);
  EXPECT_EQ(r.tx.next_seq(), 5000 + kReach - 1);
  EXPECT_FALSE(r.tx.can_probe(r.now, r));
  wire::AckPacket ack;
  ack.f.counter = 1;
  ack.f.base = 5001;
  r.tx.on_ack(r.now, ack, r);
  EXPECT_TRUE(r.tx.can_probe(r.now, r));
  EXPECT_FALSE(r.tx.can_send(r.now, r));
}

TEST(PathSender, TheWindowOfRecordsIsGivenBackWhenNothingIsOut) {
  Rig r;
  EXPECT_EQ(r.windows.used(), 0u);
  r.send_many(3);
  EXPECT_EQ(r.windows.used(), 1u);
  r.ack(3);
  EXPECT_EQ(r.windows.used(), 0u);
  const uint32_t a = r.windows.allocate();
  const uint32_t b = r.windows.allocate();
  EXPECT_FALSE(r.tx.can_send(r.now, r));  // exhausted: not sent, no crash
  r.windows.release(a);
  r.windows.release(b);
  EXPECT_TRUE(r.tx.can_send(r.now, r));
}

TEST(PathSender, ClosingTellsEverythingThatIsOut) {
  MR_COVERS("MR-PATH-017");
  Rig r;
  r.send_many(5);
  r.tx.close(r);
  EXPECT_EQ(r.lost.size(), 5u);
  EXPECT_EQ(r.tx.in_flight(), 0u);
  EXPECT_EQ(r.tx.deadline(), kNever);
  EXPECT_FALSE(r.tx.can_send(r.now, r));
}

TEST(PathSender, ACopyGivenUpLateIsToldOnce) {
  Rig r;
  r.send_many(2);
  r.ack(0, {1});
  EXPECT_EQ(r.lost.size(), 1u);
  r.tx.become_suspect(r.now, r);
  r.tx.become_dead(r.now, r);
  EXPECT_EQ(r.lost.size(), 1u);
}

TEST(PathSender, VerdictCountFollowsTheLoss) {
  MR_COVERS("MR-HEALTH-004");
  Rig r;
  EXPECT_EQ(r.tx.verdict_count(), 2u);
  const auto count_at = [](int percent) {
    Rig x;
    // Packets in groups of 100, `percent` of them lost, evenly spread.
    for (int i = 0; i < 4000; ++i) {
      const uint32_t seq = x.send(100);
      const bool lost = (i * percent) % 100 < percent;
      if (lost) {
        x.decided.insert(x.next_cpsn - 1);
      } else {
        x.ack(x.tx.lowest_unresolved() - kStart, {seq - kStart});
      }
    }
    return x.tx.verdict_count();
  };
  EXPECT_EQ(count_at(0), 2u);
  EXPECT_NEAR(count_at(1), 4, 1);
  EXPECT_NEAR(count_at(10), 9, 1);
  EXPECT_NEAR(count_at(25), 17, 3);
  EXPECT_EQ(count_at(40), 21u);
}

TEST(PathSender, SilenceIsNotCountedAsLoss) {
  MR_COVERS("MR-HEALTH-004");
  Rig r;
  for (int i = 0; i < 50; ++i) {
    r.decided.insert(r.next_cpsn);
    r.send();
    r.tx.become_suspect(r.now, r);
    r.tx.become_good(false);
  }
  EXPECT_EQ(r.lost.size(), 50u);
  EXPECT_EQ(r.tx.verdict_count(), 2u);
}

TEST(PathSender, TheEpochRisesWithThePortAtMostOnceARoundTrip) {
  MR_COVERS("MR-LOSS-003");
  Rig r;
  r.send();
  ASSERT_TRUE(r.tx.change_port(r.now, 41000));
  EXPECT_EQ(r.tx.epoch(), 1);
  EXPECT_EQ(r.tx.port, 41000);
  r.now = r.now + r.tx.srtt() / 2;
  EXPECT_FALSE(r.tx.change_port(r.now, 42000));
  EXPECT_EQ(r.tx.port, 41000);
  EXPECT_EQ(r.tx.epoch(), 1);
}

TEST(PathSender, NoSecondPortChangeBeforeTheDrainTimerEnded) {
  MR_COVERS("MR-LOSS-004");
  Rig r;
  r.send();
  ASSERT_TRUE(r.tx.change_port(r.now, 41000));
  r.now = r.now + kRtt + kRtt / 8;  // an RTT, but less than 1.25
  EXPECT_FALSE(r.tx.change_port(r.now, 42000));
  r.now = r.now + kRtt * 3;
  r.tx.on_timer(r.now, r);
  EXPECT_TRUE(r.tx.change_port(r.now, 42000));
}

}  // namespace
}  // namespace metaroce::path
