// What an engine sends, packet by packet (spec/04-delivery.md, spec/05-loss.md).
#include <gtest/gtest.h>

#include <map>

#include "base/covers.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using engine::ConnectionEventKind;
using engine::Operation;
using engine::PathState;
using wire::PacketType;
using wire::Refusal;
using Sent = WirePeer::Sent;

struct Connected : WirePeer {
  explicit Connected(Settings s = small_settings(), uint32_t planes = 1) : WirePeer(s, planes) {
    EXPECT_TRUE(be_connected());
  }
  std::vector<wire::DataPacket> data(Duration d = {}) { return only<wire::DataPacket>(run(d)); }
  /// Acknowledges everything up to and including this packet.
  void accept_through(const wire::Sequenced& s) {
    give(acknowledge(s.path, s.path_seq + 1 - engine_start(s.path)));
  }
  wire::AckPacket refuse(const wire::DataPacket& d, Refusal reason, uint8_t delay = 0) {
    const uint32_t offset = d.s.path_seq - engine_start(d.s.path);
    wire::AckPacket a = acknowledge(d.s.path, offset, {offset});
    a.is_long = true;
    a.refused.set(0);
    a.f.reason = reason;
    a.f.refusal_stream = d.stream;
    a.f.refusal_delay = delay;
    return a;
  }
  engine::ConnectionStatus status() const {
    engine::ConnectionStatus s;
    const_cast<Connected*>(this)->engine().connection_status(id(), s);
    return s;
  }
  void credit(uint16_t stream, uint16_t limit) {
    wire::AckPacket a = acknowledge(0, 0);
    a.f.stream = stream;
    a.f.limit = limit;
    give(a);
  }
};

Settings one_path() {
  Settings s = WirePeer::small_settings();
  s.paths_per_plane = 1;
  return s;
}

TEST(RulesSend, CpsnsAreConsecutiveAcrossPathsAndStreams) {
  MR_COVERS("MR-CPSN-001");
  MR_COVERS("MR-PATH-001");
  Connected p;
  for (uint64_t i = 0; i < 6; ++i) p.post(p.request(Operation::kWrite, i, 5000, i % 3 * 2));
  std::map<uint8_t, uint32_t> next;
  uint32_t cpsn = p.engine_hello.start_cpsn;
  const auto data = p.data();
  ASSERT_GT(data.size(), 10u);
  for (const auto& d : data) {
    EXPECT_EQ(d.s.cpsn, cpsn++);
    const auto first = next.try_emplace(d.s.path, p.engine_start(d.s.path)).first;
    EXPECT_EQ(d.s.path_seq, first->second++);
  }
  EXPECT_EQ(next.size(), 2u);
}

TEST(RulesSend, DataIsEctAndStampedAndGoesToTheServicePort) {
  MR_COVERS("MR-ADDR-008");
  MR_COVERS("MR-ADDR-002");
  MR_COVERS("MR-WIRE-021");
  MR_COVERS("MR-ADDR-001");
  Connected p;
  p.post(p.request(Operation::kWrite, 1, 3000));
  int seen = 0;
  for (const Sent& s : p.poll()) {
    if (s.type() != PacketType::kData) continue;
    ++seen;
    EXPECT_EQ(s.ecn, Ecn::kEct0);
    EXPECT_EQ(s.to, plane_address(0, 1, wire::kBasePort));
    EXPECT_NE(s.from.port, wire::kBasePort);
    EXPECT_EQ(s.word(3) >> 8, wire::stamp_of(p.now));
  }
  EXPECT_GT(seen, 1);
}

TEST(RulesSend, TheCutIsTheLargestMultipleOfSixteenThatFits) {
  MR_COVERS("MR-PMTU-001");
  MR_COVERS("MR-PMTU-002");
  MR_COVERS("MR-WIRE-029");
  MR_COVERS("MR-WIRE-028");
  Connected p;
  p.post(p.request(Operation::kWrite, 1, 3000));
  const auto data = p.data();
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data[0].payload_length, (1280u - 20 - 8 - 52 - 4) / 16 * 16);
  EXPECT_EQ(data[2].offset + data[2].payload_length, 3000u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(data[i].offset, i * data[0].payload_length);
    EXPECT_EQ(data[i].first(), i == 0);
    EXPECT_EQ(data[i].last(), i == 2);
    EXPECT_EQ(data[i].address, 0x5000u + data[i].offset);
  }
}

TEST(RulesSend, ARepairIsTheSamePacketWithAFreshSequence) {
  MR_COVERS("MR-PATH-002");
  MR_COVERS("MR-LOSS-020");
  MR_COVERS("MR-WIRE-032");
  Connected p(one_path());
  p.post(p.request(Operation::kWrite, 1, 5000));
  const auto data = p.data();
  ASSERT_EQ(data.size(), 5u);
  EXPECT_EQ(data[1].s.flags & wire::flag::kRetransmission, 0);
  p.give(p.acknowledge(0, 1, {2}));  // 1 is missing
  const auto repair = p.data();
  ASSERT_EQ(repair.size(), 1u);
  EXPECT_NE(repair[0].s.flags & wire::flag::kRetransmission, 0);
  EXPECT_EQ(repair[0].s.path_seq, p.engine_start(0) + 5);
  EXPECT_EQ(repair[0].s.cpsn, data[1].s.cpsn);
  EXPECT_EQ(repair[0].offset, data[1].offset);
  EXPECT_EQ(repair[0].payload_length, data[1].payload_length);
  EXPECT_EQ(repair[0].msn, data[1].msn);
  EXPECT_EQ(repair[0].s.floor, 4);  // the lost one is unresolved until an RTT after this
}

TEST(RulesSend, AMessageIsCompleteWhenAllItsPacketsAreAccepted) {
  MR_COVERS("MR-CPSN-016");
  MR_COVERS("MR-CPSN-017");
  Connected p(one_path());
  p.post(p.request(Operation::kWrite, 1, 3000));
  ASSERT_EQ(p.data().size(), 3u);
  auto ack = p.acknowledge(0, 0, {0, 2});
  ack.f.decided_through = p.engine_hello.start_cpsn + 3;
  p.give(ack);
  EXPECT_TRUE(p.completions().empty());
  p.give(p.acknowledge(0, 3));
  const auto done = p.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, Status::kOk);
}

TEST(RulesSend, AFateLearnedOnOnePathDropsTheQueuedCopies) {
  MR_COVERS("MR-CPSN-034");
  Connected p(one_path());
  p.post(p.request(Operation::kWrite, 1, 3000));
  ASSERT_EQ(p.data().size(), 3u);
  // Held lost and queued, then shown after all before anything could be sent.
  p.give(p.acknowledge(0, 1, {2}));
  p.give(p.acknowledge(0, 3));
  EXPECT_TRUE(p.data(microseconds(100)).empty());
  EXPECT_EQ(p.completions().size(), 1u);
}

TEST(RulesSend, ARefusalThatMayBeRetriedTakesAFreshCpsnAfterTheDelay) {
  MR_COVERS("MR-CPSN-015");
  MR_COVERS("MR-MSG-029");
  Connected p(one_path());
  p.post(p.request(Operation::kWrite, 1, 500));
  const auto first = p.data();
  ASSERT_EQ(first.size(), 1u);
  const Duration delay = microseconds(300);
  p.give(p.refuse(first[0], Refusal::kNoOpenMessage, wire::encode_delay(delay)));
  EXPECT_TRUE(p.data(microseconds(250)).empty());
  const auto second = p.data(microseconds(100));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].s.cpsn, first[0].s.cpsn + 1);
  EXPECT_EQ(second[0].msn, first[0].msn);
  EXPECT_EQ(second[0].s.flags & wire::flag::kRetransmission, 0);
  EXPECT_TRUE(p.data(microseconds(20)).empty());  // one successor
  p.accept_through(second[0].s);
  EXPECT_EQ(p.completions().size(), 1u);
}

TEST(RulesSend, AFatalReasonEndsOnlyTheOperationItNames) {
  MR_COVERS("MR-ACK-014");
  MR_COVERS("MR-MSG-004");
  Connected p(one_path());
  p.post(p.request(Operation::kWrite, 1, 500, 0));
  p.post(p.request(Operation::kWrite, 2, 500, 2));
  const auto data = p.data();
  ASSERT_EQ(data.size(), 2u);
  auto ack = p.acknowledge(0, 0, {0, 1});
  ack.is_long = true;
  ack.refused = ack.map;
  ack.f.reason = Refusal::kKey;
  ack.f.refusal_stream = 2;
  p.give(ack);
  const auto done = p.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, 2u);
  EXPECT_EQ(done[0].status, Status::kAccess);
  // The other one has no reason: it is tried once more on a fresh CPSN.
  const auto again = p.data(milliseconds(1));
  ASSERT_GE(again.size(), 1u);
  EXPECT_EQ(again[0].stream, 0);
  EXPECT_GT(again[0].s.cpsn - data[1].s.cpsn, 0u);
  EXPECT_TRUE(p.events().empty());  // no refusal ends a connection
}

TEST(RulesSend, AnUnknownReasonIsReadAsUnknown) {
  MR_COVERS("MR-WIRE-060");
  Connected p(one_path());
  p.post(p.request(Operation::kWrite, 1, 500));
  const auto first = p.data();
  p.give(p.refuse(first[0], static_cast<Refusal>(99)));
  const auto again = p.data(milliseconds(1));
  ASSERT_GE(again.size(), 1u);
  EXPECT_EQ(again[0].s.cpsn, first[0].s.cpsn + 1);
  EXPECT_TRUE(p.completions().empty());
}

TEST(RulesSend, ReceivesAreOnlyUsedWithCredit) {
  MR_COVERS("MR-MSG-021");
  MR_COVERS("MR-ACK-031");
  Connected p(one_path());
  for (uint64_t i = 0; i < 4; ++i) p.post(p.request(Operation::kSend, i, 100));
  EXPECT_TRUE(p.data().empty());
  p.credit(0, 2);
  EXPECT_EQ(p.data().size(), 2u);
  p.credit(0, 0xFFFE);  // below the known one in serial arithmetic
  EXPECT_TRUE(p.data().empty());
  p.credit(0, 3);
  EXPECT_EQ(p.data().size(), 1u);
}

TEST(RulesSend, ALimitFromAFarOlderAckSaysNothing) {
  MR_COVERS("MR-ACK-032");
  Connected p(one_path());
  for (uint64_t i = 0; i < 4; ++i) p.post(p.request(Operation::kSend, i, 100));
  p.data();
  auto ack = p.acknowledge(0, 0);
  ack.f.counter = 10'000;
  ack.f.limit = 1;
  p.give(ack);
  EXPECT_EQ(p.data().size(), 1u);
  ack.f.counter = 10'000 - 4097;
  ack.f.limit = 4;
  p.give(ack);
  EXPECT_TRUE(p.data().empty());
  ack.f.counter = 10'000 - 4096;
  p.give(ack);
  EXPECT_EQ(p.data().size(), 3u);
}

TEST(RulesSend, WithoutCreditTheStreamIsAskedForEverMoreSeldom) {
  MR_COVERS("MR-LOSS-033");
  Connected p(one_path());
  p.post(p.request(Operation::kSend, 1, 100, 6));
  std::vector<Time> at;
  for (int step = 0; step < 5000; ++step) {
    for (const Sent& s : p.run(microseconds(20))) {
      if (s.type() != PacketType::kProbe) continue;
      const auto probe = *wire::decode_probe(s.bytes);
      p.accept_through(probe.s);
      if (probe.stream == 6) at.push_back(s.at);
    }
  }
  ASSERT_GT(at.size(), 8u);
  for (size_t i = 2; i < at.size(); ++i) {
    EXPECT_GE((at[i] - at[i - 1]).ns + 1000, std::min<int64_t>((at[i - 1] - at[i - 2]).ns * 2,
                                                               10'000'000)) << i;
    EXPECT_LE(at[i] - at[i - 1], milliseconds(10)) << i;
  }
}

TEST(RulesSend, InFlightIsBoundedByTheWindowAndThePeersBuffer) {
  MR_COVERS("MR-CPSN-010");
  MR_COVERS("MR-WIRE-061");
  for (const uint32_t peer : {40u, 100'000u}) {
    Settings s = WirePeer::small_settings();
    s.cpsn_window = 1024;
    s.paths_per_plane = 8;
    s.first_flight = 4 << 20;
    WirePeer p(s);
    p.hello.paths = 8;
    p.hello.params.cpsn_window_log2 = 10;
    p.hello.params.inflight_packets = peer;
    ASSERT_TRUE(p.be_connected());
    auto r = p.request(Operation::kWrite, 1, 4 << 20);
    r.local = nullptr;
    ASSERT_EQ(p.post(r), Status::kOk);
    const size_t sent = WirePeer::only<wire::DataPacket>(p.poll()).size();
    EXPECT_LE(sent, std::min(1024u / 4, peer));
    EXPECT_GE(sent, std::min(1024u / 4, peer) - 16);
  }
}

TEST(RulesSend, TheFirstFlightIsBounded) {
  MR_COVERS("MR-CC-008");
  MR_COVERS("MR-CC-001");
  Connected p;
  auto r = p.request(Operation::kWrite, 1, 4 << 20);
  r.local = nullptr;
  ASSERT_EQ(p.post(r), Status::kOk);
  uint64_t bytes = 0;
  for (const auto& d : p.data()) bytes += d.payload_length;
  EXPECT_GT(bytes, 30'000u);
  EXPECT_LE(bytes, 65'536u);
}

TEST(RulesSend, AnotherPlaneIsOpenedByControlAndValidatedBeforeData) {
  MR_COVERS("MR-PATH-040");
  MR_COVERS("MR-PATH-042");
  MR_COVERS("MR-CONN-020");
  Connected p(one_path(), 2);
  auto sent = p.poll();
  const auto controls = WirePeer::only<wire::ControlPacket>(sent);
  ASSERT_EQ(controls.size(), 1u);
  EXPECT_EQ(controls[0].opcode, wire::ControlOpcode::kPathOpen);
  EXPECT_EQ(controls[0].path, 1);
  EXPECT_EQ(controls[0].plane, 1);
  EXPECT_EQ(controls[0].address[1], plane_address(1, 1, wire::kBasePort));
  for (const Sent& s : p.run(microseconds(20))) EXPECT_EQ(s.plane, 0);
  p.accept_through(controls[0].s);
  p.post(p.request(Operation::kWrite, 1, 20'000));
  wire::ProbePacket probe;
  for (const Sent& s : p.run(microseconds(1))) {
    if (s.plane == 0) continue;
    ASSERT_EQ(s.type(), PacketType::kProbe);  // nothing else goes to an unproven address
    EXPECT_GE(s.bytes.size() + wire::kCrcBytes, wire::kMinHello);
    probe = *wire::decode_probe(s.bytes);
  }
  ASSERT_EQ(probe.s.path_seq, controls[0].start);
  auto ack = p.acknowledge(1, 0);
  ack.f.base = controls[0].start + 1;
  p.give(ack);
  bool used = false;
  p.post(p.request(Operation::kWrite, 2, 60'000));
  for (const Sent& s : p.run(microseconds(5))) {
    used |= s.plane == 1 && s.type() == PacketType::kData;
  }
  EXPECT_TRUE(used);
}

/// Answers the PATH_OPENs and the padded probes of the second plane.
void open_second_plane(WirePeer& q) {
  for (const auto& c : WirePeer::only<wire::ControlPacket>(q.poll())) {
    q.give(q.acknowledge(c.s.path, c.s.path_seq + 1 - q.engine_start(c.s.path)));
    for (const auto& probe : WirePeer::only<wire::ProbePacket>(q.run(microseconds(1)))) {
      if (probe.s.path != c.path) continue;
      auto ack = q.acknowledge(c.path, 0);
      ack.f.base = probe.s.path_seq + 1;
      q.give(ack);
    }
  }
}

TEST(RulesSend, ALostPlaneIsGivenUpAtOnceAndThePeerIsTold) {
  MR_COVERS("MR-HEALTH-020");
  MR_COVERS("MR-HEALTH-021");
  Connected p;
  WirePeer q(WirePeer::small_settings(), 2);
  ASSERT_TRUE(q.be_connected());
  open_second_plane(q);
  q.poll();
  q.engine().on_plane_state(q.now, 1, false);
  std::vector<engine::PathStatus> paths(8);
  paths.resize(q.engine().path_status(q.id(), paths));
  ASSERT_EQ(paths.size(), 4u);
  for (const auto& s : paths) EXPECT_EQ(s.state == PathState::kDead, s.plane == 1) << int{s.id};
  const auto told = WirePeer::only<wire::ControlPacket>(q.poll());
  ASSERT_GE(told.size(), 1u);
  EXPECT_EQ(told[0].opcode, wire::ControlOpcode::kPortStatus);
  EXPECT_EQ(told[0].value, 0x0001u);
  const uint32_t generation = told[0].generation;
  q.engine().on_plane_state(q.now, 1, true);
  const auto again = WirePeer::only<wire::ControlPacket>(q.poll());
  ASSERT_GE(again.size(), 1u);
  EXPECT_EQ(again[0].value, 0x0003u);
  EXPECT_EQ(again[0].generation, generation + 1);
}

TEST(RulesSend, PortStatusOfThePeerTakesPlanesAwayAndOldOnesDoNot) {
  MR_COVERS("MR-HEALTH-022");
  WirePeer p(WirePeer::small_settings(), 2);
  ASSERT_TRUE(p.be_connected());
  const auto state_of_plane_one = [&] {
    std::vector<engine::PathStatus> paths(8);
    paths.resize(p.engine().path_status(p.id(), paths));
    return paths.back().state;
  };
  open_second_plane(p);
  p.poll();
  auto status = p.control(wire::ControlOpcode::kPortStatus, 0);
  status.generation = 5;
  status.value = 0x0001;
  p.give(status);
  EXPECT_EQ(state_of_plane_one(), PathState::kDead);
  EXPECT_FALSE(p.ack().is_long);
  p.run(microseconds(10));
  const auto probes_on = [&](uint8_t plane) {
    size_t n = 0;
    for (const Sent& s : p.run(nanoseconds(1))) {
      n += s.plane == plane && s.type() == PacketType::kProbe;
    }
    return n;
  };
  status = p.control(wire::ControlOpcode::kPortStatus, 1);
  status.generation = 4;  // older: answered as accepted, and ignored
  status.value = 0x0003;
  p.run(milliseconds(30));
  p.give(status);
  EXPECT_EQ(probes_on(1), 0u);
  status = p.control(wire::ControlOpcode::kPortStatus, 2);
  status.generation = 6;
  status.value = 0x0003;
  p.give(status);
  EXPECT_GE(probes_on(1), 1u);  // alive again: probed at once
}

TEST(RulesSend, WithoutAnyAnswerTheConnectionEnds) {
  MR_COVERS("MR-LOSS-051");
  Settings s = WirePeer::small_settings();
  s.death_timeout = 50'000'000;
  Connected p(s);
  p.post(p.request(Operation::kWrite, 1, 3000));
  p.post_receive(0, 9, 100);
  p.run(milliseconds(45));
  EXPECT_TRUE(p.events().empty());
  p.run(milliseconds(10));
  const auto events = p.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ConnectionEventKind::kLost);
  EXPECT_EQ(events[0].status, Status::kUnresponsive);
  const auto done = p.completions();
  ASSERT_EQ(done.size(), 2u);
  for (const auto& c : done) EXPECT_EQ(c.status, Status::kUnresponsive);
}

TEST(RulesSend, AnIdleConnectionIsKeptAlive) {
  Settings s = WirePeer::small_settings();
  s.keep_alive = 5'000'000;
  Connected p(s);
  p.poll();
  EXPECT_TRUE(WirePeer::only<wire::ProbePacket>(p.run(milliseconds(4))).empty());
  const auto probes = WirePeer::only<wire::ProbePacket>(p.run(milliseconds(2)));
  EXPECT_GE(probes.size(), 1u);
}

TEST(RulesSend, APortChangeRaisesTheEpochAndAsksForAnAck) {
  MR_COVERS("MR-LOSS-003");
  Connected p(one_path());
  p.post(p.request(Operation::kWrite, 1, 100));
  auto data = p.data();
  EXPECT_EQ(data.at(0).s.epoch, 0);
  p.accept_through(data[0].s);
  ASSERT_TRUE(p.engine().change_port(p.now, p.id(), 0, 45'678));
  p.post(p.request(Operation::kWrite, 2, 3000));
  const auto sent = p.poll();
  data = WirePeer::only<wire::DataPacket>(sent);
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data[0].s.epoch, 1);
  EXPECT_NE(data[0].s.flags & wire::flag::kAckRequest, 0);
  EXPECT_EQ(data[1].s.flags & wire::flag::kAckRequest, 0);
  EXPECT_EQ(sent[0].from.port, 45'678);
}

}  // namespace
}  // namespace metaroce::pair
