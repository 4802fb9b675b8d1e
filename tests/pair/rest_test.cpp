// Connections at rest: nothing anybody sees changes when their paths are folded and unfolded.
#include <gtest/gtest.h>

#include "base/covers.h"
#include "tests/pair/pair.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using engine::PathStatus;

Settings resting_after(Duration d) {
  Settings s = pair_settings();
  s.rest_after = d.ns;
  s.keep_alive = 1'000'000'000;
  return s;
}

PairConfig small(Duration rest) {
  PairConfig c;
  c.settings = resting_after(rest);
  c.network.planes = 2;
  return c;
}

Impairment impairment(ImpairmentKind kind, Time begin, uint64_t ppm, Duration max = {},
                      int plane = -1) {
  Impairment i;
  i.kind = kind;
  i.plane = plane;
  i.begin = begin;
  i.probability = per_million(ppm);
  i.max = max;
  return i;
}

bool both_rest(Pair& pair) {
  return pair.engine(0).memory().resting == 1 && pair.engine(1).memory().resting == 1;
}

void expect_same_paths(const std::vector<PathStatus>& before, const std::vector<PathStatus>& now) {
  ASSERT_EQ(before.size(), now.size());
  for (size_t i = 0; i < before.size(); ++i) {
    const PathStatus& a = before[i];
    const PathStatus& b = now[i];
    EXPECT_EQ(a.state, b.state);
    EXPECT_EQ(a.plane, b.plane);
    EXPECT_EQ(a.source_port, b.source_port);
    EXPECT_EQ(a.peer_port, b.peer_port);
    EXPECT_EQ(a.pmtu, b.pmtu);
    EXPECT_EQ(a.window, b.window);
    EXPECT_EQ(a.srtt, b.srtt);
    EXPECT_EQ(a.min_rtt, b.min_rtt);
    EXPECT_EQ(a.epoch, b.epoch);
    EXPECT_EQ(a.loss_ppm, b.loss_ppm);
    EXPECT_EQ(a.change, b.change);
    EXPECT_LE((a.changed_at - b.changed_at).ns, 1 << 20);
  }
}

TEST(Rest, FoldingAndUnfoldingShowNothingToAnybody) {
  MR_COVERS("MR-CONN-040");
  Pair pair(small(milliseconds(5)));
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.write(0, 1, 1, 0, 300'000), Status::kOk);
  ASSERT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, seconds(1)));
  pair.run_for(milliseconds(2));
  ASSERT_FALSE(both_rest(pair));
  const auto paths = pair.paths(0);
  const auto far_paths = pair.paths(1);
  const uint64_t hashes[] = {pair.engine(0).state_hash(), pair.engine(1).state_hash()};
  pair.run_for(milliseconds(20));
  ASSERT_TRUE(both_rest(pair));
  EXPECT_EQ(pair.engine(0).memory().awake_paths, 0u);
  EXPECT_TRUE(pair.engine(0).idle());
  expect_same_paths(paths, pair.paths(0));
  expect_same_paths(far_paths, pair.paths(1));
  EXPECT_EQ(pair.paths(0)[0].counters.tx_packets, paths[0].counters.tx_packets);
  EXPECT_EQ(pair.paths(1)[0].counters.rx_packets, far_paths[0].counters.rx_packets);
  EXPECT_EQ(pair.engine(0).state_hash(), hashes[0]);
  EXPECT_EQ(pair.engine(1).state_hash(), hashes[1]);
  // A request wakes one end, its packets the other; nothing is known that was not known before.
  const uint64_t events = pair.packet_events();
  ASSERT_EQ(pair.write(0, 1, 2, 0, 300'000), Status::kOk);
  EXPECT_EQ(pair.engine(0).memory().resting, 0u);
  expect_same_paths(paths, pair.paths(0));  // nothing was answered yet
  ASSERT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 2; }, seconds(1)));
  EXPECT_GT(pair.packet_events(), events);
  EXPECT_EQ(pair.wrong_in_region(1, 0, 300'000), 0u);
  const auto after = pair.paths(0);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].counters.lost, paths[i].counters.lost);
    EXPECT_GE(after[i].window, paths[i].window);
    EXPECT_EQ(after[i].min_rtt, paths[i].min_rtt);
  }
}

TEST(Rest, SettingZeroMeansNever) {
  Pair pair(small({}));
  ASSERT_TRUE(pair.connect());
  pair.run_for(seconds(3));
  EXPECT_EQ(pair.engine(0).memory().resting, 0u);
}

TEST(Rest, ManyBurstsUnderLossComeOutTheSameHoweverOftenItRests) {
  MR_COVERS("MR-CONN-040");
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    PairConfig config = small(microseconds(300));
    config.seed = seed;
    Pair pair(config);
    Network& net = pair.network();
    net.add(impairment(ImpairmentKind::kLoss, Time{0}, seed % 4 * 10'000));
    net.add(impairment(ImpairmentKind::kReorder, Time{0}, 20'000, microseconds(30)));
    net.add(impairment(ImpairmentKind::kDuplicate, Time{0}, 20'000, milliseconds(2)));
    ASSERT_TRUE(pair.connect(seconds(2)));
    uint64_t folded = 0;
    for (uint64_t i = 0; i < 20; ++i) {
      const int side = static_cast<int>((seed + i) % 2);
      const uint64_t done = pair.counts(side).completions;
      ASSERT_EQ(pair.write(side, static_cast<uint16_t>(i % 3), i, i * 4096, 4096 * (1 + i % 9)),
                Status::kOk);
      ASSERT_TRUE(pair.run_until([&] { return pair.counts(side).completions > done; }, seconds(2)))
          << "seed " << seed << " burst " << i;
      pair.run_for(microseconds(static_cast<int64_t>(100 + seed * 37 * i % 3000)));
      folded += pair.engine(0).memory().resting;
    }
    EXPECT_GT(folded, 0u);
    EXPECT_EQ(pair.counts(0).failed + pair.counts(1).failed, 0u);
    EXPECT_EQ(pair.counts(0).wrong_bytes + pair.counts(1).wrong_bytes, 0u);
    EXPECT_EQ(pair.take_wrong_books(), std::vector<std::string>{});
  }
}

TEST(Rest, KeepAliveGoesOnAndADeadPeerIsNamed) {
  Pair pair(small(milliseconds(5)));
  ASSERT_TRUE(pair.connect());
  pair.run_for(seconds(5));
  EXPECT_FALSE(pair.lost(0));
  EXPECT_TRUE(both_rest(pair));
  uint64_t probes = 0;
  for (const PathStatus& p : pair.paths(0)) probes += p.counters.rx_probes;
  EXPECT_GE(probes, 4u);
  pair.network().add(impairment(ImpairmentKind::kDark, pair.now(), 0));
  ASSERT_TRUE(pair.run_until([&] { return pair.lost(0) && pair.lost(1); }, seconds(10)));
  EXPECT_EQ(pair.loss_status(0), Status::kUnresponsive);
}

/// One packet, a gap that the sender gives up, another one; after 20 ms the packet of the gap, with
/// a CPSN that is decided. Returns how many late arrivals the engine counts for it.
uint64_t late_after(Duration rest) {
  Settings settings = WirePeer::small_settings();
  settings.rest_after = rest.ns;
  settings.paths_per_plane = 1;
  WirePeer peer(settings);
  EXPECT_TRUE(peer.open());
  peer.give(peer.write(0, 0, 100));
  wire::DataPacket gap;
  gap.s = peer.next();
  gap.s.cpsn = WirePeer::kStartCpsn;
  gap.opcode = wire::Opcode::kWrite;
  gap.message_flags = wire::message_flag::kFirst | wire::message_flag::kLast;
  gap.key = peer.region().key;
  gap.address = peer.region().remote_base;
  auto after_gap = peer.write(1, 1, 100);
  after_gap[3] = std::byte{0};  // its floor: what is below is resolved
  peer.give(after_gap);
  peer.run(milliseconds(20));
  EXPECT_EQ(peer.engine().memory().resting, rest.ns > 0 ? 1u : 0u);
  PathStatus before[4];
  PathStatus after[4];
  EXPECT_GE(peer.engine().path_status(peer.id(), before), 1u);
  gap.s.floor = 0;
  peer.give(WirePeer::with_payload(gap, 100, 1));
  EXPECT_GE(peer.engine().path_status(peer.id(), after), 1u);
  EXPECT_EQ(after[0].counters.rx_duplicates, before[0].counters.rx_duplicates + 1);
  return after[0].counters.rx_late - before[0].counters.rx_late;
}

TEST(Rest, WhatComesFromBelowTheBaseAfterARestIsACopy) {
  MR_COVERS("MR-CONN-041");
  EXPECT_EQ(late_after({}), 1u);
  EXPECT_EQ(late_after(milliseconds(5)), 0u);
}

// Its CONFIRM was lost, and nothing was heard of the peer since: the ACCEPT comes again.
TEST(Rest, WhoRestsConfirmsWhenItIsAskedAgain) {
  MR_COVERS("MR-CONN-013");
  Settings s = WirePeer::small_settings();
  s.rest_after = milliseconds(10).ns;
  WirePeer peer(s);
  ASSERT_TRUE(peer.be_connected());
  peer.run(milliseconds(100));
  ASSERT_EQ(peer.engine().memory().resting, 1u);
  for (int copies = 0; copies < 3; ++copies) {
    peer.give(peer.accept_bytes());
    EXPECT_EQ(WirePeer::only<wire::ConfirmPacket>(peer.run(milliseconds(1))).size(), 1u);
    EXPECT_EQ(peer.engine().memory().resting, 0u);
    peer.run(milliseconds(100));
  }
}

TEST(Rest, PathsAreToldOpenWhereNothingIsLeftToOpenOrToSearch) {
  Settings settings = WirePeer::small_settings();
  settings.paths_per_plane = 1;
  WirePeer peer(settings);
  ASSERT_TRUE(peer.say_hello());
  peer.give(peer.confirm());
  engine::ConnectionEvent events[4];
  ASSERT_EQ(peer.engine().poll_events(events), 2u);
  EXPECT_EQ(events[0].kind, engine::ConnectionEventKind::kAccepted);
  EXPECT_EQ(events[1].kind, engine::ConnectionEventKind::kPathsOpen);
}

TEST(Rest, APathInDoubtKeepsItsConnectionAwake) {
  Pair pair(small(milliseconds(5)));
  ASSERT_TRUE(pair.connect());
  pair.network().add(impairment(ImpairmentKind::kDark, pair.now(), 0, {}, 1));
  ASSERT_EQ(pair.write(0, 1, 1, 0, 500'000), Status::kOk);
  ASSERT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, seconds(1)));
  pair.run_for(milliseconds(50));
  EXPECT_EQ(pair.engine(0).memory().resting, 0u) << "paths of a dark plane are probed";
  pair.network().clear(pair.now());
  pair.run_for(milliseconds(500));
  EXPECT_TRUE(both_rest(pair));
}

}  // namespace
}  // namespace metaroce::pair
