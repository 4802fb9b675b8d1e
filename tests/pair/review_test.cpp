// What a review of the whole found wrong once, each as the user would have met it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using engine::NetworkHint;
using engine::Operation;
using engine::PathState;

PairConfig config(uint32_t planes, uint32_t paths) {
  PairConfig c;
  c.network.planes = planes;
  c.settings.paths_per_plane = paths;
  c.settings.max_active_paths = 256;
  c.real_memory = false;
  c.region_bytes = 64 << 20;
  return c;
}

/// The timers a socket user has, for networks slower than those of the other tests.
PairConfig slow_config(uint32_t planes, uint32_t paths, Duration one_way) {
  PairConfig c = config(planes, paths);
  const Settings usual;
  c.settings.initial_rtt = usual.initial_rtt;
  c.settings.pmtu_wait = usual.pmtu_wait;
  c.settings.hello_interval = usual.hello_interval;
  c.settings.connect_timeout = usual.connect_timeout;
  c.settings.death_timeout = usual.death_timeout;
  c.settings.rto_min = usual.rto_min;
  c.settings.rtt_noise = usual.rtt_noise;
  c.network.delay = one_way;
  return c;
}

Impairment impairment(ImpairmentKind kind, Time begin, int plane, Time end = kNever) {
  Impairment i;
  i.kind = kind;
  i.plane = plane;
  i.begin = begin;
  i.end = end;
  return i;
}

size_t count(const Pair& pair, PathState state, int plane = -1) {
  const auto paths = pair.paths(0);
  return static_cast<size_t>(std::count_if(paths.begin(), paths.end(), [&](const auto& p) {
    return p.state == state && (plane < 0 || p.plane == plane);
  }));
}

// ---- Paths that die and return ----------------------------------------------------------------

TEST(Review, APathWithAFullSpanDiesAndItsLoadTravelsOnTheOther) {
  PairConfig c = slow_config(2, 1, milliseconds(2));
  c.network.mtu = 1500;
  // A fabric that lets the window grow to the whole span.
  c.network.mark_bytes = 0;
  c.network.queue_bytes = 4 << 20;
  Pair pair(c);
  ASSERT_TRUE(pair.connect(seconds(1)));
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(pair.write(0, 0, i, i * 100'000, 100'000), Status::kOk);
  }
  // The window must want more than the span allows, so that the span is what ends the sending.
  const auto full = [&] {
    for (const auto& p : pair.paths(0)) {
      if (p.plane == 1 && p.window > 384 * 1500 && p.in_flight > 255 * 1400) return true;
    }
    return false;
  };
  ASSERT_TRUE(pair.run_until(full, milliseconds(200)));
  ASSERT_LT(pair.counts(0).completions, 20u);
  const Time dark = pair.now();
  pair.network().add(impairment(ImpairmentKind::kDark, dark, 1));
  const Duration rtt = milliseconds(4);
  const auto given_up = [&] { return count(pair, PathState::kDead, 1) == 1; };
  EXPECT_TRUE(pair.run_until(given_up, rtt * 6)) << count(pair, PathState::kSuspect, 1);
  // The other plane carries a span in each RTT: what is left takes six or seven of them.
  const auto done = [&] { return pair.counts(0).completions == 40; };
  EXPECT_TRUE(pair.run_until(done, dark + rtt * 12 - pair.now()));
  EXPECT_EQ(pair.counts(0).failed, 0u);
  EXPECT_EQ(count(pair, PathState::kGood, 1), 0u);
  EXPECT_EQ(pair.counts(1).placed_bytes, 4'000'000u);
}

TEST(Review, ADeadPathReturnsAlthoughItsRttHasGrownManyTimes) {
  Pair pair(slow_config(2, 1, microseconds(50)));
  ASSERT_TRUE(pair.connect(seconds(1)));
  ASSERT_EQ(pair.write(0, 0, 1, 0, 8 << 20), Status::kOk);
  pair.run_for(microseconds(300));
  Impairment far = impairment(ImpairmentKind::kDelay, pair.now(), 1);
  far.min = far.max = milliseconds(11);
  pair.network().add(far);
  ASSERT_TRUE(pair.run_until([&] { return count(pair, PathState::kDead, 1) == 1; }, seconds(1)));
  EXPECT_TRUE(pair.run_until([&] { return count(pair, PathState::kGood, 1) == 1; }, seconds(1)));
  pair.run_for(milliseconds(500));
  EXPECT_EQ(count(pair, PathState::kGood, 1), 1u);
  EXPECT_EQ(pair.counts(0).completions, 1u);
}

TEST(Review, PathsOfAPlaneThatWasDownAtConnectOpenWhenItComesUp) {
  Pair pair(slow_config(2, 2, microseconds(50)));
  const Time up = pair.now() + milliseconds(20);
  pair.engine(0).on_plane_state(pair.now(), 1, false);
  pair.network().add(impairment(ImpairmentKind::kDark, pair.now(), 1, up));
  pair.at(up, [&] {
    EXPECT_EQ(count(pair, PathState::kGood, 0), 2u);
    EXPECT_EQ(count(pair, PathState::kGood, 1), 0u);
    pair.engine(0).on_plane_state(pair.now(), 1, true);
    pair.poll(0);
  });
  pair.connect(milliseconds(20));
  pair.run_until([&] { return pair.now() >= up; }, milliseconds(30));
  const auto all_proven = [&] {
    const auto paths = pair.paths(0);
    return paths.size() == 4 && std::all_of(paths.begin(), paths.end(), [](const auto& p) {
             return p.state == PathState::kGood && p.pmtu > 0;
           });
  };
  EXPECT_TRUE(pair.run_until(all_proven, milliseconds(300)));
  EXPECT_FALSE(pair.lost(0));
}

TEST(Review, MorePathsThanControlSlotsAllOpen) {
  Pair pair(config(16, 8));
  EXPECT_TRUE(pair.connect());
  EXPECT_EQ(pair.paths(0).size(), 128u);
  EXPECT_EQ(count(pair, PathState::kGood), 128u);
}

// ---- A plane that never answers ---------------------------------------------------------------

TEST(Review, APlaneThatNeverAnswersIsAskedSeldomAndKeepsNobodyWaiting) {
  Pair pair(slow_config(2, 2, microseconds(50)));
  pair.network().add(impairment(ImpairmentKind::kDark, pair.now(), 1));
  EXPECT_TRUE(pair.connect(seconds(1)));  // all paths that can be are open, and both are told
  EXPECT_EQ(count(pair, PathState::kGood, 0), 2u);
  EXPECT_EQ(count(pair, PathState::kGood, 1), 0u);
  const Tally before = pair.network().plane_tally(0, 1);
  pair.run_for(seconds(1));
  const Tally t = pair.network().plane_tally(0, 1).since(before);
  EXPECT_GT(t.probes, 0u);  // it may still come
  EXPECT_LT(t.probes, 50u);
  EXPECT_LT(t.sent, 40u);
}

TEST(Review, AllPathsOpenWhenHelloIsRepeatedBeforeTheFirstAnswer) {
  Pair pair(slow_config(2, 4, milliseconds(15)));
  ASSERT_LT(pair.config().settings.hello_interval, milliseconds(30).ns);
  EXPECT_TRUE(pair.connect(seconds(2)));
  EXPECT_EQ(count(pair, PathState::kGood), 8u);
  for (const auto& p : pair.paths(0)) EXPECT_GE(p.pmtu, 1280) << int{p.id};
}

TEST(Review, AnIdleConnectionOutlivesAPlaneThatCannotBeProven) {
  PairConfig c = slow_config(2, 2, microseconds(50));
  c.settings.keep_alive = 5'000'000'000;
  Pair pair(c);
  pair.network().add(impairment(ImpairmentKind::kDark, pair.now(), 1));
  pair.connect(milliseconds(100));
  ASSERT_NE(pair.connection(1), 0u);
  pair.run_for(seconds(20));
  EXPECT_FALSE(pair.lost(0)) << to_string(pair.loss_status(0));
  EXPECT_FALSE(pair.lost(1)) << to_string(pair.loss_status(1));
  ASSERT_EQ(pair.write(0, 0, 1, 0, 10'000), Status::kOk);
  EXPECT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, milliseconds(10)));
  EXPECT_EQ(pair.counts(0).failed, 0u);
}

// ---- Set-up of connections --------------------------------------------------------------------

TEST(Review, AHostUnreachableOnOnePlaneLeavesTheOthersToTry) {
  PairConfig c = slow_config(2, 2, microseconds(50));
  c.settings.hello_interval = 500'000'000;  // the hint is what makes it ask the other plane
  Pair pair(c);
  pair.network().add(impairment(ImpairmentKind::kDark, pair.now(), 0));
  pair.at(pair.now() + microseconds(200), [&] {
    pair.engine(0).on_network_hint(pair.now(), pair.connection(0), 0xFF,
                                   NetworkHint::kHostUnreachable, 0);
    pair.poll(0);
  });
  pair.connect(milliseconds(100));
  EXPECT_FALSE(pair.lost(0)) << to_string(pair.loss_status(0));
  ASSERT_NE(pair.connection(1), 0u);
  EXPECT_EQ(count(pair, PathState::kGood, 1), 2u);
  ASSERT_EQ(pair.write(0, 0, 1, 0, 10'000), Status::kOk);
  EXPECT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, milliseconds(10)));
  EXPECT_EQ(pair.counts(0).failed, 0u);
}

TEST(Review, AHostUnreachableWithoutAnotherPlaneEndsTheSetUpAtOnce) {
  Pair pair(slow_config(1, 2, microseconds(50)));
  pair.network().add(impairment(ImpairmentKind::kDark, pair.now(), 0));
  bool hinted = false;
  pair.at(pair.now() + microseconds(200), [&] {
    hinted = true;
    EXPECT_FALSE(pair.lost(0));
    pair.engine(0).on_network_hint(pair.now(), pair.connection(0), 0xFF,
                                   NetworkHint::kHostUnreachable, 0);
    pair.poll(0);
    EXPECT_TRUE(pair.lost(0));
    EXPECT_EQ(pair.loss_status(0), Status::kUnreachable);
  });
  EXPECT_FALSE(pair.connect(milliseconds(1)));
  EXPECT_TRUE(hinted);
}

// ---- Failed streams ---------------------------------------------------------------------------

struct Seen {
  int side;
  engine::Completion completion;
};

TEST(Review, WhatIsPostedToAFailedStreamCompletesAtTheNextPoll) {
  PairConfig c = config(1, 2);
  c.receive_streams = 8;
  c.receive_slots = 4;
  c.receive_slot_bytes = 1000;
  Pair pair(c);
  ASSERT_TRUE(pair.connect());
  std::vector<Seen> seen;
  pair.on_completion = [&](int side, const engine::Completion& done) {
    seen.push_back({side, done});
  };
  engine::WorkRequest bad;
  bad.id = 1;
  bad.connection = pair.connection(0);
  bad.stream = 3;
  bad.operation = Operation::kWrite;
  bad.length = 100;
  bad.remote_key = 0x1234567;
  ASSERT_EQ(pair.post(0, bad), Status::kOk);
  ASSERT_TRUE(pair.run_until([&] { return !seen.empty(); }, milliseconds(10)));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].completion.status, Status::kAccess);
  pair.run_for(milliseconds(10));  // the peer knows of the reset, and nothing is left to do
  seen.clear();

  // Without a step of time: write and receive poll once after they post.
  ASSERT_EQ(pair.write(0, 3, 2, 0, 100), Status::kOk);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].side, 0);
  EXPECT_EQ(seen[0].completion.id, 2u);
  EXPECT_EQ(seen[0].completion.status, Status::kFlushed);
  ASSERT_EQ(pair.receive(1, 3, 7, 0), Status::kOk);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].side, 1);
  EXPECT_EQ(seen[1].completion.id, 7u);
  EXPECT_EQ(seen[1].completion.operation, Operation::kReceive);
  EXPECT_EQ(seen[1].completion.status, Status::kFlushed);
  // Another stream does not care.
  ASSERT_EQ(pair.write(0, 4, 3, 0, 100), Status::kOk);
  ASSERT_TRUE(pair.run_until([&] { return seen.size() == 3; }, milliseconds(10)));
  EXPECT_EQ(seen[2].completion.status, Status::kOk);
}

// ---- Acknowledgements made up -----------------------------------------------------------------

TEST(Review, AnAckFarBelowWhatIsInFlightIsDroppedAndSendsStillHaveTheirCredit) {
  Settings s = WirePeer::small_settings();
  s.paths_per_plane = 1;
  WirePeer p(s);
  ASSERT_TRUE(p.be_connected());
  uint32_t sent = 0;  // sequences of path 0
  const auto accept_all = [&] {
    for (const auto& packet : p.run(microseconds(1))) {
      const auto decoded = wire::decode(packet.bytes);
      if (const auto* d = std::get_if<wire::DataPacket>(&*decoded)) {
        sent = std::max(sent, d->s.path_seq + 1 - p.engine_start(0));
      } else if (const auto* q = std::get_if<wire::ProbePacket>(&*decoded)) {
        sent = std::max(sent, q->s.path_seq + 1 - p.engine_start(0));
      }
    }
    p.now = p.now + microseconds(10);
    p.give(p.acknowledge(0, sent));
  };
  for (uint64_t i = 0; sent <= 3 * 1024 && i < 4000; ++i) {
    ASSERT_EQ(p.post(p.request(Operation::kWrite, i, 5000)), Status::kOk);
    accept_all();
    p.completions();
  }
  ASSERT_GT(sent, 3u * 1024);
  for (int i = 0; i < 10; ++i) accept_all();

  // Right connection, a counter beyond all that the peer will use, no credit, an old base.
  const uint64_t before = p.dropped(wire::DropReason::kAckInvalid);
  wire::AckPacket forged = p.acknowledge(0, 5);
  forged.f.counter = 0x7F00'0000;
  p.give(forged);
  EXPECT_EQ(p.dropped(wire::DropReason::kAckInvalid), before + 1);

  p.completions();
  ASSERT_EQ(p.post(p.request(Operation::kSend, 9999, 100)), Status::kOk);
  accept_all();
  EXPECT_TRUE(p.completions().empty());  // no credit yet
  wire::AckPacket credit = p.acknowledge(0, sent);
  credit.f.limit = 1;
  p.give(credit);
  accept_all();
  accept_all();
  const auto done = p.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, 9999u);
  EXPECT_EQ(done[0].status, Status::kOk);
}

}  // namespace
}  // namespace metaroce::pair
