// docs/threat-model.md, a test for each line: what an attacker can send, and what comes of it. Each
// of them fails when its defence is taken out (tests/mutants).
#include <gtest/gtest.h>

#include "base/covers.h"
#include "secure/hash.h"
#include "secure/key_file.h"
#include "secure/session.h"
#include "tests/pair/secure_support.h"
#include "tests/pair/wire_peer.h"

namespace metaroce::pair {
namespace {

using wire::DropReason;
using wire::PacketType;

SocketAddress stranger(uint8_t last = 200) {
  SocketAddress a;
  a.family = 4;
  a.bytes = {192, 0, 2, last};
  a.port = 4000;
  return a;
}

/// A secured connection, and copies of what node 0 sent.
struct Watched : SecureNet {
  Watched() : SecureNet(psk_config(), psk_config()) {
    on_packet = [this](uint32_t from, uint32_t, const std::vector<std::byte>& bytes) {
      if (from == 0) seen.push_back(bytes);
    };
  }
  const std::vector<std::byte>* last(PacketType type) const {
    for (size_t i = seen.size(); i-- > 0;) {
      if (type_of_packet(seen[i]) == type) return &seen[i];
    }
    return nullptr;
  }
  /// Puts it on the way to node 1 as from node 0, with the trailer it has: a tag.
  void inject(const std::vector<std::byte>& bytes) {
    send_raw(1, node(0).address, bytes, true);
    run_for(milliseconds(1));
  }
  std::vector<std::vector<std::byte>> seen;
};

TEST(Threat, InjectedDataTouchesNoMemory) {
  MR_COVERS("MR-SEC-003");
  Watched net;
  ASSERT_TRUE(net.open());
  ASSERT_TRUE(net.write(0, 0, 64));
  // All an observer knows: ids, sequences, keys, addresses. The next packet is made from it.
  auto forged = *net.last(PacketType::kData);
  wire::store32(forged.data() + 8, wire::load32(forged.data() + 8) + 1);
  wire::store32(forged.data() + 16, wire::load32(forged.data() + 16) + 1);
  wire::store32(forged.data() + 24, wire::load32(forged.data() + 24) + 1);
  net.run_for(milliseconds(20));
  const uint64_t placed = net.node(1).placed_bytes;
  const uint64_t before = net[1].state_hash();
  net.inject(forged);
  EXPECT_EQ(net.dropped(1, DropReason::kBadTag), 1u);
  // The same with a good CRC instead of a tag: plain packets are nothing here either.
  forged.resize(forged.size() - wire::kTagBytes);
  net.send_raw(1, net.node(0).address, forged);
  net.run_for(milliseconds(1));
  EXPECT_EQ(net.dropped(1, DropReason::kBadTag), 2u);
  EXPECT_EQ(net.node(1).placed_bytes, placed);
  EXPECT_EQ(net[1].state_hash(), before);
  EXPECT_TRUE(net.write(0, 100, 64));
}

TEST(Threat, InjectedAckDecidesNothing) {
  MR_COVERS("MR-SEC-003");
  Watched net;
  ASSERT_TRUE(net.open());
  ASSERT_TRUE(net.write(1, 0, 64));
  auto forged = *net.last(PacketType::kAck);
  // Node 1 sends again, and nothing of node 0 gets through: only the forged ACKs do.
  net.meddle = [](uint32_t from, uint32_t, std::vector<std::byte>&) { return from != 0; };
  ASSERT_TRUE(net.post_write(1, 77, 0, 64));
  net.run_for(microseconds(100));
  const size_t before = net.node(1).completions.size();
  for (uint32_t i = 1; i < 50; ++i) {
    wire::store32(forged.data() + 8, wire::load32(forged.data() + 8) + 1);
    for (size_t at = 16; at < 48; ++at) forged[at] = std::byte{0xFF};
    net.send_raw(1, net.node(0).address, forged, true);
    auto plain = forged;
    plain.resize(wire::kAckBytes);
    net.send_raw(1, net.node(0).address, plain);
  }
  net.run_for(milliseconds(5));
  EXPECT_EQ(net.node(1).completions.size(), before);
  EXPECT_EQ(net.dropped(1, DropReason::kBadTag), 98u);
}

TEST(Threat, InjectedCloseClosesNothing) {
  MR_COVERS("MR-SEC-003");
  Watched net;
  ASSERT_TRUE(net.open());
  ASSERT_TRUE(net.write(0, 0, 64));
  const auto& data = *net.last(PacketType::kData);
  wire::ControlPacket close;
  close.s = wire::load_sequenced(data.data());
  ++close.s.path_seq;
  ++close.s.cpsn;
  close.opcode = wire::ControlOpcode::kClose;
  std::vector<std::byte> bytes(128);
  bytes.resize(wire::encode(close, bytes.data()));
  net.send_raw(1, net.node(0).address, bytes);
  bytes.resize(bytes.size() + wire::kTagBytes);
  net.inject(bytes);
  // And the hints that carry no tag: they are hints.
  wire::UnknownConnectionPacket unknown;
  unknown.word1 = wire::load32(data.data() + 4);
  unknown.word2 = wire::load32(data.data() + 8);
  std::vector<std::byte> hint(64);
  hint.resize(wire::encode(unknown, hint.data()));
  net.send_raw(0, net.node(1).address, hint);
  net[0].on_network_hint(net.now, net.handle, 0, engine::NetworkHint::kPortUnreachable, 0);
  net.run_for(seconds(3));
  EXPECT_EQ(net.count(1, engine::ConnectionEventKind::kClosed), 0u);
  EXPECT_EQ(net.count(0, engine::ConnectionEventKind::kLost), 0u);
  EXPECT_TRUE(net.write(0, 100, 64));
}

TEST(Threat, ReplayedPacketsAreDecidedOnce) {
  MR_COVERS("MR-CPSN-007");
  MR_COVERS("MR-SEC-004");
  Watched net;
  ASSERT_TRUE(net.open());
  ASSERT_TRUE(net.write(0, 0, 20'000));
  const auto all = net.seen;
  const uint64_t placed = net.node(1).placed_bytes;
  std::fill(net.node(1).memory.begin(), net.node(1).memory.end(), std::byte{0});
  for (const auto& bytes : all) {
    if (type_of_packet(bytes) <= PacketType::kAckWideRefused) net.inject(bytes);
  }
  EXPECT_EQ(net.node(1).placed_bytes, placed);
  EXPECT_EQ(net.node(1).memory, std::vector<std::byte>(1 << 20));
  // Under another connection of the same two they are worth nothing at all.
  const uint64_t bad = net.dropped(1, DropReason::kBadTag);
  net.connect(0, 1);
  net.run_for(milliseconds(20));
  engine::ConnectionHandle handles[4] = {};
  ASSERT_EQ(net[1].connections(handles), 2u);
  const auto second = handles[0] == net.answered() ? handles[1] : handles[0];
  uint64_t replayed = 0;
  for (auto bytes : all) {
    if (type_of_packet(bytes) > PacketType::kAckWideRefused) continue;
    wire::store32(bytes.data() + 4, second);
    net.inject(bytes);
    ++replayed;
  }
  EXPECT_GT(net.dropped(1, DropReason::kBadTag) + net.dropped(1, DropReason::kPathWindow) +
                net.dropped(1, DropReason::kUnknownPath),
            bad);
  EXPECT_EQ(net.node(1).placed_bytes, placed);
}

TEST(Threat, AReplayedHelloYieldsNoConnection) {
  MR_COVERS("MR-CONN-004");
  MR_COVERS("MR-SEC-011");
  Watched net;
  ASSERT_TRUE(net.open());
  const auto hello = *net.last(PacketType::kHello);
  // While its connection is open, from many addresses.
  for (uint8_t i = 1; i < 100; ++i) net.send_raw(1, stranger(i), hello);
  net.run_for(milliseconds(10));
  EXPECT_EQ(net[1].memory().connections, 1u);
  // When it is long gone and forgotten: one half-open place for a while, and never a connection,
  // for the ephemeral key to confirm it is gone.
  net[0].close(net.now, net.handle, 0);
  net.run_for(seconds(12));
  EXPECT_EQ(net[1].memory().connections, 0u);
  for (uint8_t i = 1; i < 100; ++i) net.send_raw(1, stranger(i), hello);
  net.run_for(milliseconds(10));
  EXPECT_LE(net[1].memory().connections, 1u);
  net.run_for(seconds(12));
  EXPECT_EQ(net[1].memory().connections, 0u);
  EXPECT_EQ(net.count(1, engine::ConnectionEventKind::kAccepted), 1u);
}

TEST(Threat, AConfirmWithoutTheKeyOpensNothing) {
  MR_COVERS("MR-CONN-012");
  // Somebody replays a HELLO, reads the ACCEPT and makes a CONFIRM as plain mode would.
  Watched net;
  std::vector<std::byte> accept;
  net.meddle = [&](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
    if (from == 1 && type_of_packet(bytes) == PacketType::kAccept) accept = bytes;
    return from == 0 && type_of_packet(bytes) == PacketType::kHello;
  };
  net.connect(0, 1);
  ASSERT_TRUE(net.run_until([&] { return !accept.empty(); }, milliseconds(100)));
  const uint32_t id = wire::load32(accept.data() + 8);
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> bytes(32);
    bytes.resize(wire::encode(wire::ConfirmPacket{id, rng.next()}, bytes.data()));
    net.send_raw(1, net.node(0).address, bytes);
  }
  std::vector<std::byte> bytes(32);
  bytes.resize(wire::encode(wire::ConfirmPacket{id, 0}, bytes.data()));
  net.send_raw(1, net.node(0).address, bytes);
  net.run_for(milliseconds(5));
  EXPECT_EQ(net.count(1, engine::ConnectionEventKind::kAccepted), 0u);
}

/// A HELLO as an attacker makes it who knows a name, but no key.
std::vector<std::byte> spoofed_hello(uint64_t nonce, uint32_t id = 0x00010001) {
  wire::HelloPacket h;
  h.own_connection = id;
  h.nonce = nonce;
  h.paths = 1;
  h.params.suites = {1};
  h.params.suite_count = 1;
  h.params.security.mode = 1;
  h.params.security.required = true;
  h.params.security.ephemeral = secure::x25519_public(test_secret(nonce));
  h.params.security.name_length = 3;
  std::copy_n("lab", 3, h.params.security.name.begin());
  std::vector<std::byte> bytes(wire::kMaxHandshake);
  bytes.resize(wire::encode(h, bytes.data()));
  return bytes;
}

/// HELLOs at node 1, each from a host of its own.
void flood(MiniNet& net, uint64_t hellos) {
  for (uint64_t i = 0; i < hellos; ++i) {
    SocketAddress from = stranger(static_cast<uint8_t>(i));
    from.bytes[2] = static_cast<uint8_t>(i >> 8);
    net.send_raw(1, from, spoofed_hello(1000 + i));
  }
  net.run_for(milliseconds(1));
}

TEST(Threat, SpoofedHellosFindAWallAndThePeerADoor) {
  MR_COVERS("MR-CONN-007");
  MR_COVERS("MR-SEC-011");
  MiniNet::Options options;
  options.settings.max_connections = 256;
  options.settings.max_half_open = 16;
  SecureNet net(psk_config(), psk_config(), options);
  flood(net, 2000);
  // Half-open places are what costs: keys were computed for so many, and for no more.
  EXPECT_LE(net[1].memory().connections, 16u);
  EXPECT_TRUE(net.open()) << "whoever answers a COOKIE gets in";
  EXPECT_TRUE(net.write(0, 0, 1000));
}

TEST(Threat, TheDoorIsOpenInSmallTablesToo) {
  MR_COVERS("MR-CONN-007");
  for (const uint32_t places : {2u, 4u, 8u, 64u}) {
    MiniNet::Options options;
    options.settings.max_connections = places;
    options.settings.max_half_open = Settings{}.max_half_open;
    SecureNet net(psk_config(), psk_config(), options);
    flood(net, 500);
    EXPECT_TRUE(net.open()) << places;
  }
}

TEST(Threat, HalfOpenHandshakesDoNotStay) {
  MR_COVERS("MR-CONN-007");
  SecureNet net(psk_config(), psk_config());
  for (uint8_t i = 1; i < 200; ++i) net.send_raw(1, stranger(i), spoofed_hello(i));
  net.run_for(milliseconds(1));
  EXPECT_GT(net[1].memory().connections, 0u);
  net.run_for(seconds(6));
  EXPECT_EQ(net[1].memory().connections, 0u);
  EXPECT_EQ(net.count(1, engine::ConnectionEventKind::kAccepted), 0u);
}

TEST(Threat, NoAnswerIsLargerThanItsQuestion) {
  MR_COVERS("MR-CONN-006");
  SecureNet net(x25519_config(1, {2}), x25519_config(2, {1}));
  uint64_t sent = 0;
  uint64_t drawn = 0;
  net.on_packet = [&](uint32_t from, uint32_t to, const std::vector<std::byte>& bytes) {
    if (from == 1 && to == net.size()) drawn += bytes.size() + wire::kCrcBytes;
  };
  const auto give = [&](std::vector<std::byte> bytes, uint8_t from) {
    sent += bytes.size() + wire::kCrcBytes;
    net.send_raw(1, stranger(from), std::move(bytes));
    net.run_for(milliseconds(60));
    EXPECT_LE(drawn, sent);
  };
  wire::HelloPacket plain;
  plain.own_connection = 1;
  plain.nonce = 5;
  std::vector<std::byte> bytes(wire::kMaxHandshake);
  bytes.resize(wire::encode(plain, bytes.data()));
  give(bytes, 1);             // refused: plain
  give(spoofed_hello(6), 2);  // refused: no such key
  // One with a pinned key, whose private half the attacker lacks: ACCEPT, and never more.
  wire::HelloPacket h = plain;
  h.nonce = 7;
  h.params.suite_count = 1;
  h.params.suites = {1};
  h.params.security.mode = 2;
  h.params.security.ephemeral = secure::x25519_public(test_secret(9));
  h.params.security.static_key = own_key(1, "").public_key;
  bytes.assign(wire::kMaxHandshake, std::byte{0});
  bytes.resize(wire::encode(h, bytes.data()));
  for (int i = 0; i < 5; ++i) give(bytes, 3);
  EXPECT_GT(drawn, 0u);
  net.run_for(seconds(6));
  EXPECT_LE(drawn, sent);
}

TEST(Threat, MalformedTlvsDropThePacketAndNothingElse) {
  MR_COVERS("MR-WIRE-056");
  MR_COVERS("MR-WIRE-063");
  SecureNet net(psk_config(), psk_config());
  const auto good = spoofed_hello(1);
  const size_t tlvs = wire::load32(good.data() + 28) & 0xFFFF;
  Rng rng(11);
  for (int i = 0; i < 3000; ++i) {
    auto bad = good;
    for (int k = 0; k < 3; ++k) {
      bad[wire::kHelloFixed + rng.below(tlvs)] = static_cast<std::byte>(rng.next32());
    }
    wire::store64(bad.data() + 12, rng.next());
    const auto length = static_cast<uint32_t>(rng.below(700));
    if (i % 3 == 0) wire::store32(bad.data() + 28, 1u << 24 | length);
    net.send_raw(1, stranger(static_cast<uint8_t>(i)), bad);
  }
  net.run_for(milliseconds(2));
  EXPECT_GT(net.dropped(1, DropReason::kBadTlv) + net.dropped(1, DropReason::kBadLength), 100u);
  EXPECT_EQ(net.count(1, engine::ConnectionEventKind::kAccepted), 0u);
  EXPECT_TRUE(net.open());
}

// What an on-path attacker puts behind an ACCEPT is read in one go with it, before there are keys.
TEST(Threat, NothingPlainIsTakenWithTheAcceptThatBringsTheKeys) {
  MR_COVERS("MR-SEC-003");
  Watched net;
  std::vector<std::byte> accept;
  net.meddle = [&](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
    if (from == 0 || type_of_packet(bytes) != PacketType::kAccept) return true;
    accept = bytes;
    return false;
  };
  net.handle = net.connect(0, 1);
  ASSERT_TRUE(net.run_until([&] { return !accept.empty(); }, milliseconds(100)));
  wire::ControlPacket close;
  close.s.connection = wire::load32(accept.data() + 4);
  close.s.path_seq = wire::load32(accept.data() + 20);
  close.s.cpsn = wire::load32(accept.data() + 24);
  close.opcode = wire::ControlOpcode::kClose;
  std::vector<std::byte> forged(128);
  forged.resize(wire::encode(close, forged.data()));
  engine::RxPacket rx[2] = {{accept, Ecn::kEct0, 0, net.node(1).address},
                            {forged, Ecn::kEct0, 0, net.node(1).address}};
  for (engine::RxPacket& packet : rx) {  // as a driver does it
    size_t body = 0;
    const std::span<std::byte> bytes = packet.bytes.data() == accept.data()
                                           ? std::span<std::byte>(accept)
                                           : std::span<std::byte>(forged);
    ASSERT_EQ(net[0].open(net.now, bytes, packet.from, 0, body), engine::Opening::kPlain);
  }
  engine::Placement to[2];
  net[0].on_packets(net.now, rx, to);
  net.run_for(milliseconds(5));
  EXPECT_EQ(net.count(0, engine::ConnectionEventKind::kConnected), 1u);
  EXPECT_EQ(net.count(0, engine::ConnectionEventKind::kClosed), 0u);
  EXPECT_EQ(net.dropped(0, DropReason::kBadTag), 1u);
  EXPECT_TRUE(net.write(0, 0, 64));
}

// Who has no key sends our own HELLO back to us, so that we answer it with the key that we have.
TEST(Threat, ItsOwnHelloIsNoPeer) {
  MR_COVERS("MR-SEC-014");
  MiniNet net({});
  net.add(true, nullptr, 1, psk_config());
  net.add(true, nullptr, 1, psk_config());
  net.meddle = [&](uint32_t from, uint32_t to, std::vector<std::byte>& bytes) {
    if (from == 0)
      net.send_raw(0, net.node(1).address, bytes, type_of_packet(bytes) < PacketType::kHello);
    return from == 0 && to == 0;  // the true peer hears nothing
  };
  net.connect(0, 1);
  net.run_for(seconds(8));
  EXPECT_EQ(net.count(0, engine::ConnectionEventKind::kConnected), 0u);
  EXPECT_EQ(net.count(0, engine::ConnectionEventKind::kAccepted), 0u);
  EXPECT_EQ(net.count(0, engine::ConnectionEventKind::kFailed), 1u);
}

// A HELLO from where a third party lives, its copy from the attacker's own address.
TEST(Threat, ACopyOfAHelloAimsNothingAtAThirdParty) {
  MR_COVERS("MR-CONN-012");
  WirePeer p;
  const auto hello = WirePeer::bytes_of(p.hello);
  SocketAddress victim = plane_address(0, 1, 50'000);
  victim.bytes[3] = 77;
  engine::RxPacket rx{hello, Ecn::kEct0, 0, victim};
  engine::Placement placement;
  p.engine().on_packets(p.now, {&rx, 1}, {&placement, 1});
  p.poll();
  ASSERT_TRUE(p.say_hello());
  p.give(p.confirm());
  ASSERT_EQ(p.post(p.request(engine::Operation::kWrite, 1, 5000)), Status::kOk);
  uint32_t mine = 0;
  for (const WirePeer::Sent& s : p.run(milliseconds(100))) {
    EXPECT_FALSE(s.to.same_host(victim));
    ++mine;
  }
  EXPECT_GT(mine, 0u);
}

TEST(Threat, KeysOfLowOrderAreKnownBeforeAnythingIsComputed) {
  MR_COVERS("MR-SEC-011");
  const std::string ff(60, 'f');
  const std::string points[] = {
      std::string(64, '0'),
      "01" + std::string(62, '0'),
      "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
      "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
      "ec" + ff + "7f",
      "ed" + ff + "7f",
      "ee" + ff + "7f",
  };
  for (const std::string& point : points) {
    for (const std::byte high : {std::byte{0}, std::byte{0x80}}) {
      secure::PublicKey key{};
      ASSERT_TRUE(secure::from_hex(point, key)) << point;
      key[31] |= high;
      secure::Secret shared;
      EXPECT_FALSE(secure::x25519(test_secret(7), key, shared)) << point;
      EXPECT_TRUE(secure::is_low_order(key)) << point;
      key[5] ^= std::byte{4};
      EXPECT_TRUE(secure::x25519(test_secret(7), key, shared)) << point;
      EXPECT_FALSE(secure::is_low_order(key)) << point;
    }
  }
  SecureNet net(psk_config(), psk_config());
  for (int i = 0; i < 2000; ++i) {
    auto hello = *wire::decode_hello(spoofed_hello(1 + static_cast<uint64_t>(i)));
    hello.params.security.ephemeral = {};
    hello.params.security.ephemeral[31] = std::byte{0x80};
    std::vector<std::byte> bytes(wire::kMaxHandshake);
    bytes.resize(wire::encode(hello, bytes.data()));
    net.send_raw(1, stranger(static_cast<uint8_t>(i)), bytes);
  }
  net.run_for(milliseconds(1));
  EXPECT_EQ(net.dropped(1, DropReason::kBadField), 2000u);
  // None got a place, or its nonce would be remembered.
  net.drop = [](uint32_t, const std::vector<std::byte>&) { return true; };
  net.send_raw(1, stranger(), spoofed_hello(2000));  // the last
  net.run_for(milliseconds(1));
  EXPECT_EQ(net[1].memory().connections, 1u);
}

TEST(Threat, ABadPublicKeyGetsNoAnswer) {
  MR_COVERS("MR-SEC-010");
  SecureNet net(psk_config(), psk_config());
  auto hello = *wire::decode_hello(spoofed_hello(1));
  hello.params.security.ephemeral = {};  // of low order: the shared secret would be zero
  std::vector<std::byte> bytes(wire::kMaxHandshake);
  bytes.resize(wire::encode(hello, bytes.data()));
  bool accepted = false;
  net.on_packet = [&](uint32_t from, uint32_t, const std::vector<std::byte>& b) {
    accepted = accepted || (from == 1 && type_of_packet(b) == PacketType::kAccept);
  };
  net.send_raw(1, stranger(), bytes);
  net.run_for(milliseconds(5));
  EXPECT_FALSE(accepted);
  EXPECT_EQ(net[1].memory().connections, 0u);
}

TEST(Threat, GuessedKeysAreAnsweredSoOftenASecond) {
  MR_COVERS("MR-SEC-013");
  MiniNet::Options options;
  options.settings.key_guesses = 50;
  SecureNet net(psk_config(), psk_config(), options);
  ASSERT_TRUE(net.open());
  net.write(0, 0, 64);
  const auto guess = [&](int n) {
    for (int i = 0; i < n; ++i) {
      engine::WorkRequest r;
      r.id = ++net.last_id;
      r.connection = net.handle;
      r.stream = static_cast<uint16_t>(i % 64);
      r.operation = engine::Operation::kWrite;
      r.local = net.data.data();
      r.length = 64;
      r.remote_address = 0x10000;
      r.remote_key = net.region.key + 1 + static_cast<uint32_t>(i);
      Status status = Status::kOk;
      net[0].post(net.now, {&r, 1}, status);
    }
  };
  guess(300);
  net.run_for(milliseconds(400));
  engine::PathStatus paths[16];
  const auto refused = [&] {
    uint64_t sum = 0;
    const size_t n = net[1].path_status(net.answered(), paths);
    for (size_t i = 0; i < n; ++i) sum += paths[i].counters.rx_refused;
    return sum;
  };
  EXPECT_EQ(refused(), 50u) << "answers of the first second";
  EXPECT_GT(net.dropped(1, DropReason::kKeyGuess), 0u);
  EXPECT_EQ(net.node(1).placed_bytes, 64u);
}

TEST(Threat, NewConnectionsBringNoNewGuesses) {
  MR_COVERS("MR-SEC-013");
  MiniNet::Options options;
  options.settings.key_guesses = 50;
  SecureNet net(psk_config(), psk_config(), options);
  const Time begin = net.now;
  for (int round = 0; round < 8; ++round) {
    net.node(0).events.clear();
    net.node(1).events.clear();
    ASSERT_TRUE(net.open());
    for (uint16_t stream = 0; stream < 20; ++stream) {
      engine::WorkRequest r;
      r.id = ++net.last_id;
      r.connection = net.handle;
      r.stream = stream;
      r.operation = engine::Operation::kWrite;
      r.local = net.data.data();
      r.length = 64;
      r.remote_address = 0x10000;
      r.remote_key = net.region.key + 1 + stream;
      Status status = Status::kOk;
      net[0].post(net.now, {&r, 1}, status);
    }
    net.run_for(milliseconds(2));
    net[0].close(net.now, net.handle, 0);
    net.run_for(milliseconds(40));
  }
  ASSERT_LT(net.now - begin, seconds(1));
  EXPECT_GE(net.dropped(1, DropReason::kKeyGuess), 8 * 20 - 50u);
}

TEST(Threat, AHostilePeerWithTheKeyStaysWithinItsLimits) {
  MR_COVERS("MR-SEC-004");
  // It has the key, and sends well-sealed nonsense: every word of every packet at random, beyond
  // every limit. Nothing but its own connection suffers.
  SecureNet net(psk_config(), psk_config());
  ASSERT_TRUE(net.open());
  const uint32_t honest = net.add(false, nullptr, 1, psk_config());
  net.connect(honest, 1);
  net.run_for(milliseconds(20));
  Rng rng(23);
  uint64_t changed = 0;
  // The packets are changed before they are sealed, so their tags are good.
  net.before_sealing = [&](uint32_t from, std::byte* header, size_t length) {
    if (from != 0 || rng.below(3) != 0) return;
    ++changed;
    const size_t first = rng.below(2) == 0 ? 12 : 16;
    const size_t at = first + 4 * rng.below((length - first) / 4);
    const uint32_t extreme[] = {0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, rng.next32()};
    if (at + 4 <= length) wire::store32(header + at, extreme[rng.below(5)]);
  };
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 5; ++i) {
      net.post_write(0, ++net.last_id, rng.below(1000) * 16, 1 + rng.below(60'000));
      net.run_for(milliseconds(1));
    }
    net[0].close(net.now, net.handle, rng.next32());
    net.run_for(milliseconds(20));
    net.handle = net.connect(0, 1);
    net.run_for(milliseconds(5));
  }
  EXPECT_GT(changed, 200u);
  EXPECT_LE(net[1].memory().connections, 16u);
  EXPECT_LE(net[1].memory().awake_paths, 64u);
  EXPECT_EQ(net.node(honest).events.size(), 1u) << "the honest one notices nothing";
  EXPECT_EQ(net.node(honest).events[0].kind, engine::ConnectionEventKind::kConnected);
}

TEST(Threat, AnswersDoNotTellWhichIdsAreInUse) {
  MR_COVERS("MR-CONN-021");
  Watched net;
  ASSERT_TRUE(net.open());
  ASSERT_TRUE(net.write(0, 0, 64));
  const auto answers = [&](uint32_t id) {
    auto probe = *net.last(PacketType::kData);
    wire::store32(probe.data() + 4, id);
    probe.resize(probe.size() - wire::kTagBytes);
    size_t heard = 0;
    net.on_packet = [&](uint32_t from, uint32_t to, const std::vector<std::byte>& bytes) {
      heard +=
          from == 1 && to == net.size() && type_of_packet(bytes) == PacketType::kUnknownConnection;
    };
    net.send_raw(1, stranger(), probe);
    net.run_for(milliseconds(20));
    return heard;
  };
  EXPECT_EQ(answers(net.answered()), 1u);
  EXPECT_EQ(answers(net.answered() ^ 1), 1u);
}

TEST(Threat, NumbersOfAProductAreNotOfASeed) {
  MR_COVERS("MR-SEC-008");
  // A source that is asked: ids, nonces, start numbers, ephemeral and region keys come from it.
  struct Counting final : RandomSource {
    void fill(std::span<std::byte> out) override {
      bytes += out.size();
      rng.fill(out);
    }
    Rng rng{99};
    size_t bytes = 0;
  };
  Counting source;
  engine::EngineConfig config;
  config.settings = MiniNet::mini_settings();
  config.local = {stranger(1)};
  config.security = psk_config();
  engine::Engine engine(config, Rng(source));
  const size_t at_start = source.bytes;
  EXPECT_GE(at_start, 16u) << "the key of cookies";
  ASSERT_TRUE(engine.regions().add_at(nullptr, 100, memory::access::kRemoteWrite, 0));
  EXPECT_GT(source.bytes, at_start) << "a key of a region";
  const size_t before = source.bytes;
  ASSERT_TRUE(engine.connect(Time{0}, {{stranger(2)}}));
  EXPECT_GE(source.bytes - before, 8u + 8 + 8 + 32) << "id, nonce, start numbers, ephemeral key";
}

}  // namespace
}  // namespace metaroce::pair
