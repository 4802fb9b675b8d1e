// Set-up, close and what belongs to no connection, packet by packet (spec/09-setup-security.md).
#include <gtest/gtest.h>

#include <set>

#include "base/covers.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using engine::ConnectionEventKind;
using wire::DropReason;
using wire::PacketType;
using Sent = WirePeer::Sent;

TEST(RulesSetup, HelloIsAnsweredWithAcceptAndConfirmOpens) {
  MR_COVERS("MR-CONN-001");
  WirePeer p;
  ASSERT_TRUE(p.say_hello());
  EXPECT_TRUE(p.events().empty());
  EXPECT_EQ(p.accept.connection, WirePeer::kId);
  EXPECT_EQ(p.accept.echoed_nonce, p.hello.nonce);
  p.give(p.confirm());
  const auto events = p.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ConnectionEventKind::kAccepted);
}

TEST(RulesSetup, ARepeatedHelloGetsTheSameAcceptToWhereItCameFrom) {
  MR_COVERS("MR-CONN-004");
  MR_COVERS("MR-CONN-025");
  MR_COVERS("MR-ADDR-009");
  WirePeer p(WirePeer::small_settings(), 2);
  ASSERT_TRUE(p.say_hello());
  p.give(p.hello_bytes(), 1, Ecn::kNotEct, 51'000);
  const auto sent = p.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].bytes, p.accept_bytes());
  EXPECT_EQ(sent[0].to, plane_address(1, 1, 51'000));
  EXPECT_EQ(sent[0].from, plane_address(1, 0, wire::kBasePort));
  EXPECT_EQ(sent[0].plane, 1);
  p.give(p.confirm(), 1);
  EXPECT_EQ(p.events().size(), 1u);  // one connection
}

TEST(RulesSetup, TheAnswerIsNotLargerThanTheHello) {
  MR_COVERS("MR-CONN-006");
  WirePeer p(WirePeer::small_settings(), 16);
  ASSERT_TRUE(p.say_hello());
  EXPECT_LE(p.accept_bytes().size(), p.hello_bytes().size());
}

TEST(RulesSetup, AnAcceptIsRepeatedOnlyForAPacketOfThePeer) {
  MR_COVERS("MR-CONN-006");
  WirePeer p;
  ASSERT_TRUE(p.say_hello());
  p.give(p.hello);
  const auto sent = p.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].bytes, p.accept_bytes());
  // A forged source must not draw more than it sent: nothing leaves by a timer.
  EXPECT_TRUE(p.run(seconds(3)).empty());
  EXPECT_TRUE(p.events().empty());  // nobody was told of it
}

TEST(RulesSetup, AConfirmWithAWrongMacIsDropped) {
  MR_COVERS("MR-CONN-012");
  WirePeer p;
  ASSERT_TRUE(p.say_hello());
  wire::ConfirmPacket c = p.confirm();
  c.mac ^= 1;
  p.give(c);
  EXPECT_TRUE(p.events().empty());
  EXPECT_EQ(p.dropped(DropReason::kBadField), 1u);
  p.give(p.confirm());  // still half-open: the right one opens
  EXPECT_EQ(p.events().size(), 1u);
}

TEST(RulesSetup, TheMacCoversBothPacketsWithoutTheCookie) {
  MR_COVERS("MR-CONN-011");
  WirePeer p;
  p.hello.params.has_cookie = true;
  p.hello.params.cookie.fill(std::byte{9});
  ASSERT_TRUE(p.say_hello());
  std::vector<std::byte> with = p.hello_bytes();
  p.hello.params.has_cookie = false;
  const uint64_t without = WirePeer::mac(WirePeer::bytes_of(p.hello), p.accept_bytes());
  EXPECT_EQ(WirePeer::mac(with, p.accept_bytes()), without);
  p.give(wire::ConfirmPacket{p.id(), without});
  EXPECT_EQ(p.events().size(), 1u);
}

TEST(RulesSetup, DataBeforeConfirmIsDroppedUnacknowledged) {
  MR_COVERS("MR-CONN-014");
  WirePeer p;
  ASSERT_TRUE(p.say_hello());
  EXPECT_FALSE(p.give(p.write(0, 0, 64)));
  EXPECT_EQ(p.dropped(DropReason::kNotConfirmed), 1u);
  for (const Sent& s : p.run(microseconds(50))) EXPECT_EQ(s.type(), PacketType::kAccept);
  p.give(p.confirm());
  wire::DataPacket again = *wire::decode_data(p.write(0, 0, 64));
  EXPECT_TRUE(p.give(WirePeer::with_payload(again, 64, 1)));
}

std::vector<std::byte> with_tlv(std::vector<std::byte> bytes, size_t fixed, uint8_t type) {
  const uint32_t w7 = wire::load32(bytes.data() + 28);
  const size_t end = fixed + (w7 & 0xFFFF);
  if (bytes.size() < end + 4) bytes.resize(end + 4);
  bytes[end] = std::byte{type};
  bytes[end + 1] = std::byte{2};
  wire::store32(bytes.data() + 28, w7 + 4);
  return bytes;
}

TEST(RulesSetup, AnUnknownTlvMattersOnlyWhenItIsCritical) {
  MR_COVERS("MR-CONN-016");
  WirePeer p;
  p.give(with_tlv(WirePeer::bytes_of(p.hello), 32, 0x45 | wire::tlv::kCritical));
  EXPECT_EQ(WirePeer::only<wire::RefusePacket>(p.poll()).size(), 1u);
  EXPECT_EQ(p.dropped(DropReason::kBadTlv), 1u);
  p.give(with_tlv(WirePeer::bytes_of(p.hello), 32, 0x45));
  EXPECT_EQ(p.poll().size(), 1u);
}

TEST(RulesSetup, NoCommonVersionNoAnswer) {
  MR_COVERS("MR-CONN-018");
  WirePeer p;
  p.hello.params.versions = 0x0002;
  EXPECT_FALSE(p.say_hello());
  EXPECT_EQ(p.dropped(DropReason::kBadVersion), 1u);
  p.hello.params.versions = 0x0003;
  EXPECT_TRUE(p.say_hello());
}

TEST(RulesSetup, WhatMakesNoSenseInAStateChangesNothing) {
  MR_COVERS("MR-CONN-023");
  WirePeer p;
  ASSERT_TRUE(p.open());
  const uint64_t before = p.engine().state_hash();
  p.give(p.confirm());
  wire::HelloPacket accept = p.accept;
  accept.connection = p.id();
  p.give(accept);
  p.give(wire::CookiePacket{p.id(), 5, {}});
  EXPECT_EQ(p.dropped(DropReason::kNoState), 3u);
  EXPECT_EQ(p.engine().state_hash(), before);
  EXPECT_TRUE(p.events().empty());
  EXPECT_TRUE(p.give(p.write(0, 0, 64)));
}

TEST(RulesSetup, IdsAreNeverZeroAndDifferInTheirRandomBits) {
  MR_COVERS("MR-WIRE-009");
  MR_COVERS("MR-CONN-032");
  Settings s = WirePeer::small_settings();
  s.max_connections = 1;
  WirePeer p(s);
  std::set<uint32_t> ids;
  for (uint64_t i = 1; i <= 20; ++i) {
    p.hello.nonce = i;
    ASSERT_TRUE(p.say_hello()) << i;
    EXPECT_NE(p.id(), 0u);
    EXPECT_NE(p.id() & 0xFFFF, 0u);
    EXPECT_EQ(p.id() >> 16, 0u);  // the one index is used again
    ids.insert(p.id());
    p.run(seconds(2));  // given up
  }
  EXPECT_EQ(ids.size(), 20u);
}

TEST(RulesSetup, HalfOpenConnectionsAreBounded) {
  MR_COVERS("MR-CONN-007");
  Settings s = WirePeer::small_settings();
  s.max_half_open_source = 100;
  WirePeer p(s);
  for (uint64_t i = 0; i < 70; ++i) {
    p.hello.nonce = 1000 + i;
    p.give(p.hello);
  }
  // A quarter of the table: what is open, our own connects, and those who return a cookie must
  // find room beside a flood.
  const auto sent = p.poll();
  EXPECT_EQ(WirePeer::only<wire::HelloPacket>(sent).size(), 20u);
  EXPECT_EQ(WirePeer::only<wire::CookiePacket>(sent).size(), 50u);
  EXPECT_EQ(p.dropped(DropReason::kTableFull), 0u);
}

TEST(RulesSetup, OtherPacketsOfNoConnectionAreAnsweredSparingly) {
  MR_COVERS("MR-CONN-021");
  WirePeer p;
  ASSERT_TRUE(p.open());
  const auto stray = [&] {
    std::vector<std::byte> bytes = p.write(0, 0, 64);
    bytes[4] = std::byte{0x7F};  // an index that does not exist
    return bytes;
  };
  const auto bytes = stray();
  p.give(bytes);
  p.give(stray());
  auto sent = p.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].type(), PacketType::kUnknownConnection);
  EXPECT_EQ(sent[0].word(1), wire::load32(bytes.data() + 4));
  EXPECT_EQ(sent[0].word(2), wire::load32(bytes.data() + 8));
  // One second of a flood: at most a hundred answers.
  size_t answers = 0;
  for (int i = 0; i < 2000; ++i) {
    p.now = p.now + microseconds(500);
    p.give(stray());
    answers += p.poll().size();
  }
  EXPECT_LE(answers, 100u);
  EXPECT_GT(answers, 10u);
  // UNKNOWN_CONNECTION itself is never answered.
  p.now = p.now + seconds(1);
  p.give(sent[0].bytes);
  EXPECT_TRUE(p.poll().empty());
}

TEST(RulesSetup, HelloIsRepeatedEverMoreSeldomAndGivenUp) {
  MR_COVERS("MR-CONN-005");
  MR_COVERS("MR-CONN-002");
  Settings s = WirePeer::small_settings();
  s.hello_interval = 10'000'000;
  s.connect_timeout = 1'000'000'000;
  WirePeer p(s, 2);
  const Time begin = p.now;
  ASSERT_TRUE(
      p.engine().connect(p.now, {{plane_address(0, 1, 28672), plane_address(1, 1, 28672)}}));
  const auto sent = p.run(seconds(2));
  std::vector<Time> at;
  for (const Sent& one : sent) {
    ASSERT_EQ(one.type(), PacketType::kHello);
    EXPECT_EQ(one.bytes, sent[0].bytes);
    EXPECT_EQ(one.from.port, wire::kBasePort);
    if (one.plane == 0) at.push_back(one.at);
  }
  ASSERT_GE(at.size(), 6u);
  EXPECT_EQ(at[0], begin);
  for (size_t i = 1; i < at.size(); ++i) {
    EXPECT_EQ(at[i] - at[i - 1], milliseconds(10) * (1ll << std::min<size_t>(i - 1, 4))) << i;
  }
  EXPECT_EQ(std::count_if(sent.begin(), sent.end(), [](const Sent& x) { return x.plane == 1; }),
            static_cast<long>(at.size() - 1));  // every plane from the second on
  const auto events = p.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ConnectionEventKind::kFailed);
  EXPECT_EQ(events[0].peer, plane_address(0, 1, 28672));
  EXPECT_GE(at.back() - begin, milliseconds(700));
}

TEST(RulesSetup, ConfirmIsRepeatedForEachAcceptAndTheNextPacketAsksForAnAck) {
  MR_COVERS("MR-CONN-013");
  WirePeer p;
  ASSERT_TRUE(p.be_connected());
  ASSERT_EQ(p.post(p.request(engine::Operation::kWrite, 1, 8000)), Status::kOk);
  auto sent = p.poll();
  auto confirms = WirePeer::only<wire::ConfirmPacket>(sent);
  ASSERT_EQ(confirms.size(), 1u);
  EXPECT_EQ(confirms[0],
            (wire::ConfirmPacket{WirePeer::kId, WirePeer::mac(p.hello_bytes(), p.accept_bytes())}));
  auto data = WirePeer::only<wire::DataPacket>(sent);
  ASSERT_GE(data.size(), 2u);
  EXPECT_NE(data[0].s.flags & wire::flag::kAckRequest, 0);
  EXPECT_EQ(data[1].s.flags & wire::flag::kAckRequest, 0);
  p.give(p.accept_bytes());
  sent = p.poll();
  EXPECT_EQ(WirePeer::only<wire::ConfirmPacket>(sent), confirms);
}

TEST(RulesSetup, AnAcceptForAnotherNonceIsDropped) {
  MR_COVERS("MR-CONN-023");
  WirePeer p;
  ASSERT_TRUE(p.engine().connect(p.now, {{plane_address(0, 1, 28672)}}));
  const auto hello = *wire::decode_hello(p.poll().at(0).bytes);
  wire::HelloPacket accept = p.hello;
  accept.is_accept = true;
  accept.connection = hello.own_connection;
  accept.echoed_nonce = hello.nonce ^ 1;
  p.give(accept);
  EXPECT_EQ(p.dropped(DropReason::kNoState), 1u);
  EXPECT_TRUE(p.events().empty());
}

TEST(RulesSetup, ACookieComesBackInTheNextHello) {
  WirePeer p;
  ASSERT_TRUE(p.engine().connect(p.now, {{plane_address(0, 1, 28672)}}));
  const auto hello = *wire::decode_hello(p.poll().at(0).bytes);
  wire::CookiePacket cookie{hello.own_connection, hello.nonce, {}};
  cookie.cookie.fill(std::byte{0x5A});
  p.give(cookie);
  const auto again = *wire::decode_hello(p.poll().at(0).bytes);
  EXPECT_TRUE(again.params.has_cookie);
  EXPECT_EQ(again.params.cookie, cookie.cookie);
  EXPECT_EQ(again.nonce, hello.nonce);
  EXPECT_EQ(again.start_seq, hello.start_seq);
  cookie.nonce ^= 1;
  p.give(cookie);
  EXPECT_EQ(p.dropped(DropReason::kNoState), 1u);
}

TEST(RulesSetup, TheSmallerAnnouncementHolds) {
  MR_COVERS("MR-CONN-017");
  MR_COVERS("MR-CPSN-011");
  WirePeer p;
  p.hello.params.cpsn_window_log2 = 10;
  ASSERT_TRUE(p.open());
  p.give(p.write(1024, 0, 16));
  EXPECT_EQ(p.dropped(DropReason::kCpsnWindow), 1u);
  EXPECT_TRUE(p.give(p.write(1023, 0, 16)));
}

TEST(RulesSetup, StartsAreRandomAndPathsLieApart) {
  MR_COVERS("MR-PATH-003");
  MR_COVERS("MR-PATH-043");
  MR_COVERS("MR-PATH-044");
  WirePeer p(WirePeer::small_settings(), 2);
  ASSERT_TRUE(p.be_connected());
  EXPECT_NE(p.engine_hello.start_seq, 0u);
  EXPECT_NE(p.engine_hello.start_cpsn, 0u);
  p.post(p.request(engine::Operation::kWrite, 1, 30'000));
  std::set<uint32_t> firsts;
  for (const Sent& s : p.poll()) {
    if (s.type() > PacketType::kVoid) continue;
    const auto path = static_cast<uint8_t>(s.bytes[2]);
    ASSERT_LT(path, WirePeer::kPaths);  // of the plane of the handshake only
    if (s.word(2) == p.engine_start(path)) firsts.insert(path);
  }
  EXPECT_EQ(firsts.size(), WirePeer::kPaths);
}

TEST(RulesSetup, CloseIsAcceptedAndEverythingOpenEndsWithIt) {
  MR_COVERS("MR-CONN-030");
  WirePeer p;
  ASSERT_TRUE(p.open());
  ASSERT_EQ(p.post(p.request(engine::Operation::kWrite, 7, 100)), Status::kOk);
  ASSERT_EQ(p.post_receive(0, 8, 100), Status::kOk);
  p.give(p.control(wire::ControlOpcode::kClose, 0));
  const auto events = p.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ConnectionEventKind::kClosed);
  const auto done = p.completions();
  ASSERT_EQ(done.size(), 2u);
  for (const auto& c : done) EXPECT_EQ(c.status, Status::kClosed);
  EXPECT_NE(p.post(p.request(engine::Operation::kWrite, 9, 100)), Status::kOk);
}

TEST(RulesSetup, TimeWaitAnswersCopiesAndOpensNothing) {
  MR_COVERS("MR-CONN-031");
  WirePeer p;
  ASSERT_TRUE(p.open());
  const auto close = p.control(wire::ControlOpcode::kClose, 0);
  p.give(close);
  EXPECT_EQ(p.ack().f.base, WirePeer::kStartSeq + 1);
  EXPECT_EQ(p.events().size(), 1u);
  wire::ControlPacket copy = close;
  copy.s.path_seq += 1;
  copy.s.floor = 1;
  p.give(copy);
  EXPECT_EQ(p.ack().f.base, WirePeer::kStartSeq + 2);
  p.give(p.confirm());
  EXPECT_TRUE(p.events().empty());
  EXPECT_EQ(p.dropped(DropReason::kNoState), 1u);
  p.run(milliseconds(9));
  EXPECT_EQ(p.dropped(DropReason::kUnknownConnection), 0u);
  p.run(milliseconds(2));  // 10 ms are over
  copy.s.path_seq += 1;
  p.give(copy);
  EXPECT_EQ(p.dropped(DropReason::kUnknownConnection), 1u);
}

// A peer that is heard of all the time, and takes our CLOSE never or refuses it.
TEST(RulesSetup, AnUntakenCloseHoldsNobody) {
  MR_COVERS("MR-CONN-033");
  for (const bool refused : {false, true}) {
    WirePeer p;
    ASSERT_TRUE(p.be_connected());
    p.poll();
    const Time begin = p.now;
    p.engine().close(p.now, p.id(), 0);
    const auto close = WirePeer::only<wire::ControlPacket>(p.poll()).at(0);
    if (refused) {
      wire::AckPacket ack = p.acknowledge(close.s.path, 0);
      ack.is_long = true;
      const uint32_t bit = close.s.path_seq - p.engine_start(close.s.path);
      ack.map.set(bit);
      ack.refused.set(bit);
      p.give(ack);
    }
    uint32_t cpsn = 1;
    size_t closed = 0;
    while (closed == 0 && p.now - begin < seconds(10)) {
      p.give(p.control(wire::ControlOpcode::kAddAddr, cpsn++));
      p.run(milliseconds(100));
      for (const auto& e : p.events()) closed += e.kind == ConnectionEventKind::kClosed;
    }
    EXPECT_EQ(closed, 1u) << refused;
    const Duration limit = nanoseconds(Settings{}.death_timeout) * 2;
    EXPECT_LT(p.now - begin, (refused ? Duration{} : limit) + milliseconds(200)) << refused;
  }
}

TEST(RulesSetup, OurCloseIsAControlPacketAndItsAcceptanceEndsIt) {
  MR_COVERS("MR-CONN-030");
  WirePeer p;
  ASSERT_TRUE(p.be_connected());
  p.poll();
  p.engine().close(p.now, p.id(), 0x00020000);
  const auto controls = WirePeer::only<wire::ControlPacket>(p.poll());
  ASSERT_EQ(controls.size(), 1u);
  EXPECT_EQ(controls[0].opcode, wire::ControlOpcode::kClose);
  EXPECT_EQ(controls[0].value, 0x00020000u);
  EXPECT_TRUE(p.events().empty());
  const uint8_t path = controls[0].s.path;
  p.give(p.acknowledge(path, controls[0].s.path_seq + 1 - p.engine_start(path)));
  const auto events = p.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ConnectionEventKind::kClosed);
}

TEST(RulesSetup, AnUnknownConnectionIsOnlyAHint) {
  MR_COVERS("MR-CONN-022");
  MR_COVERS("MR-HEALTH-014");
  WirePeer p;
  ASSERT_TRUE(p.be_connected());
  p.post(p.request(engine::Operation::kWrite, 1, 100));
  const auto data = WirePeer::only<wire::DataPacket>(p.poll());
  ASSERT_EQ(data.size(), 1u);
  // Of another connection: nothing happens.
  p.give(wire::UnknownConnectionPacket{WirePeer::kId ^ 1, data[0].s.path_seq});
  EXPECT_TRUE(WirePeer::only<wire::ProbePacket>(p.run(microseconds(1))).empty());
  // A sequence that was never sent: nothing happens either.
  p.give(wire::UnknownConnectionPacket{WirePeer::kId, data[0].s.path_seq + 5000});
  EXPECT_TRUE(WirePeer::only<wire::ProbePacket>(p.run(microseconds(1))).empty());
  p.give(wire::UnknownConnectionPacket{WirePeer::kId, data[0].s.path_seq});
  EXPECT_FALSE(WirePeer::only<wire::ProbePacket>(p.run(microseconds(1))).empty());
  EXPECT_TRUE(p.events().empty());
  // The peer answers after all: the connection lives.
  const uint8_t path = data[0].s.path;
  p.give(p.acknowledge(path, data[0].s.path_seq + 1 - p.engine_start(path)));
  EXPECT_TRUE(p.events().empty());
  EXPECT_EQ(p.completions().size(), 1u);
}

TEST(RulesSetup, AnAcceptThatCrossesTheRepeatedHelloEndsTheAsking) {
  WirePeer peer;
  engine::ConnectRequest request;
  request.peer.push_back(plane_address(0, 1, wire::kBasePort));
  ASSERT_TRUE(peer.engine().connect(peer.now, request).has_value());
  const auto first = peer.poll();
  ASSERT_EQ(first.size(), 1u);
  const auto hello = *wire::decode_hello(first[0].bytes);
  // The timer asks for another HELLO; before it is sent the answer to the first one comes.
  peer.now = peer.engine().next_deadline();
  peer.engine().on_deadline(peer.now);
  wire::HelloPacket accept = peer.hello;
  accept.is_accept = true;
  accept.connection = hello.own_connection;
  accept.echoed_nonce = hello.nonce;
  peer.give(accept);
  const auto sent = peer.poll();
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].type(), wire::PacketType::kConfirm);
  for (const auto& s : sent) {
    ASSERT_TRUE(wire::decode(s.bytes).has_value());
    EXPECT_NE(s.type(), wire::PacketType::kHello);
  }
}

}  // namespace
}  // namespace metaroce::pair
