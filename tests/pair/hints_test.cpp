// What the network says beside acknowledgements: late arrivals that undo a cut, errors that are
// hints and prove nothing.
#include <gtest/gtest.h>

#include "base/covers.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using engine::ConnectionEventKind;
using engine::NetworkHint;
using engine::Operation;

Settings one_path() {
  Settings s = WirePeer::small_settings();
  s.paths_per_plane = 1;
  return s;
}

uint32_t window(WirePeer& peer) {
  engine::PathStatus status[4];
  EXPECT_GE(peer.engine().path_status(peer.id(), status), 1u);
  return status[0].window;
}

size_t probes(const std::vector<WirePeer::Sent>& sent) {
  return WirePeer::only<wire::ProbePacket>(sent).size();
}

/// Writes a few packets, lets `rtt` pass and acknowledges all that was sent except `missing`
/// packets at the beginning. Returns the acknowledgement that would show these too.
wire::AckPacket round(WirePeer& peer, uint64_t id, Duration rtt, uint32_t missing) {
  EXPECT_EQ(peer.post(peer.request(Operation::kWrite, id, 10'000)), Status::kOk);
  const auto data = WirePeer::only<wire::DataPacket>(peer.poll());
  EXPECT_GE(data.size(), 4u);
  const uint32_t first = data.front().s.path_seq - peer.engine_start(0);
  const uint32_t end = data.back().s.path_seq - peer.engine_start(0) + 1;
  peer.now = peer.now + rtt;
  wire::AckPacket ack = peer.acknowledge(0, missing == 0 ? end : first);
  for (uint32_t i = missing; missing != 0 && first + i < end; ++i) ack.map.set(i);
  ack.f.stamp = data.back().s.stamp;
  peer.give(ack);
  wire::AckPacket all = peer.acknowledge(0, end);
  all.f.stamp = data.back().s.stamp;
  return all;
}

TEST(Hints, ALateArrivalUndoesTheCutForLossWithRisingRtt) {
  MR_COVERS("MR-CC-005");
  WirePeer peer(one_path());
  ASSERT_TRUE(peer.be_connected());
  for (uint64_t i = 0; i < 4; ++i) round(peer, i, microseconds(10), 0);
  // The RTT rises without marks: from now on a loss counts as congestion.
  for (uint64_t i = 0; i < 8; ++i) round(peer, i, microseconds(100), 0);
  const uint32_t before = window(peer);
  const wire::AckPacket late = round(peer, 20, microseconds(100), 1);
  EXPECT_LE(window(peer), before * 3 / 4);
  peer.give(late);
  EXPECT_GE(window(peer), before);
}

TEST(Hints, ErrorsProbeOnceHoweverManyComeAndAnAnswerEndsTheDoubt) {
  MR_COVERS("MR-HEALTH-014");
  WirePeer peer(one_path());
  ASSERT_TRUE(peer.be_connected());
  peer.poll();
  const wire::AckPacket answer = round(peer, 1, microseconds(10), 0);
  peer.engine().on_network_hint(peer.now, peer.id(), 0xFF, NetworkHint::kPortUnreachable, 0);
  EXPECT_EQ(probes(peer.run({})), 1u);
  // A host that refuses each probe would otherwise draw the next one at once, without end.
  for (int i = 0; i < 20; ++i) {
    peer.engine().on_network_hint(peer.now, peer.id(), 0xFF, NetworkHint::kPortUnreachable, 0);
    EXPECT_EQ(probes(peer.run({})), 0u);
  }
  EXPECT_TRUE(peer.events().empty());
  wire::AckPacket alive = peer.acknowledge(0, answer.f.base + 1 - peer.engine_start(0));
  peer.give(alive);
  peer.run(milliseconds(100));
  EXPECT_TRUE(peer.events().empty()) << "the peer has answered";
}

TEST(Hints, WithoutAnAnswerTheRefusalIsBelievedSoon) {
  WirePeer peer(one_path());
  ASSERT_TRUE(peer.be_connected());
  peer.poll();
  round(peer, 1, microseconds(10), 0);
  peer.engine().on_network_hint(peer.now, peer.id(), 0xFF, NetworkHint::kPortUnreachable, 0);
  peer.run(milliseconds(100));
  const auto events = peer.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ConnectionEventKind::kLost);
  EXPECT_EQ(events[0].status, Status::kPeerGone);
}

}  // namespace
}  // namespace metaroce::pair
