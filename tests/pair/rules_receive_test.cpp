// What an engine does with the packets of an open connection, packet by packet
// (spec/04-delivery.md, spec/06-ack.md).
#include <gtest/gtest.h>

#include "base/covers.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using wire::DropReason;
using wire::PacketType;
using wire::Refusal;
using Sent = WirePeer::Sent;

constexpr uint32_t kBase = WirePeer::kStartSeq;

struct Opened : WirePeer {
  explicit Opened(Settings s = small_settings(), uint32_t planes = 1) : WirePeer(s, planes) {
    EXPECT_TRUE(open());
  }
};

TEST(RulesReceive, ADecidedCpsnGetsTheSameAnswerAndIsNeverPlacedAgain) {
  MR_COVERS("MR-CPSN-005");
  MR_COVERS("MR-CPSN-007");
  Opened p;
  EXPECT_TRUE(p.give(p.write(0, 0, 64, 0x11)));
  // The same CPSN on the same path, and on the other one, with other bytes.
  EXPECT_FALSE(p.give(p.write(0, 0, 64, 0x22)));
  EXPECT_FALSE(p.give(p.write(0, 0, 64, 0x33, 1)));
  EXPECT_EQ(p.memory()[0], std::byte{0x11});
  EXPECT_EQ(p.placements.size(), 1u);
  EXPECT_EQ(p.ack(0).f.base, kBase + 2);
}

TEST(RulesReceive, ARefusedCpsnStaysRefusedOnEveryPath) {
  MR_COVERS("MR-CPSN-007");
  Opened p;
  wire::DataPacket d = *wire::decode_data(p.write(0, 0, 64));
  d.key ^= 0x5555;
  p.give(WirePeer::with_payload(d, 64, 1));
  const auto first = p.ack(0);
  ASSERT_TRUE(first.is_long);
  EXPECT_TRUE(first.refused.test(0));
  // Now with a right key: the decision does not change.
  EXPECT_FALSE(p.give(p.write(0, 0, 64, 1, 1)));
  const auto other = p.ack(1);
  ASSERT_TRUE(other.is_long);
  EXPECT_TRUE(other.map.test(0));
  EXPECT_TRUE(other.refused.test(0));
  EXPECT_TRUE(p.placements.empty());
}

TEST(RulesReceive, VoidDecidesAnUnseenCpsnAndAnswersForADecidedOne) {
  MR_COVERS("MR-CPSN-020");
  MR_COVERS("MR-CPSN-021");
  Opened p;
  wire::VoidPacket v;
  v.s = p.next();
  v.s.cpsn = WirePeer::kStartCpsn;
  p.give(v);
  auto ack = p.ack();
  ASSERT_TRUE(ack.is_long);
  EXPECT_TRUE(ack.refused.test(0));
  EXPECT_EQ(ack.f.decided_through, WirePeer::kStartCpsn + 1);
  // The packet itself comes late: refused, not placed.
  EXPECT_FALSE(p.give(p.write(0, 0, 64)));
  ack = p.ack();
  EXPECT_TRUE(ack.refused.test(1));
  // VOID of an accepted one: accepted it stays.
  EXPECT_TRUE(p.give(p.write(1, 0, 64)));
  v.s = p.next();
  v.s.cpsn = WirePeer::kStartCpsn + 1;
  p.give(v);
  ack = p.ack();
  EXPECT_TRUE(ack.map.test(3));
  EXPECT_FALSE(ack.refused.test(3));
}

TEST(RulesReceive, CpsnsOutOfRangeAreDroppedUnacknowledged) {
  MR_COVERS("MR-CPSN-004");
  Opened p;
  p.give(p.write(4096, 0, 16));
  p.give(p.write(static_cast<uint32_t>(-4097), 0, 16));
  wire::VoidPacket v;
  v.s = p.next();
  v.s.cpsn = WirePeer::kStartCpsn + 5000;
  p.give(v);
  EXPECT_EQ(p.dropped(DropReason::kCpsnWindow), 3u);
  EXPECT_TRUE(p.run(milliseconds(1)).empty());
  EXPECT_TRUE(p.placements.empty());
}

TEST(RulesReceive, PathSequencesOutOfReachAreDroppedUnacknowledged) {
  MR_COVERS("MR-PATH-024");
  MR_COVERS("MR-PATH-025");
  MR_COVERS("MR-SEC-001");
  Opened p;
  wire::ProbePacket probe;
  probe.s = p.next();
  const auto drops = [&](uint32_t offset, uint8_t floor) {
    const uint64_t before = p.dropped(DropReason::kPathWindow);
    probe.s.path_seq = kBase + offset;
    probe.s.floor = floor;
    p.give(probe);
    return p.dropped(DropReason::kPathWindow) > before;
  };
  EXPECT_TRUE(drops(1024, 0));
  EXPECT_TRUE(drops(static_cast<uint32_t>(-1024), 0));
  EXPECT_TRUE(p.run(milliseconds(1)).empty());
  // Another id: not ours, whatever the sequence is.
  probe.s.connection ^= 0x0001;
  EXPECT_FALSE(drops(1, 0));
  EXPECT_EQ(p.dropped(DropReason::kUnknownConnection), 1u);
  probe.s.connection ^= 0x0001;
  EXPECT_FALSE(drops(1023, 0));
}

TEST(RulesReceive, AnUnopenedPathIsUnknown) {
  Opened p;
  wire::ProbePacket probe;
  probe.s = p.next(7);
  p.give(probe);
  EXPECT_EQ(p.dropped(DropReason::kUnknownPath), 1u);
}

TEST(RulesReceive, ProbesAreAcknowledgedOnTheirPath) {
  MR_COVERS("MR-PATH-027");
  MR_COVERS("MR-ACK-001");
  Opened p;
  wire::ProbePacket probe;
  probe.s = p.next(1);
  p.give(probe);
  const auto acks = WirePeer::only<wire::AckPacket>(p.poll());
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].f.path, 1);
  EXPECT_EQ(acks[0].f.base, kBase + (1u << 24) + 1);
  // A dropped packet sets no bit.
  wire::DataPacket far = *wire::decode_data(p.write(9000, 0, 16));
  p.give(WirePeer::with_payload(far, 16, 0));
  probe.s = p.next(0);
  p.give(probe);
  const auto ack = p.ack(0);
  EXPECT_FALSE(ack.map.test(0));
  EXPECT_TRUE(ack.map.test(1));
}

TEST(RulesReceive, AcksGoToThePathsPeerAtItsServicePort) {
  MR_COVERS("MR-ADDR-005");
  MR_COVERS("MR-ADDR-002");
  MR_COVERS("MR-ADDR-003");
  Opened p(WirePeer::small_settings(), 2);
  for (const uint16_t port : {50'000, 51'000, 60'000}) {  // the port may change at any time
    wire::ProbePacket probe;
    probe.s = p.next();
    p.give(WirePeer::bytes_of(probe), 0, Ecn::kEct0, port);
    const auto sent = p.run(microseconds(10));
    const auto ack = std::find_if(sent.begin(), sent.end(),
                                  [](const Sent& s) { return s.type() == PacketType::kAck; });
    ASSERT_NE(ack, sent.end());
    EXPECT_EQ(ack->to, plane_address(0, 1, wire::kBasePort));
    EXPECT_TRUE(ack->from.same_host(plane_address(0, 0, 0)));
  }
}

TEST(RulesReceive, OneCounterNumbersAllAcks) {
  MR_COVERS("MR-ACK-010");
  Opened p;
  uint32_t last = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    p.give(p.write(i, i, 16, 0, i % 2));
    for (const auto& a : WirePeer::only<wire::AckPacket>(p.run(microseconds(10)))) {
      EXPECT_EQ(a.f.counter, ++last);
    }
  }
  EXPECT_GE(last, 20u);
}

TEST(RulesReceive, NothingIsAcknowledgedBeforeItsPlacementWasHandedOut) {
  MR_COVERS("MR-CPSN-032");
  MR_COVERS("MR-CPSN-030");
  Opened p;
  ASSERT_TRUE(p.give(p.write(0, 0, 64)));  // the placement is an answer of this very call
  ASSERT_EQ(p.placements.size(), 1u);
  EXPECT_EQ(p.placements[0].length, 64u);
  EXPECT_EQ(p.placements[0].payload_begin, 44u);
  EXPECT_EQ(p.ack().f.base, kBase + 1);
}

TEST(RulesReceive, TheAckSpeaksOfTheStreamThatCausedIt) {
  MR_COVERS("MR-ACK-018");
  Opened p;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(p.post_receive(6, i, 256), Status::kOk);
  p.poll();
  wire::DataPacket d;
  d.s = p.next();
  d.s.cpsn = WirePeer::kStartCpsn;
  d.stream = 6;
  d.opcode = wire::Opcode::kSend;
  d.message_flags = wire::message_flag::kFirst | wire::message_flag::kLast;
  EXPECT_TRUE(p.give(WirePeer::with_payload(d, 32, 5)));
  const auto ack = p.ack();
  EXPECT_EQ(ack.f.stream, 6);
  EXPECT_EQ(ack.f.limit, 3);
  p.give(p.write(1, 0, 16));
  EXPECT_EQ(p.ack().f.stream, 0);
}

wire::DataPacket send_packet(WirePeer& p, uint32_t cpsn, uint16_t stream, uint32_t msn) {
  wire::DataPacket d;
  d.s = p.next();
  d.s.cpsn = WirePeer::kStartCpsn + cpsn;
  d.stream = stream;
  d.opcode = wire::Opcode::kSend;
  d.msn = d.rq_seq = msn;
  d.message_flags = wire::message_flag::kFirst | wire::message_flag::kLast;
  return d;
}

TEST(RulesReceive, ARefusalSaysWhyAndForWhom) {
  MR_COVERS("MR-ACK-013");
  MR_COVERS("MR-MSG-022");
  Opened p;
  ASSERT_EQ(p.post_receive(6, 0, 64), Status::kOk);
  p.poll();
  wire::DataPacket d = send_packet(p, 0, 6, 3);  // beyond the limit of 1
  p.give(WirePeer::with_payload(d, 32, 5));
  auto ack = p.ack();
  EXPECT_EQ(ack.f.reason, Refusal::kNotReady);
  EXPECT_EQ(ack.f.refusal_stream, 6);
  EXPECT_EQ(ack.f.refusal_rq_seq, 3u);
  EXPECT_GT(ack.f.refusal_delay, 0);
  // A newer refusal takes its place.
  d = send_packet(p, 1, 6, 0);
  p.give(WirePeer::with_payload(d, 100, 5));
  ack = p.ack();
  EXPECT_EQ(ack.f.reason, Refusal::kLength);
  EXPECT_EQ(ack.f.refusal_rq_seq, 0u);
  EXPECT_EQ(ack.refused.count(), 2);
}

TEST(RulesReceive, OnlyVoidedPacketsGiveTheReasonVoid) {
  MR_COVERS("MR-ACK-013");
  Opened p;
  wire::DataPacket d = *wire::decode_data(p.write(0, 0, 64));
  d.key ^= 1;
  p.give(WirePeer::with_payload(d, 64, 1));
  EXPECT_EQ(p.ack().f.reason, Refusal::kKey);
  wire::VoidPacket v;
  v.s = p.next();
  v.s.floor = 0;  // the sender has read the first refusal
  v.s.cpsn = WirePeer::kStartCpsn + 1;
  p.give(v);
  const auto ack = p.ack();
  ASSERT_TRUE(ack.is_long);
  EXPECT_EQ(ack.refused.count(), 1);
  EXPECT_EQ(ack.f.reason, Refusal::kVoid);
}

TEST(RulesReceive, EachMemoryCheckHasItsReason) {
  MR_COVERS("MR-MEM-002");
  MR_COVERS("MR-MEM-003");
  MR_COVERS("MR-MEM-004");
  MR_COVERS("MR-MEM-006");
  Opened p;
  std::vector<std::byte> other(4096);
  const auto locked = *p.engine().regions().add_at(other.data(), other.size(),
                                                   memory::access::kRemoteRead, 0x90'0000);
  uint32_t cpsn = 0;
  const auto reason = [&](uint32_t key, uint64_t address, uint32_t length) {
    wire::DataPacket d = *wire::decode_data(p.write(cpsn++, 0, 0));
    d.key = key;
    d.address = address;
    EXPECT_FALSE(p.give(WirePeer::with_payload(d, length, 1)));
    return p.ack().f.reason;
  };
  const auto r = p.region();
  EXPECT_EQ(reason(r.key ^ 2, r.remote_base, 16), Refusal::kKey);
  EXPECT_EQ(reason(r.key, r.remote_base + (1 << 16) - 15, 16), Refusal::kBounds);
  EXPECT_EQ(reason(r.key, r.remote_base - 1, 16), Refusal::kBounds);
  EXPECT_EQ(reason(r.key, ~0ull - 7, 16), Refusal::kBounds);
  EXPECT_EQ(reason(locked.key, locked.remote_base, 16), Refusal::kAccess);
  EXPECT_EQ(p.engine().regions().remove(r.index), Status::kOk);
  EXPECT_EQ(reason(r.key, r.remote_base, 16), Refusal::kKey);
  EXPECT_TRUE(p.placements.empty());
}

TEST(RulesReceive, AWriteOfNoBytesIsNotChecked) {
  MR_COVERS("MR-MEM-005");
  Opened p;
  wire::DataPacket d = *wire::decode_data(p.write(0, 0, 0));
  d.key = 0;
  d.address = 0;
  p.give(WirePeer::bytes_of(d));
  const auto ack = p.ack();
  EXPECT_FALSE(ack.is_long);
  EXPECT_EQ(ack.f.base, kBase + 1);
}

TEST(RulesReceive, MarksComeBackInTheCount) {
  MR_COVERS("MR-ACK-016");
  Opened p;
  p.give(p.write(0, 0, 16), 0, Ecn::kCe);
  p.give(p.write(1, 1, 16), 0, Ecn::kEct0);
  p.give(p.write(2, 2, 16), 0, Ecn::kCe);
  EXPECT_EQ(p.ack().f.ce_count, 2);
  // Out of range: not counted.
  p.give(p.write(9000, 3, 16), 0, Ecn::kCe);
  p.give(p.write(3, 3, 16), 0, Ecn::kEct0);
  EXPECT_EQ(p.ack().f.ce_count, 2);
}

wire::ControlPacket path_open(WirePeer& p, uint32_t cpsn, uint8_t path, uint16_t generation,
                              uint32_t start, uint8_t plane = 0) {
  auto c = p.control(wire::ControlOpcode::kPathOpen, cpsn);
  c.path = path;
  c.plane = plane;
  c.generation = generation;
  c.start = start;
  c.address[0] = plane_address(plane, 1, wire::kBasePort);
  c.address[1] = plane_address(plane, 0, wire::kBasePort);
  return c;
}

wire::ProbePacket probe_at(WirePeer& p, uint8_t path, uint32_t seq) {
  wire::ProbePacket probe;
  probe.s = p.next(path);
  probe.s.path_seq = seq;
  probe.s.floor = 0;
  return probe;
}

TEST(RulesReceive, PathOpenSetsTheBaseAndOldGenerationsAreIgnored) {
  MR_COVERS("MR-PATH-041");
  Opened p(WirePeer::small_settings(), 2);
  p.give(path_open(p, 0, 4, 1, 7000, 1));
  EXPECT_FALSE(p.ack().is_long);
  p.give(probe_at(p, 4, 7000), 1);
  EXPECT_EQ(p.ack(4).f.base, 7001u);
  // The same generation again, under another CPSN: accepted, and nothing moves.
  p.give(path_open(p, 1, 4, 1, 9'000'000, 1));
  EXPECT_FALSE(p.ack().is_long);
  p.give(probe_at(p, 4, 7001), 1);
  EXPECT_EQ(p.ack(4).f.base, 7002u);
  p.give(path_open(p, 2, 4, 0xFFFF, 9'000'000, 1));  // older in serial arithmetic
  p.give(probe_at(p, 4, 7002), 1);
  EXPECT_EQ(p.ack(4).f.base, 7003u);
  p.give(path_open(p, 3, 4, 2, 9'000'000, 1));
  p.give(probe_at(p, 4, 9'000'000), 1);
  const auto ack = p.ack(4);
  EXPECT_EQ(ack.f.base, 9'000'001u);
  EXPECT_FALSE(ack.map.any());
}

TEST(RulesReceive, PathOpenBeyondTheNegotiatedPathsIsRefused) {
  MR_COVERS("MR-PATH-041");
  Opened p;
  p.give(path_open(p, 0, 200, 1, 7000));
  const auto ack = p.ack();
  ASSERT_TRUE(ack.is_long);
  EXPECT_EQ(ack.f.reason, Refusal::kNoResource);
}

TEST(RulesReceive, AClosedPathTakesNothingMore) {
  MR_COVERS("MR-PATH-047");
  Opened p;
  p.give(path_open(p, 0, 4, 3, 7000));
  auto close = p.control(wire::ControlOpcode::kPathClose, 1);
  close.path = 4;
  close.generation = 2;  // an older one: not this path
  p.give(close);
  p.give(probe_at(p, 4, 7000));
  EXPECT_EQ(p.dropped(DropReason::kUnknownPath), 0u);
  close = p.control(wire::ControlOpcode::kPathClose, 2);
  close.path = 4;
  close.generation = 3;
  p.give(close);
  p.give(probe_at(p, 4, 7001));
  EXPECT_EQ(p.dropped(DropReason::kUnknownPath), 1u);
}

TEST(RulesReceive, ControlPacketsAreIdempotent) {
  MR_COVERS("MR-MSG-050");
  Opened p;
  ASSERT_EQ(p.post(p.request(engine::Operation::kSend, 1, 64)), Status::kOk);
  EXPECT_TRUE(WirePeer::only<wire::DataPacket>(p.poll()).empty());  // no credit
  auto credit = p.control(wire::ControlOpcode::kCredit, 0);
  credit.value = 1;
  p.give(credit);
  EXPECT_EQ(WirePeer::only<wire::DataPacket>(p.poll()).size(), 1u);
  ASSERT_EQ(p.post(p.request(engine::Operation::kSend, 2, 64)), Status::kOk);
  credit = p.control(wire::ControlOpcode::kCredit, 1);
  credit.value = 1;  // the same limit once more raises nothing
  p.give(credit);
  credit = p.control(wire::ControlOpcode::kCredit, 2);
  credit.value = 0;  // and nothing lowers it
  p.give(credit);
  EXPECT_TRUE(WirePeer::only<wire::DataPacket>(p.run(microseconds(5))).empty());
}

TEST(RulesReceive, AProbeThatAsksForCreditGetsIt) {
  MR_COVERS("MR-MSG-025");
  Opened p;
  ASSERT_EQ(p.post_receive(6, 0, 64), Status::kOk);
  p.poll();
  wire::ProbePacket probe;
  probe.s = p.next();
  probe.stream = 6;
  p.give(probe);
  const auto ack = p.ack();
  EXPECT_EQ(ack.f.stream, 6);
  EXPECT_EQ(ack.f.limit, 1);
}

TEST(RulesReceive, CreditThatWasWaitedForIsToldAtOnce) {
  MR_COVERS("MR-MSG-025");
  MR_COVERS("MR-ACK-001");
  Opened p;
  wire::ProbePacket probe;
  probe.s = p.next();
  probe.stream = 6;
  p.give(probe);
  EXPECT_EQ(p.ack().f.limit, 0);
  ASSERT_EQ(p.post_receive(6, 0, 64), Status::kOk);
  const auto acks = WirePeer::only<wire::AckPacket>(p.poll());
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].f.stream, 6);
  EXPECT_EQ(acks[0].f.limit, 1);
}

TEST(RulesReceive, AnyPayloadSizeIsTaken) {
  MR_COVERS("MR-PMTU-009");
  Opened p;
  uint32_t cpsn = 0;
  for (const uint32_t length : {0u, 1u, 17u, 1184u, 4097u, 60'000u}) {
    p.give(p.write(cpsn, cpsn, length, 7));
    ++cpsn;
    EXPECT_EQ(p.ack().f.base, kBase + cpsn) << length;
  }
}

TEST(RulesReceive, AnAckIsNeverAnsweredAndADeadPeerCausesNone) {
  MR_COVERS("MR-ACK-005");
  Opened p;
  p.give(p.write(0, 0, 16));
  EXPECT_EQ(WirePeer::only<wire::AckPacket>(p.run(milliseconds(5))).size(), 1u);
  p.give(p.acknowledge(0, 0));
  EXPECT_TRUE(WirePeer::only<wire::AckPacket>(p.run(milliseconds(5))).empty());
}

TEST(RulesReceive, WhatWasNeverSentCannotBeAcknowledged) {
  MR_COVERS("MR-PATH-032");
  MR_COVERS("MR-PATH-033");
  Opened p;
  const uint64_t before = p.engine().state_hash();
  p.give(p.acknowledge(0, 5));
  p.give(p.acknowledge(0, 0, {3}));
  p.give(p.acknowledge(0, static_cast<uint32_t>(-3)));
  EXPECT_EQ(p.dropped(DropReason::kAckInvalid), 3u);
  p.give(p.acknowledge(9, 0));
  EXPECT_EQ(p.dropped(DropReason::kUnknownPath), 1u);
  EXPECT_EQ(p.engine().state_hash(), before);
}

}  // namespace
}  // namespace metaroce::pair
