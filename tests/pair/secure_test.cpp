// Secured connections in virtual time: who gets one, what it carries, how its keys go on.
#include <gtest/gtest.h>

#include "base/covers.h"
#include "secure/key_schedule.h"
#include "tests/pair/secure_support.h"

namespace metaroce::pair {
namespace {

using secure::Policy;
using secure::Suite;
using wire::DropReason;
using wire::SetupRefusal;

/// A write of each side arrives as it was, and nothing failed its tag.
void expect_works(SecureNet& net) {
  ASSERT_TRUE(net.open());
  EXPECT_TRUE(net.write(0, 0, 300'000));
  EXPECT_TRUE(net.write(1, 1000, 200'000));
  EXPECT_EQ(net.dropped(0, DropReason::kBadTag), 0u);
  EXPECT_EQ(net.dropped(1, DropReason::kBadTag), 0u);
}

TEST(Secure, EverySuiteInBothModes) {
  MR_COVERS("MR-SEC-004");
  MR_COVERS("MR-SEC-009");
  MR_COVERS("MR-SEC-010");
  for (uint8_t suite = 1; suite <= secure::kLastSuite; ++suite) {
    for (const bool psk : {true, false}) {
      secure::Config a = psk ? psk_config() : x25519_config(1, {2});
      const secure::Config b = psk ? psk_config() : x25519_config(2, {1});
      a.suites = {static_cast<Suite>(suite)};
      SecureNet net(a, b);
      expect_works(net);
      EXPECT_EQ(net.status(0).suite, suite);
      EXPECT_EQ(net.status(1).suite, suite);
      EXPECT_STREQ(net.status(0).peer_name, psk ? "lab" : "host-2");
      EXPECT_STREQ(net.status(1).peer_name, psk ? "lab" : "host-1");
    }
  }
}

TEST(Secure, PayloadAndTagAreNotWhatPlainModeSends) {
  MR_COVERS("MR-SEC-004");
  SecureNet net(psk_config(), psk_config());
  ASSERT_TRUE(net.open());
  uint64_t data_packets = 0;
  net.on_packet = [&](uint32_t from, uint32_t, const std::vector<std::byte>& bytes) {
    if (from != 0 || type_of_packet(bytes) != wire::PacketType::kData) return;
    ++data_packets;
    // 16 bytes of the payload in a row would be found in the data if they were not encrypted.
    const auto piece = std::span(bytes).subspan(44, 16);
    EXPECT_TRUE(std::search(net.data.begin(), net.data.end(), piece.begin(), piece.end()) ==
                net.data.end());
  };
  EXPECT_TRUE(net.write(0, 0, 100'000));
  EXPECT_GT(data_packets, 10u);
}

TEST(Secure, EveryPairOfPoliciesEndsAsItMust) {
  MR_COVERS("MR-SEC-007");
  const auto config = [](Policy policy) {
    return policy == Policy::kPlain ? secure::Config{} : psk_config(1, "lab", policy);
  };
  for (const Policy a : {Policy::kPlain, Policy::kOffered, Policy::kRequired}) {
    for (const Policy b : {Policy::kPlain, Policy::kOffered, Policy::kRequired}) {
      SecureNet net(config(a), config(b));
      const bool secured = a != Policy::kPlain && b != Policy::kPlain;
      const bool possible = secured || (a != Policy::kRequired && b != Policy::kRequired);
      EXPECT_EQ(net.open(), possible) << int(a) << int(b);
      if (possible) {
        EXPECT_EQ(net.status(0).suite != 0, secured);
        EXPECT_TRUE(net.write(0, 0, 10'000));
      } else {
        uint32_t why = 0;
        EXPECT_EQ(net.failure(&why), Status::kNotTrusted);
        EXPECT_EQ(why, static_cast<uint32_t>(a == Policy::kRequired
                                                 ? SetupRefusal::kNoSecurity
                                                 : SetupRefusal::kSecurityRequired));
        EXPECT_EQ(net[1].memory().connections, 0u) << "nothing is kept";
      }
    }
  }
}

TEST(Secure, WrongKeysAreTold) {
  MR_COVERS("MR-SEC-009");
  MR_COVERS("MR-SEC-010");
  const auto why = [](const secure::Config& a, const secure::Config& b) {
    SecureNet net(a, b);
    EXPECT_FALSE(net.open());
    uint32_t detail = 0;
    EXPECT_EQ(net.failure(&detail), Status::kNotTrusted);
    EXPECT_EQ(net.count(1, engine::ConnectionEventKind::kAccepted), 0u);
    return static_cast<SetupRefusal>(detail);
  };
  EXPECT_EQ(why(psk_config(1), psk_config(2)), SetupRefusal::kWrongProof) << "another key";
  EXPECT_EQ(why(psk_config(1, "a"), psk_config(1, "b")), SetupRefusal::kUnknownKey);
  EXPECT_EQ(why(psk_config(), x25519_config(2, {1})), SetupRefusal::kUnknownKey);
  EXPECT_EQ(why(x25519_config(1, {2}), x25519_config(2, {3})), SetupRefusal::kUnknownKey)
      << "the responder does not know the initiator";
  EXPECT_EQ(why(x25519_config(1, {3}), x25519_config(2, {1})), SetupRefusal::kUnknownKey)
      << "the initiator does not know the responder";
  secure::Config aes = psk_config();
  secure::Config chacha = psk_config();
  aes.suites = {Suite::kAes128Gcm};
  chacha.suites = {Suite::kChaCha20Poly1305};
  EXPECT_EQ(why(aes, chacha), SetupRefusal::kNoSuite);
}

TEST(Secure, OneOfSeveralIdentitiesByName) {
  secure::Config a = psk_config(1, "one");
  a.psks.push_back({"two", test_secret(2)});
  SecureNet net(a, psk_config(2, "two"));
  EXPECT_EQ(net.connect(0, 1, "three"), 0u) << "no such identity";
  EXPECT_TRUE(net.open("two"));
  EXPECT_STREQ(net.status(1).peer_name, "two");

  secure::Config server = x25519_config(5, {1});
  server.own.push_back(own_key(6, "second"));
  SecureNet other(x25519_config(1, {6, 7}), server);
  EXPECT_EQ(other.connect(0, 1, "", "host-9"), 0u) << "no such pinned key";
  EXPECT_TRUE(other.open("", "host-6")) << "the responder takes the key that is wanted";
  EXPECT_STREQ(other.status(0).peer_name, "host-6");
  SecureNet third(x25519_config(1, {6, 7}), server);
  EXPECT_FALSE(third.open("", "host-7"));
}

TEST(Secure, ASharedKeyProvesNoName) {
  MR_COVERS("MR-SEC-020");
  // Whoever has the shared key answers as node 1; only the key of host-2 makes it host-2.
  secure::Config asks = psk_config();
  asks.peers.push_back({"host-2", own_key(2, "").public_key});
  SecureNet net(asks, psk_config());
  EXPECT_EQ(net.connect(0, 1, "lab", "host-2"), 0u);
  EXPECT_EQ(net.connect(0, 1, "", "host-2"), 0u);
  EXPECT_TRUE(net.open("lab"));

  // With an own key beside it, that one is used.
  secure::Config both = x25519_config(1, {2});
  both.psks.push_back({"lab", test_secret(1)});
  secure::Config answers = x25519_config(2, {1});
  answers.psks.push_back({"lab", test_secret(1)});
  SecureNet other(both, answers);
  EXPECT_EQ(other.connect(0, 1, "lab", "host-2"), 0u);
  EXPECT_TRUE(other.open("", "host-2"));
  EXPECT_STREQ(other.status(0).peer_name, "host-2");
}

TEST(Secure, TheReasonSaysWhatTheEngineDoes) {
  MR_COVERS("MR-SEC-020");
  secure::Config both = x25519_config(1, {2});
  both.psks.push_back({"lab", test_secret(1)});
  secure::Config shared = psk_config();
  shared.peers.push_back({"host-2", own_key(2, "").public_key});
  secure::Config mute = psk_config();
  mute.own.push_back(own_key(1, "host-1"));
  for (const secure::Config& config :
       {secure::Config{}, psk_config(), x25519_config(1, {2}), both, shared, mute}) {
    for (const std::string identity : {"", "lab", "host-1", "other"}) {
      for (const std::string peer : {"", "host-2", "other"}) {
        SecureNet net(config, config);
        EXPECT_EQ(net.connect(0, 1, identity, peer) != 0,
                  secure::unusable_names(config, identity, peer).empty())
            << identity << '/' << peer << ": " << secure::unusable_names(config, identity, peer);
      }
    }
  }
}

TEST(Secure, OneThatIsPinnedIsNotAnother) {
  MR_COVERS("MR-SEC-010");
  // Both keys are pinned, but this attempt is for one of them: the answer comes from the other.
  SecureNet net(x25519_config(1, {6, 7}), x25519_config(7, {1}));
  net.meddle = [](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
    if (from == 0 && type_of_packet(bytes) == wire::PacketType::kHello) {
      auto hello = *wire::decode_hello(bytes);
      hello.params.security.wanted = {};
      bytes.resize(wire::kMaxHandshake);
      bytes.resize(wire::encode(hello, bytes.data()));
    }
    return true;
  };
  EXPECT_FALSE(net.open("", "host-6"));
  uint32_t why = 0;
  EXPECT_EQ(net.failure(&why), Status::kNotTrusted);
  EXPECT_EQ(why, static_cast<uint32_t>(SetupRefusal::kUnknownKey));
}

/// Every bit of what both packets say is bound to the keys: changed on the way, nobody opens.
TEST(Secure, WhatIsChangedOnTheWayEndsTheSetUp) {
  MR_COVERS("MR-SEC-009");
  MR_COVERS("MR-SEC-007");
  MR_COVERS("MR-CONN-012");
  const auto opens_with = [](bool accept, size_t at, bool& there) {
    SecureNet net(x25519_config(1, {2}), x25519_config(2, {1}));
    there = false;
    net.meddle = [&](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
      const auto type = accept ? wire::PacketType::kAccept : wire::PacketType::kHello;
      if (from != (accept ? 1u : 0u) || type_of_packet(bytes) != type) return true;
      const size_t fixed = accept ? wire::kAcceptFixed : wire::kHelloFixed;
      const size_t end = fixed + (wire::load32(bytes.data() + 28) & 0xFFFF);
      there = at < end;
      // w7 with the number of paths and w8-9 (the echoed nonce) are judged by themselves.
      // Nor does the proof vouch for its own length and padding.
      const bool aside = (at >= 28 && at < fixed) ||
                         (accept && (at == end - 19 || at == end - 2 || at == end - 1));
      there = there && !aside;
      if (there) bytes[at] ^= std::byte{1};
      return true;
    };
    net.handle = net.connect(0, 1);
    net.run_for(milliseconds(300));
    return net.count(0, engine::ConnectionEventKind::kConnected) > 0 ||
           net.count(1, engine::ConnectionEventKind::kAccepted) > 0;
  };
  for (const bool accept : {false, true}) {
    size_t tried = 0;
    for (size_t at = 8; at < 400; ++at) {
      bool there = false;
      const bool opened = opens_with(accept, at, there);
      if (!there) continue;
      ++tried;
      EXPECT_FALSE(opened) << (accept ? "ACCEPT" : "HELLO") << " byte " << at;
    }
    EXPECT_GT(tried, 120u);
  }
}

TEST(Secure, StrippingTheOfferOpensNoPlainConnection) {
  MR_COVERS("MR-SEC-007");
  // Somebody on the way makes both sides believe that the other one is plain.
  for (const bool answer_plain : {false, true}) {
    SecureNet net(psk_config(), answer_plain ? secure::Config{}
                                             : psk_config(1, "lab", Policy::kOffered));
    net.meddle = [](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
      if (from != 0 || type_of_packet(bytes) != wire::PacketType::kHello) return true;
      auto hello = *wire::decode_hello(bytes);
      hello.params.security = {};
      hello.params.suite_count = 0;
      hello.params.suites = {};
      bytes.resize(wire::kMaxHandshake);
      bytes.resize(wire::encode(hello, bytes.data()));
      return true;
    };
    EXPECT_FALSE(net.open());
    EXPECT_EQ(net.failure(), Status::kNotTrusted);
    EXPECT_EQ(net.count(0, engine::ConnectionEventKind::kConnected), 0u);
  }
}

TEST(Secure, AWeakerSuiteCannotBePickedByOthers) {
  MR_COVERS("MR-SEC-007");
  SecureNet net(psk_config(), psk_config());
  net.meddle = [](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
    if (from == 0 && type_of_packet(bytes) == wire::PacketType::kHello) {
      auto hello = *wire::decode_hello(bytes);
      hello.params.suites = {3};
      hello.params.suite_count = 1;
      bytes.resize(wire::kMaxHandshake);
      bytes.resize(wire::encode(hello, bytes.data()));
    }
    return true;
  };
  EXPECT_FALSE(net.open());
  uint32_t why = 0;
  EXPECT_EQ(net.failure(&why), Status::kNotTrusted);
  EXPECT_EQ(why, static_cast<uint32_t>(SetupRefusal::kWrongProof));
}

TEST(Secure, ASealedPacketCountsAsConfirm) {
  MR_COVERS("MR-CONN-014");
  SecureNet net(psk_config(), psk_config());
  net.meddle = [](uint32_t, uint32_t, std::vector<std::byte>& bytes) {
    return type_of_packet(bytes) != wire::PacketType::kConfirm;
  };
  expect_works(net);
}

TEST(Secure, APlainPacketIsNoConfirm) {
  MR_COVERS("MR-CONN-014");
  SecureNet net(psk_config(), psk_config());
  net.meddle = [](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
    return from != 0 || type_of_packet(bytes) == wire::PacketType::kHello;
  };
  net.handle = net.connect(0, 1);
  engine::ConnectionHandle half[4] = {};
  ASSERT_TRUE(net.run_until([&] { return net[1].connections(half) > 0; }, milliseconds(100)));
  wire::ProbePacket probe;
  probe.s.connection = half[0];
  std::vector<std::byte> bytes(wire::kProbeBytes);
  wire::encode(probe, bytes.data());
  net.send_raw(1, net.node(0).address, bytes);
  net.run_for(milliseconds(10));
  EXPECT_EQ(net.count(1, engine::ConnectionEventKind::kAccepted), 0u);
  EXPECT_GT(net.dropped(1, DropReason::kTooShort) + net.dropped(1, DropReason::kBadTag), 0u);
}

TEST(Secure, BothAskAtOnceAndGetOneConnection) {
  MiniNet net({.seed = 5});
  net.add(true, nullptr, 1, x25519_config(1, {2}));
  net.add(true, nullptr, 1, x25519_config(2, {1}));
  const auto a = net.connect(0, 1);
  const auto b = net.connect(1, 0);
  net.run_for(milliseconds(300));
  engine::ConnectionStatus s;
  ASSERT_TRUE(net[0].connection_status(a, s));
  EXPECT_EQ(s.state, engine::ConnectionState::kOpen);
  EXPECT_NE(s.suite, 0);
  ASSERT_TRUE(net[1].connection_status(b, s));
  EXPECT_EQ(s.state, engine::ConnectionState::kOpen);
  EXPECT_NE(s.suite, 0);
}

// ---- keys go on --------------------------------------------------------------------------------

PairConfig updating(uint64_t seed) {
  PairConfig config;
  config.seed = seed;
  config.network.planes = 2;
  config.settings.key_update_packets = 256;
  config.settings.paths_per_plane = 2;
  config.security = {x25519_config(1, {2}), x25519_config(2, {1})};
  return config;
}

uint64_t bad_tags(Pair& pair, int side) {
  return pair.engine(side).drops()[static_cast<size_t>(DropReason::kBadTag)];
}

Impairment everywhere(ImpairmentKind kind, uint32_t ppm) {
  Impairment i;
  i.kind = kind;
  i.probability = per_million(ppm);
  return i;
}

TEST(Secure, KeysGoOnUnderLossAndReorderingAndLoseNothing) {
  MR_COVERS("MR-SEC-006");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Pair pair(updating(seed));
    ASSERT_TRUE(pair.connect());
    pair.network().add(everywhere(ImpairmentKind::kLoss, 100'000));
    Impairment reorder = everywhere(ImpairmentKind::kReorder, 50'000);
    reorder.min = microseconds(1);
    reorder.max = microseconds(30);
    pair.network().add(reorder);
    uint64_t posted = 0;
    for (int round = 0; round < 40; ++round) {
      for (int side = 0; side < 2; ++side) {
        ASSERT_EQ(pair.write(side, 1, ++posted, 0, 1 << 18), Status::kOk);
      }
      ASSERT_TRUE(pair.run_until(
          [&] { return pair.counts(0).completions + pair.counts(1).completions >= posted; },
          seconds(5)))
          << "seed " << seed << " round " << round;
    }
    for (int side = 0; side < 2; ++side) {
      engine::ConnectionStatus s;
      ASSERT_TRUE(pair.engine(side).connection_status(pair.connection(side), s));
      EXPECT_GE(s.key_updates, 5u) << "seed " << seed << " side " << side;
      EXPECT_EQ(bad_tags(pair, side), 0u) << "seed " << seed;
      EXPECT_EQ(pair.counts(side).failed, 0u);
      EXPECT_EQ(pair.counts(side).wrong_bytes, 0u);
      EXPECT_EQ(pair.wrong_in_region(side, 0, 1 << 18), 0u);
    }
  }
}

TEST(Secure, AnUpdateStopsNobody) {
  MR_COVERS("MR-SEC-006");
  // The same transfer with and without updates takes the same time, but for the control packets.
  const auto duration = [](uint32_t every) {
    PairConfig config = updating(3);
    config.settings.key_update_packets = every;
    Pair pair(config);
    EXPECT_TRUE(pair.connect());
    const Time begin = pair.now();
    uint64_t posted = 0;
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(pair.write(0, 1, ++posted, 0, 1 << 20), Status::kOk);
    }
    EXPECT_TRUE(pair.run_until([&] { return pair.counts(0).completions >= posted; }, seconds(5)));
    engine::ConnectionStatus s;
    EXPECT_TRUE(pair.engine(0).connection_status(pair.connection(0), s));
    EXPECT_EQ(s.key_updates > 0, every < 1'000'000);
    return pair.now() - begin;
  };
  const Duration never = duration(4'000'000);
  const Duration often = duration(256);
  EXPECT_LE(often.ns, never.ns + never.ns / 50);
}

TEST(Secure, AKeyIsNotWornOutByAPeerThatDoesNotTakeTheNext) {
  MR_COVERS("MR-SEC-006");
  MiniNet::Options options;
  options.settings.key_update_packets = 256;
  options.settings.key_limit_packets = 1024;
  SecureNet net(psk_config(), psk_config(), options);
  ASSERT_TRUE(net.open());
  uint64_t sealed = 0;
  net.meddle = [&](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
    const auto type = type_of_packet(bytes);
    if (from != 0 || type > wire::PacketType::kAckWideRefused) return true;
    const bool update = type == wire::PacketType::kControl &&
                        bytes[22] == static_cast<std::byte>(wire::ControlOpcode::kKeyUpdate);
    sealed += (static_cast<uint8_t>(bytes[1]) & wire::flag::kPhase) != 0;
    return !update;
  };
  for (int i = 0; i < 8 && net.count(0, engine::ConnectionEventKind::kLost) == 0; ++i) {
    net.write(0, 0, 1 << 19, milliseconds(200));
  }
  ASSERT_EQ(net.count(0, engine::ConnectionEventKind::kLost), 1u);
  EXPECT_EQ(net.node(0).events.back().status, Status::kUnresponsive);
  EXPECT_GE(sealed, 1024u);
  EXPECT_LE(sealed, 1024u + 128u) << "what one call sends may still follow";
}

TEST(Secure, PathsThatOpenAgainCountAnew) {
  MR_COVERS("MR-SEC-004");
  PairConfig config = updating(7);
  Pair pair(config);
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.write(0, 1, 1, 0, 1 << 18), Status::kOk);
  const SocketAddress moved = plane_address(1, 4, wire::kBasePort);
  pair.network().move(1, 0, moved);
  pair.engine(0).set_local_address(pair.now(), 1, moved);
  pair.poll(0);
  pair.run_for(milliseconds(50));
  ASSERT_EQ(pair.write(0, 1, 2, 0, 1 << 20), Status::kOk);
  ASSERT_EQ(pair.write(1, 1, 3, 0, 1 << 20), Status::kOk);
  ASSERT_TRUE(pair.run_until(
      [&] { return pair.counts(0).completions + pair.counts(1).completions >= 3; }, seconds(2)));
  for (const auto& path : pair.paths(0)) EXPECT_EQ(path.state, engine::PathState::kGood);
  EXPECT_EQ(pair.wrong_in_region(1, 0, 1 << 20), 0u);
  EXPECT_EQ(bad_tags(pair, 0) + bad_tags(pair, 1), 0u);
}

}  // namespace
}  // namespace metaroce::pair
