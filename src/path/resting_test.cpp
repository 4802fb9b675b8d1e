// Folding a path keeps every field of RestingPath, and nothing that is in doubt is folded.
#include "path/resting.h"

#include <gtest/gtest.h>

#include "base/covers.h"
#include "path/path_receiver.h"
#include "path/test_rig.h"

namespace metaroce::path {
namespace {

constexpr Time kNow{seconds(1'000'000).ns};

/// Every field differs from its default and from the others.
RestingPath distinct() {
  RestingPath p;
  p.start = 0xFFFFFF00;
  p.next_seq = 101;
  p.peer_base = 99;
  p.ack_counter = 4;
  p.loss_q16 = 5;
  p.srtt = 6006;
  p.rttvar = 7007;
  p.min_rtt = 808;
  p.max_rtt = 9009;
  p.window = 10'010;
  p.mark_fraction = 11;
  p.min_rtt_at = coarse(kNow) - 12;
  p.used_at = coarse(kNow) - 13;
  p.answered_at = coarse(kNow) - 14;
  p.rx_base = 16;
  p.port = 17;
  p.generation = 18;
  p.pmtu = 19;
  p.ce_count = 20;
  p.rx_generation = 21;
  p.rx_ce_count = 22;
  p.plane = 1;
  p.state = static_cast<uint8_t>(State::kGood);
  p.epoch = 3;
  p.rx_plane = 2;
  p.late = 0x54;
  p.rtt_known = p.ack_seen = p.marks_seen = p.rx_open = p.rx_last_was_ce = true;
  return p;
}

RestingPath folded_again(const RestingPath& from) {
  Rig rig;
  PathSender tx(rig.settings, rig.windows, rig.counters);
  PathReceiver rx;
  tx.wake(kNow, from);
  rx.wake(from, {});
  EXPECT_TRUE(tx.can_rest());
  EXPECT_TRUE(rx.can_rest({}));
  RestingPath out;
  tx.rest(out);
  rx.rest(out);
  return out;
}

TEST(RestingPath, WakingAndRestingGivesTheSameAgain) {
  MR_COVERS("MR-CONN-040");
  RestingPath p = distinct();
  EXPECT_EQ(folded_again(p), p);
  p.rtt_known = p.ack_seen = p.marks_seen = p.rx_open = p.rx_last_was_ce = false;
  p.slow_start = true;
  p.state = static_cast<uint8_t>(State::kClosed);
  EXPECT_EQ(folded_again(p), p);
}

TEST(RestingPath, CoarseTimesAreOfTheLastFiftyDays) {
  for (const int64_t age_ms : {0, 1, 1000, 86'400'000, 2'000'000'000}) {
    const Time then = kNow - milliseconds(age_ms);
    const Time back = from_coarse(kNow + seconds(3), coarse(then));
    EXPECT_LE(back, then);
    EXPECT_LT((then - back).ns, 1 << 20);
  }
}

TEST(RestingPath, NothingInDoubtRests) {
  MR_COVERS("MR-CONN-040");
  Rig r;
  EXPECT_TRUE(r.tx.can_rest());
  r.send();
  EXPECT_FALSE(r.tx.can_rest()) << "a packet is out";
  r.ack(1);
  EXPECT_TRUE(r.tx.can_rest());
  r.tx.probe_soon(r.now);
  EXPECT_FALSE(r.tx.can_rest()) << "a timer is set";
  r.next_probe();
  EXPECT_FALSE(r.tx.can_rest()) << "a probe is out";
  r.ack(2);
  EXPECT_TRUE(r.tx.can_rest());
  r.tx.become_suspect(r.now, r);
  EXPECT_FALSE(r.tx.can_rest());
}

TEST(RestingPath, AReceiverWithAGapOrAnAckOwedOrAnotherPeerDoesNotRest) {
  MR_COVERS("MR-CONN-040");
  PathCounters counters;
  Settings settings;
  PathReceiver rx;
  rx.counters = &counters;
  SocketAddress peer;
  peer.family = 4;
  rx.open(0, 1, 10, peer);
  EXPECT_TRUE(rx.can_rest(peer));
  EXPECT_FALSE(rx.can_rest({}));
  Arrival a;
  a.seq = 10;
  rx.note(kNow, a, settings, kRtt);
  EXPECT_FALSE(rx.can_rest(peer)) << "an ACK is owed";
  wire::AckPacket ack;
  rx.fill_ack(kNow, ack);
  EXPECT_TRUE(rx.can_rest(peer));
  a.seq = 12;
  a.floor = 1;
  rx.note(kNow, a, settings, kRtt);
  rx.fill_ack(kNow, ack);
  EXPECT_FALSE(rx.can_rest(peer)) << "11 is missing";
}

}  // namespace
}  // namespace metaroce::path
