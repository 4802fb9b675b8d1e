// How connections end: peers that die, come back, stop for a while, close, break off, move.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/covers.h"
#include "tests/pair/mini_net.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using engine::ConnectionEventKind;
using engine::NetworkHint;
using engine::Operation;
using engine::PathState;
using wire::DropReason;
using ByteVector = std::vector<std::byte>;

/// The timers a socket user has.
Settings usual_timers() {
  Settings s = MiniNet::mini_settings();
  const Settings usual;
  s.timer_tick = usual.timer_tick;
  s.hello_interval = usual.hello_interval;
  s.connect_timeout = usual.connect_timeout;
  s.death_timeout = usual.death_timeout;
  s.rto_min = usual.rto_min;
  s.pmtu_wait = usual.pmtu_wait;
  return s;
}

/// Two nodes, connected, with memory at each that takes writes.
struct Duo {
  explicit Duo(uint64_t seed = 1, uint32_t loss = 0)
      : net({.seed = seed, .loss_percent = loss, .settings = usual_timers()}),
        a(net.add(false)),
        b(net.add(true)) {
    region();
    handle = net.connect(a, b);
    EXPECT_TRUE(net.run_until(
        [&] { return net.count(b, ConnectionEventKind::kAccepted) > accepted; }, seconds(3)));
    net.run_for(milliseconds(20));
  }
  void region() {
    info = *net[b].regions().add_at(nullptr, 1 << 30, memory::access::kRemoteWrite, 0x10'0000);
  }
  Status write(uint64_t id, uint64_t length) {
    engine::WorkRequest r;
    r.id = id;
    r.connection = handle;
    r.operation = Operation::kWrite;
    r.length = length;
    r.remote_address = info.remote_base;
    r.remote_key = info.key;
    Status status = Status::kOk;
    net[a].post(net.now, {&r, 1}, status);
    return status;
  }
  /// Runs until node n has lost a connection; gives how long it took, or the limit.
  Duration until_lost(uint32_t n, Duration limit = seconds(10)) {
    const Time begin = net.now;
    net.run_until([&] { return net.count(n, ConnectionEventKind::kLost) > 0; }, limit);
    return net.now - begin;
  }
  Status cause(uint32_t n) {
    for (const auto& e : net.node(n).events) {
      if (e.kind == ConnectionEventKind::kLost) return e.status;
    }
    return Status::kOk;
  }
  /// Connects anew and writes; true when both work within a second.
  bool reconnects() {
    const size_t before = net.count(a, ConnectionEventKind::kConnected);
    handle = net.connect(a, b);
    const Time begin = net.now;
    if (!net.run_until([&] { return net.count(a, ConnectionEventKind::kConnected) > before; },
                       seconds(1))) {
      return false;
    }
    const size_t done = net.node(a).completions.size();
    write(77, 10'000);
    if (!net.run_until([&] { return net.node(a).completions.size() > done; },
                       begin + seconds(1) - net.now)) {
      return false;
    }
    return net.node(a).completions.back().status == Status::kOk;
  }

  MiniNet net;
  uint32_t a;
  uint32_t b;
  size_t accepted = 0;
  engine::ConnectionHandle handle = 0;
  memory::RegionInfo info{};
};

// ---- The matrix: how the peer goes x what is outstanding -------------------------------------

enum class How { kKilled, kHostGone, kRestarted, kStopped };

class LifecycleDeath : public ::testing::TestWithParam<std::tuple<How, bool>> {};

TEST_P(LifecycleDeath, TheSurvivorNamesTheCauseWithinThreeSecondsAndConnectsAgain) {
  MR_COVERS("MR-LOSS-051");
  MR_COVERS("MR-HEALTH-014");
  const auto [how, busy] = GetParam();
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Duo d(seed);
    const auto old = d.handle;
    std::vector<ByteVector> stale;
    d.net.on_packet = [&](uint32_t from, uint32_t, const ByteVector& bytes) {
      if (from == d.a && stale.size() < 200) stale.push_back(bytes);
    };
    if (busy) {
      ASSERT_EQ(d.write(1, 50 << 20), Status::kOk);
    } else {
      d.net.run_for(seconds(10));  // alive all the time
      ASSERT_EQ(d.net.count(d.a, ConnectionEventKind::kLost), 0u);
    }
    d.net.run_for(microseconds(300));
    MiniNet::Node& peer = d.net.node(d.b);
    switch (how) {
      case How::kKilled:
        peer.up = false;
        break;
      case How::kHostGone:
        peer.up = peer.rejects = false;
        break;
      case How::kRestarted:
        d.net.start(d.b);
        d.region();
        break;
      case How::kStopped:
        peer.frozen = true;
        break;
    }
    const Duration took = d.until_lost(d.a);
    EXPECT_LE(took.ns, seconds(3).ns) << seed;
    const bool named = how == How::kKilled || how == How::kRestarted;
    EXPECT_EQ(d.cause(d.a), named ? Status::kPeerGone : Status::kUnresponsive) << seed;
    if (named && busy) {
      EXPECT_LE(took.ns, milliseconds(150).ns) << seed;
    }
    if (busy) {
      ASSERT_EQ(d.net.node(d.a).completions.size(), 1u);
      EXPECT_EQ(d.net.node(d.a).completions[0].status, d.cause(d.a));
    }
    if (how == How::kStopped) {
      d.net.run_for(seconds(5) - took);
      d.net.thaw(d.b);
      // It learns of it by asking: its own probe brings UNKNOWN_CONNECTION.
      EXPECT_LE(d.until_lost(d.b).ns, seconds(3).ns) << seed;
    }
    if (how == How::kKilled || how == How::kHostGone) {
      d.net.start(d.b);
      d.region();
    }
    d.net.run_for(milliseconds(50));  // the old one's rest is over
    // What the old connection sent may still travel: nobody takes it.
    for (const ByteVector& bytes : stale) d.net.send_raw(d.b, d.net.node(d.a).address, bytes);
    const uint64_t before = d.net[d.b].state_hash();
    d.net.run_for(milliseconds(20));
    EXPECT_EQ(d.net[d.b].state_hash(), before) << seed;
    peer.placed_bytes = 0;
    EXPECT_TRUE(d.reconnects()) << seed;
    EXPECT_EQ(peer.placed_bytes, 10'000u) << seed;
    for (const ByteVector& bytes : stale) d.net.send_raw(d.b, d.net.node(d.a).address, bytes);
    d.net.run_for(milliseconds(20));
    EXPECT_EQ(peer.placed_bytes, 10'000u) << seed;
    EXPECT_NE(d.handle, old);
    EXPECT_EQ(d.net.count(d.a, ConnectionEventKind::kLost), 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LifecycleDeath,
                         ::testing::Combine(::testing::Values(How::kKilled, How::kHostGone,
                                                              How::kRestarted, How::kStopped),
                                            ::testing::Bool()));

TEST(LifecycleEnd, TwoHundredRestartsUnderTrafficOfFourClients) {
  MiniNet net({.settings = usual_timers()});
  const uint32_t server = net.add(true);
  for (int i = 0; i < 4; ++i) net.connect(net.add(false), server);
  net.run_for(milliseconds(10));
  for (int round = 1; round <= 200; ++round) {
    net.start(server);
    const auto all_know = [&] {
      for (uint32_t c = 1; c <= 4; ++c) {
        if (net.count(c, ConnectionEventKind::kLost) != static_cast<size_t>(round)) return false;
      }
      return true;
    };
    ASSERT_TRUE(net.run_until(all_know, seconds(3))) << round;
    for (uint32_t c = 1; c <= 4; ++c) {
      EXPECT_EQ(net.node(c).events.back().status, Status::kPeerGone);
      net.connect(c, server);
    }
    const auto all_back = [&] {
      for (uint32_t c = 1; c <= 4; ++c) {
        if (net.count(c, ConnectionEventKind::kConnected) != static_cast<size_t>(round) + 1) {
          return false;
        }
      }
      return true;
    };
    ASSERT_TRUE(net.run_until(all_back, seconds(1))) << round;
  }
}

TEST(LifecycleEnd, AShortStopHurtsNobody) {
  for (const bool busy : {false, true}) {
    Duo d;
    d.net.run_for(seconds(1));
    if (busy) d.write(1, 50 << 20);
    d.net.run_for(microseconds(500));
    d.net.node(d.b).frozen = true;
    d.net.run_for(milliseconds(1500));
    d.net.thaw(d.b);
    d.net.run_for(seconds(3));
    EXPECT_EQ(d.net.count(d.a, ConnectionEventKind::kLost), 0u) << busy;
    EXPECT_EQ(d.net.count(d.b, ConnectionEventKind::kLost), 0u) << busy;
    if (busy) {
      ASSERT_EQ(d.net.node(d.a).completions.size(), 1u);
      EXPECT_EQ(d.net.node(d.a).completions[0].status, Status::kOk);
    }
  }
}

TEST(LifecycleEnd, TimeInWhichWeDidNotRunIsNotThePeersSilence) {
  MR_COVERS("MR-LOSS-053");
  WirePeer p;
  ASSERT_TRUE(p.be_connected());
  p.post(p.request(Operation::kWrite, 1, 100));
  p.poll();
  p.now = p.now + seconds(60);  // stopped; the peer's answers wait in the socket
  p.engine().on_deadline(p.now);
  EXPECT_TRUE(p.events().empty());
  const auto sent = p.run(milliseconds(100));
  EXPECT_FALSE(sent.empty());
  EXPECT_TRUE(p.events().empty());
  p.run(seconds(3));
  EXPECT_EQ(p.events().size(), 1u);  // but silence while we run is
}

// ---- Hints are hints --------------------------------------------------------------------------

TEST(LifecycleEnd, HintsWithoutEndKillNobodyWhoAnswers) {
  MR_COVERS("MR-HEALTH-014");
  MR_COVERS("MR-CONN-022");
  Duo d;
  std::vector<uint32_t> last;
  d.net.on_packet = [&](uint32_t from, uint32_t, const ByteVector& bytes) {
    if (from == d.a && bytes.size() >= 12) {
      last = {wire::load32(bytes.data() + 4), wire::load32(bytes.data() + 8)};
    }
  };
  d.write(1, 20 << 20);
  for (int i = 0; i < 3000; ++i) {
    d.net.run_for(milliseconds(1));
    ASSERT_EQ(last.size(), 2u);
    wire::UnknownConnectionPacket u{last[0], last[1]};
    d.net.send_raw(d.a, d.net.node(d.b).address, WirePeer::bytes_of(u));
    d.net[d.a].on_network_hint(d.net.now, d.handle, 0, NetworkHint::kPortUnreachable, 0);
    d.net[d.a].on_network_hint(d.net.now, d.handle, 1, NetworkHint::kHostUnreachable, 0);
  }
  EXPECT_EQ(d.net.count(d.a, ConnectionEventKind::kLost), 0u);
  ASSERT_EQ(d.net.node(d.a).completions.size(), 1u);
  EXPECT_EQ(d.net.node(d.a).completions[0].status, Status::kOk);
}

TEST(LifecycleEnd, AHintAloneIsNoVerdictWithoutUnansweredProbes) {
  MR_COVERS("MR-HEALTH-014");
  WirePeer p;
  ASSERT_TRUE(p.be_connected());
  p.poll();
  p.engine().on_network_hint(p.now, p.id(), 0, NetworkHint::kPortUnreachable, 0);
  p.poll();
  // The engine is called again only after the shortened wait: nobody was asked yet.
  p.now = p.now + milliseconds(50);
  p.engine().on_deadline(p.now);
  EXPECT_TRUE(p.events().empty());
  EXPECT_FALSE(WirePeer::only<wire::ProbePacket>(p.poll()).empty());
  p.run(milliseconds(200));
  const auto events = p.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status, Status::kPeerGone);
}

TEST(LifecycleEnd, WhatTheNetworkSaidIsTheCauseWhenSilenceDecides) {
  MR_COVERS("MR-LOSS-052");
  WirePeer p;
  ASSERT_TRUE(p.be_connected());
  p.post(p.request(Operation::kWrite, 1, 100));
  p.poll();
  p.run(milliseconds(10));
  p.engine().on_network_hint(p.now, p.id(), 0, NetworkHint::kHostUnreachable, 0);
  p.run(milliseconds(700));  // pair settings: death after 0.5 s
  const auto events = p.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ConnectionEventKind::kLost);
  EXPECT_EQ(events[0].status, Status::kUnreachable);
}

// ---- Answers tell nothing -----------------------------------------------------------------------

TEST(LifecycleEnd, AStrangerGetsTheSameAnswerForIdsInUseAndOthers) {
  MR_COVERS("MR-CONN-021");
  WirePeer p;
  ASSERT_TRUE(p.open());
  SocketAddress stranger = plane_address(0, 9, 4000);
  stranger.bytes[0] = 99;
  const auto answer_to = [&](ByteVector bytes, bool in_use) {
    p.now = p.now + milliseconds(20);
    if (!in_use) bytes[7] ^= std::byte{1};
    const engine::RxPacket rx{bytes, Ecn::kNotEct, 0, stranger};
    engine::Placement placement;
    EXPECT_EQ(p.engine().on_packets(p.now, {&rx, 1}, {&placement, 1}), 0u);
    const auto sent = p.poll();
    EXPECT_EQ(sent.size(), 1u);
    return !sent.empty() && sent[0].type() == wire::PacketType::kUnknownConnection &&
           sent[0].to == stranger;
  };
  ByteVector far = p.write(0, 0, 64);
  far[8] ^= std::byte{0x40};  // a path sequence out of range
  EXPECT_TRUE(answer_to(far, true));
  EXPECT_TRUE(answer_to(far, false));
  ByteVector broken = p.write(0, 0, 64);
  broken[22] = std::byte{0xEE};  // no such opcode
  EXPECT_TRUE(answer_to(broken, true));
  EXPECT_TRUE(answer_to(broken, false));
  // To the peer itself a dropped packet is no reason to doubt the connection.
  p.now = p.now + milliseconds(20);
  p.give(far);
  EXPECT_TRUE(WirePeer::only<wire::UnknownConnectionPacket>(p.poll()).empty());
}

TEST(LifecycleEnd, AProbeThatNamesACpsnFarAwayIsDropped) {
  MR_COVERS("MR-CPSN-004");
  WirePeer p;
  ASSERT_TRUE(p.open());
  wire::ProbePacket probe;
  probe.s = p.next();
  probe.s.cpsn = WirePeer::kStartCpsn + 0x10'0000;
  const uint64_t before = p.engine().state_hash();
  p.give(probe);
  EXPECT_EQ(p.dropped(DropReason::kCpsnWindow), 1u);
  EXPECT_EQ(p.engine().state_hash(), before);
}

// ---- Close and abort --------------------------------------------------------------------------

TEST(LifecycleEnd, CloseReachesThePeerUnderLoss) {
  MR_COVERS("MR-CONN-030");
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Duo d(seed, 20);
    d.net[d.a].close(d.net.now, d.handle, wire::close_code::kNormal);
    if (seed % 2 == 0) {  // both at once
      d.net[d.b].close(d.net.now, d.net.node(d.b).events[0].connection, wire::close_code::kNormal);
    }
    EXPECT_TRUE(d.net.run_until(
        [&] {
          return d.net.count(d.a, ConnectionEventKind::kClosed) == 1 &&
                 d.net.count(d.b, ConnectionEventKind::kClosed) == 1;
        },
        seconds(3)))
        << seed;
    d.net.run_for(seconds(1));
    engine::ConnectionStatus status;
    EXPECT_FALSE(d.net[d.a].connection_status(d.handle, status)) << seed;
  }
}

TEST(LifecycleEnd, AnAbortIsNoCloseAndItsCodeArrives) {
  MR_COVERS("MR-CONN-030");
  Duo d;
  engine::ReceiveRequest r;
  std::byte buffer[64];
  r.id = 5;
  r.connection = d.net.node(d.b).events[0].connection;
  r.buffer = buffer;
  r.length = sizeof buffer;
  Status status = Status::kOk;
  d.net[d.b].post_receives(d.net.now, {&r, 1}, status);
  ASSERT_EQ(status, Status::kOk);
  d.net[d.a].close(d.net.now, d.handle, wire::close_code::kApplication | 4711);
  d.net.run_for(milliseconds(20));
  ASSERT_EQ(d.net.node(d.b).events.size(), 2u);
  const auto& e = d.net.node(d.b).events[1];
  EXPECT_EQ(e.kind, ConnectionEventKind::kClosed);
  EXPECT_EQ(e.status, Status::kPeerFailed);
  EXPECT_EQ(e.detail, wire::close_code::kApplication | 4711u);
  ASSERT_EQ(d.net.node(d.b).completions.size(), 1u);
  EXPECT_EQ(d.net.node(d.b).completions[0].status, Status::kPeerFailed);
}

TEST(LifecycleEnd, APeerThatDiesDuringCloseDoesNotHoldItUp) {
  MR_COVERS("MR-CONN-030");
  Duo d;
  d.net.node(d.b).up = d.net.node(d.b).rejects = false;
  d.net[d.a].close(d.net.now, d.handle, wire::close_code::kNormal);
  EXPECT_TRUE(d.net.run_until([&] { return d.net.count(d.a, ConnectionEventKind::kClosed) == 1; },
                              seconds(3)));
  EXPECT_EQ(d.net.node(d.a).events.back().status, Status::kUnresponsive);
  EXPECT_EQ(d.net.count(d.a, ConnectionEventKind::kLost), 0u);
}

TEST(LifecycleEnd, TimeWaitTakesNothingNew) {
  MR_COVERS("MR-CONN-031");
  WirePeer p;
  ASSERT_TRUE(p.open());
  const ByteVector data = p.write(0, 0, 64);
  EXPECT_TRUE(p.give(data));
  p.give(p.control(wire::ControlOpcode::kClose, 1));
  p.ack();
  const uint64_t before = p.engine().state_hash();
  EXPECT_FALSE(p.give(p.write(2, 1, 64)));
  wire::ControlPacket open = p.control(wire::ControlOpcode::kPathOpen, 3);
  open.path = 5;
  open.start = 99;
  p.give(open);
  wire::VoidPacket v;
  v.s = p.next();
  v.s.cpsn = WirePeer::kStartCpsn + 4;
  p.give(v);
  wire::ProbePacket probe;
  probe.s = p.next();
  probe.s.cpsn = WirePeer::kStartCpsn + 1;
  p.give(probe);
  EXPECT_EQ(p.dropped(DropReason::kNoState), 4u);
  EXPECT_EQ(p.engine().state_hash(), before);
  EXPECT_TRUE(p.poll().empty());
}

// ---- Addresses that come and go -----------------------------------------------------------------

TEST(LifecycleEnd, APlaneWhoseAddressChangesOpensItsPathsAnew) {
  MR_COVERS("MR-CONN-026");
  MR_COVERS("MR-CONN-027");
  MR_COVERS("MR-PATH-045");
  PairConfig c;
  c.network.planes = 2;
  c.settings.paths_per_plane = 2;
  c.settings.max_active_paths = 64;
  c.real_memory = false;
  c.region_bytes = 64 << 20;
  Pair pair(c);
  ASSERT_TRUE(pair.connect());
  const auto good = [&](int side) {
    const auto paths = pair.paths(side);
    return std::count_if(paths.begin(), paths.end(),
                         [](const auto& p) { return p.state == PathState::kGood && p.pmtu > 0; });
  };
  ASSERT_EQ(good(0), 4);
  for (uint32_t round = 0; round < 20; ++round) {
    ASSERT_EQ(pair.write(0, 0, round, 0, 2 << 20), Status::kOk);
    pair.run_for(microseconds(100));
    // The receiver moves in one round, the sender in the next.
    SocketAddress moved = plane_address(1, 0, 28672);
    moved.bytes[3] = static_cast<uint8_t>(100 + round);
    const int side = static_cast<int>(round % 2);
    pair.network().move(1, side, moved);
    pair.engine(side).set_local_address(pair.now(), 1, moved);
    pair.poll(side);
    EXPECT_EQ(good(side), 2) << round;
    ASSERT_TRUE(pair.run_until(
        [&] { return pair.counts(0).completions == round + 1 && good(0) == 4 && good(1) == 4; },
        milliseconds(200)))
        << round << ": " << pair.counts(0).completions << " done, " << good(0) << " and " << good(1)
        << " good";
  }
  EXPECT_EQ(pair.counts(0).failed, 0u);
  EXPECT_EQ(pair.counts(1).placed_bytes, uint64_t{20} * (2 << 20));
  // And one that vanishes: its paths are dead, the data travels on the other.
  pair.engine(1).set_local_address(pair.now(), 1, {});
  pair.poll(1);
  ASSERT_EQ(pair.write(0, 0, 99, 0, 2 << 20), Status::kOk);
  EXPECT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 21; }, milliseconds(200)));
  EXPECT_FALSE(pair.lost(0));
}

/// The ACK of everything an engine's path has sent so far, whose start is not the announced one.
wire::AckPacket all_of(WirePeer& p, uint8_t path, uint32_t base, uint32_t counter) {
  wire::AckPacket a = p.acknowledge(path, 0);
  a.f.base = base;
  a.f.counter = counter;
  return a;
}

TEST(LifecycleEnd, AnAddedAddressGetsNothingButPaddedProbesUntilItAnswered) {
  MR_COVERS("MR-CONN-020");
  MR_COVERS("MR-CONN-027");
  WirePeer p(WirePeer::small_settings(), 2);
  ASSERT_TRUE(p.be_connected());
  uint32_t counter = 100;
  SocketAddress moved = plane_address(1, 1, 30'000);
  moved.bytes[3] = 200;
  std::vector<uint8_t> kinds_there;
  // Answers everything; a path that PATH_OPEN announced is answered from then on.
  std::map<uint8_t, uint32_t> top;
  std::vector<wire::ControlPacket> opens;
  const auto answer = [&](const std::vector<WirePeer::Sent>& sent, bool silent_there) {
    for (const auto& s : sent) {
      if (s.to == moved) kinds_there.push_back(static_cast<uint8_t>(s.type()));
      if (s.type() > wire::PacketType::kVoid) continue;
      if (s.to == moved && silent_there) continue;
      const auto path = std::to_integer<uint8_t>(s.bytes[2]);
      top[path] = std::max(top[path], s.word(2) + 1);
      for (const auto& c : WirePeer::only<wire::ControlPacket>({s})) {
        if (c.opcode == wire::ControlOpcode::kPathOpen) opens.push_back(c);
      }
    }
    for (const auto& [path, base] : top) p.give(all_of(p, path, base, ++counter));
    top.clear();
  };
  for (int i = 0; i < 30; ++i) answer(p.run(microseconds(50)), false);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_EQ(opens[0].generation, 1u);
  opens.clear();
  wire::ControlPacket add = p.control(wire::ControlOpcode::kAddAddr, 0);
  add.generation = 1;
  add.plane = 1;
  add.address[0] = moved;
  p.give(add);
  p.post(p.request(Operation::kWrite, 1, 20'000));
  for (int i = 0; i < 10; ++i) answer(p.run(microseconds(50)), true);
  ASSERT_EQ(opens.size(), 2u);
  for (const auto& o : opens) {
    EXPECT_EQ(o.generation, 2u);
    EXPECT_EQ(o.address[1], moved);
    EXPECT_EQ(o.plane, 1u);
  }
  ASSERT_FALSE(kinds_there.empty());
  for (const uint8_t k : kinds_there) EXPECT_EQ(k, static_cast<uint8_t>(wire::PacketType::kProbe));
  // The same generation again, with another address: nothing.
  opens.clear();
  add.s = p.next();
  add.s.cpsn = WirePeer::kStartCpsn + 1;
  add.address[0].bytes[3] = 201;
  p.give(add);
  for (int i = 0; i < 10; ++i) answer(p.run(microseconds(50)), false);
  EXPECT_TRUE(opens.empty());
}

TEST(LifecycleEnd, AnAddressIsNotTakenWithoutAWayAround) {
  MR_COVERS("MR-CONN-028");
  WirePeer p;
  ASSERT_TRUE(p.open());
  wire::ControlPacket add = p.control(wire::ControlOpcode::kAddAddr, 0);
  add.generation = 1;
  add.address[0] = plane_address(0, 7, 30'000);
  p.give(add);
  p.post(p.request(Operation::kWrite, 1, 5'000));
  for (const auto& s : p.run(milliseconds(5))) EXPECT_EQ(s.to.bytes, plane_address(0, 1, 0).bytes);
}

TEST(LifecycleEnd, AfterAMinuteOfIdlenessALostPacketIsMissedAsSoonAsEver) {
  PairConfig c;
  c.network.planes = 1;
  c.real_memory = false;
  c.region_bytes = 1 << 20;
  Pair pair(c);
  ASSERT_TRUE(pair.connect());
  pair.run_for(seconds(60));
  ASSERT_FALSE(pair.lost(0));
  Impairment dark;
  dark.kind = ImpairmentKind::kDark;
  dark.plane = -1;
  dark.begin = pair.now();
  dark.end = pair.now() + microseconds(20);
  pair.network().add(dark);
  ASSERT_EQ(pair.write(0, 0, 1, 0, 1000), Status::kOk);
  EXPECT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, milliseconds(1)));
  EXPECT_FALSE(pair.stuck());
}

}  // namespace
}  // namespace metaroce::pair
