// Who knows only what is public: fake initiators and responders that make up the secrets they lack.
// The keys are derived here once more, from the packets alone, so that each of the three results
// ee, es and se is missed when the engine leaves it out (tests/mutants).
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/covers.h"
#include "base/siphash.h"
#include "connection/transcript.h"
#include "secure/hash.h"
#include "secure/key_schedule.h"
#include "secure/x25519.h"
#include "tests/pair/secure_support.h"

namespace metaroce::pair {
namespace {

using engine::ConnectionEventKind;
using secure::PublicKey;
using secure::Secret;
using wire::PacketType;

constexpr uint32_t kFakeId = 0x00051234;
constexpr uint64_t kInitiator = 1;  ///< seeds of the static keys
constexpr uint64_t kResponder = 2;

Secret dh(const Secret& own, const PublicKey& theirs) {
  Secret out;
  EXPECT_TRUE(secure::x25519(own, theirs, out));
  return out;
}

/// A guess at the input of the key derivation, and what it is made of.
struct Guess {
  const char* of;
  std::vector<Secret> inputs;
};

/// HELLO and ACCEPT as they were on the wire, and what follows from them and a guess.
struct Exchange {
  std::vector<std::byte> hello, accept;

  wire::SecurityOffer offer(bool of_initiator) const {
    return wire::decode_hello(of_initiator ? hello : accept)->params.security;
  }
  template <class Hash>
  void absorb_both(Hash& hash) const {
    connection::absorb(hash, hello, wire::kHelloFixed);
    connection::absorb(hash, accept, wire::kAcceptFixed);
  }
  secure::Digest digest() const {
    secure::Sha256 hash;
    absorb_both(hash);
    return hash.finish();
  }
  secure::HandshakeKeys keys(const Guess& guess) const {
    secure::HandshakeKeys keys;
    secure::derive(digest(), guess.inputs, keys);
    return keys;
  }
  secure::Proof proof(const Guess& guess) const {
    return secure::accept_proof(keys(guess), digest());
  }
  /// What CONFIRM carries in plain mode (MR-CONN-011); everybody can compute it.
  uint64_t plain_mac() const {
    const uint64_t initiator = wire::decode_hello(hello)->nonce;
    const uint64_t responder = wire::decode_hello(accept)->nonce;
    SipHash hash(__builtin_bswap64(initiator), __builtin_bswap64(responder));
    absorb_both(hash);
    return __builtin_bswap64(hash.finish());
  }
};

wire::HelloPacket fake_packet(uint64_t own_static, const Secret& ephemeral) {
  wire::HelloPacket h;
  h.own_connection = kFakeId;
  h.nonce = 0x1122334455667788;
  h.start_seq = 1000;
  h.start_cpsn = 2000;
  h.paths = 1;
  h.params.suites = {1};
  h.params.suite_count = 1;
  h.params.security.mode = 2;
  h.params.security.required = true;
  h.params.security.ephemeral = secure::x25519_public(ephemeral);
  h.params.security.static_key = own_key(own_static, "").public_key;
  return h;
}

std::vector<std::byte> bytes_of(const wire::HelloPacket& packet) {
  std::vector<std::byte> bytes(wire::kMaxHandshake);
  bytes.resize(wire::encode(packet, bytes.data()));
  return bytes;
}

/// Node 0 asks node 1, and somebody else answers, with a proof made from a guess.
bool fake_responder_is_believed(const std::function<Guess(const Exchange&, const Secret&)>& guess) {
  SecureNet net(x25519_config(kInitiator, {kResponder}), x25519_config(kResponder, {kInitiator}));
  Exchange seen;
  const Secret ephemeral = test_secret(77);
  net.meddle = [&](uint32_t from, uint32_t, std::vector<std::byte>& bytes) {
    if (from != 0 || type_of_packet(bytes) != PacketType::kHello || !seen.hello.empty()) {
      return false;
    }
    seen.hello = bytes;
    const auto hello = *wire::decode_hello(bytes);
    wire::HelloPacket accept = fake_packet(kResponder, ephemeral);
    accept.is_accept = true;
    accept.connection = hello.own_connection;
    accept.echoed_nonce = hello.nonce;
    seen.accept = bytes_of(accept);
    const secure::Proof proof = seen.proof(guess(seen, ephemeral));
    const size_t length = seen.accept.size();
    seen.accept.resize(wire::kMaxHandshake);
    seen.accept.resize(wire::set_tlv(seen.accept.data(), length, wire::tlv::kProof, proof));
    net.send_raw(0, net.node(1).address, seen.accept);
    return false;
  };
  net.handle = net.connect(0, 1);
  net.run_for(milliseconds(10));
  const bool believed = net.count(0, ConnectionEventKind::kConnected) != 0;
  EXPECT_NE(believed, net.failure() == Status::kNotTrusted);
  return believed;
}

TEST(KeyProof, AResponderNeedsItsPrivateKey) {
  MR_COVERS("MR-SEC-009");
  MR_COVERS("MR-SEC-010");
  // es is what it lacks: the rest follows from its own ephemeral key and what the HELLO says.
  const auto ee = [](const Exchange& x, const Secret& e) { return dh(e, x.offer(true).ephemeral); };
  const auto se = [](const Exchange& x, const Secret& e) {
    return dh(e, x.offer(true).static_key);
  };
  EXPECT_FALSE(fake_responder_is_believed([&](const Exchange& x, const Secret& e) {
    return Guess{"ee se", {ee(x, e), se(x, e)}};
  }));
  EXPECT_FALSE(fake_responder_is_believed([&](const Exchange& x, const Secret& e) {
    return Guess{"ee 0 se", {ee(x, e), Secret{}, se(x, e)}};
  }));
  EXPECT_FALSE(fake_responder_is_believed([&](const Exchange& x, const Secret& e) {
    return Guess{"ee se se", {ee(x, e), se(x, e), se(x, e)}};
  }));
  EXPECT_FALSE(fake_responder_is_believed([&](const Exchange& x, const Secret& e) {
    return Guess{"ee", {ee(x, e)}};
  }));
  // Who has it is believed: so the guesses above miss nothing else.
  EXPECT_TRUE(fake_responder_is_believed([&](const Exchange& x, const Secret& e) {
    const Secret es = dh(own_key(kResponder, "").private_key, x.offer(true).ephemeral);
    return Guess{"ee es se", {ee(x, e), es, se(x, e)}};
  }));
}

/// Somebody asks node 1 with the public key of host-1.
class FakeInitiator {
 public:
  FakeInitiator()
      : net_(x25519_config(kInitiator, {kResponder}), x25519_config(kResponder, {kInitiator})) {
    net_.on_packet = [this](uint32_t from, uint32_t, const std::vector<std::byte>& bytes) {
      if (from == 1 && type_of_packet(bytes) == PacketType::kAccept) seen_.accept = bytes;
    };
    seen_.hello = bytes_of(fake_packet(kInitiator, ephemeral_));
    from_.family = 4;
    from_.bytes = {192, 0, 2, 1};
    from_.port = 4000;
    net_.send_raw(1, from_, seen_.hello);
    net_.run_for(milliseconds(1));
    EXPECT_FALSE(seen_.accept.empty());
  }
  const Exchange& seen() const { return seen_; }
  Secret ee() const { return dh(ephemeral_, seen_.offer(false).ephemeral); }
  Secret es() const { return dh(ephemeral_, seen_.offer(false).static_key); }
  Secret se() const {
    return dh(own_key(kInitiator, "").private_key, seen_.offer(false).ephemeral);
  }
  bool proof_is(const Guess& guess) const {
    return seen_.proof(guess) == wire::decode_hello(seen_.accept)->params.proof;
  }
  /// True when a CONFIRM with this MAC opens the connection.
  bool opens(uint64_t mac) {
    const uint32_t id = wire::load32(seen_.accept.data() + 8);
    std::vector<std::byte> bytes(32);
    bytes.resize(wire::encode(wire::ConfirmPacket{id, mac}, bytes.data()));
    net_.send_raw(1, from_, bytes);
    net_.run_for(milliseconds(1));
    return net_.count(1, ConnectionEventKind::kAccepted) != 0;
  }
  bool opens(const Guess& guess) {
    return opens(secure::confirm_mac(seen_.keys(guess), seen_.digest()));
  }

 private:
  SecureNet net_;
  Exchange seen_;
  SocketAddress from_;
  Secret ephemeral_ = test_secret(78);
};

TEST(KeyProof, AnInitiatorNeedsItsPrivateKey) {
  MR_COVERS("MR-SEC-010");
  MR_COVERS("MR-CONN-012");
  FakeInitiator fake;
  ASSERT_FALSE(fake.seen().accept.empty());
  // se is what it lacks.
  for (const Guess& guess :
       {Guess{"ee es", {fake.ee(), fake.es()}}, Guess{"ee es 0", {fake.ee(), fake.es(), Secret{}}},
        Guess{"ee es es", {fake.ee(), fake.es(), fake.es()}}, Guess{"ee", {fake.ee()}}}) {
    EXPECT_FALSE(fake.proof_is(guess)) << guess.of;
    EXPECT_FALSE(fake.opens(guess)) << guess.of;
  }
  const Guess right{"ee es se", {fake.ee(), fake.es(), fake.se()}};
  EXPECT_TRUE(fake.proof_is(right));
  EXPECT_TRUE(fake.opens(right));
}

TEST(KeyProof, ThePlainMacConfirmsNoSecuredConnection) {
  MR_COVERS("MR-CONN-011");
  FakeInitiator fake;
  ASSERT_FALSE(fake.seen().accept.empty());
  EXPECT_FALSE(fake.opens(fake.seen().plain_mac())) << "everybody can compute it";
  EXPECT_TRUE(fake.opens(Guess{"ee es se", {fake.ee(), fake.es(), fake.se()}}));
}

TEST(KeyProof, TheConfirmAloneOpens) {
  MR_COVERS("MR-CONN-011");
  // Nothing that is sealed arrives: the MAC of the initiator must be the responder's.
  SecureNet net(x25519_config(kInitiator, {kResponder}), x25519_config(kResponder, {kInitiator}));
  net.meddle = [](uint32_t, uint32_t, std::vector<std::byte>& bytes) {
    return type_of_packet(bytes) > PacketType::kAckWideRefused;
  };
  EXPECT_TRUE(net.open());
}

TEST(KeyProof, KeysOfThePastStaySecretWhenTheStaticOnesAreStolen) {
  MR_COVERS("MR-SEC-010");
  SecureNet net(x25519_config(kInitiator, {kResponder}), x25519_config(kResponder, {kInitiator}));
  Exchange seen;
  net.on_packet = [&](uint32_t from, uint32_t, const std::vector<std::byte>& bytes) {
    if (from == 0 && type_of_packet(bytes) == PacketType::kHello) seen.hello = bytes;
    if (from == 1 && type_of_packet(bytes) == PacketType::kAccept) seen.accept = bytes;
  };
  ASSERT_TRUE(net.open());
  // Both private keys and every packet: es and se follow, ee does not.
  const Secret es = dh(own_key(kResponder, "").private_key, seen.offer(true).ephemeral);
  const Secret se = dh(own_key(kInitiator, "").private_key, seen.offer(false).ephemeral);
  const Secret ss = dh(own_key(kInitiator, "").private_key, own_key(kResponder, "").public_key);
  const secure::Proof proof = wire::decode_hello(seen.accept)->params.proof;
  for (const Guess& guess : {Guess{"es se", {es, se}}, Guess{"0 es se", {Secret{}, es, se}},
                             Guess{"ss es se", {ss, es, se}}, Guess{"es se se", {es, se, se}}}) {
    EXPECT_NE(seen.proof(guess), proof) << guess.of;
  }
}

TEST(KeyProof, ASharedKeyStolenLaterOpensNothingOfThePast) {
  MR_COVERS("MR-SEC-010");
  SecureNet net(psk_config(), psk_config());
  Exchange seen;
  net.on_packet = [&](uint32_t from, uint32_t, const std::vector<std::byte>& bytes) {
    if (from == 0 && type_of_packet(bytes) == PacketType::kHello) seen.hello = bytes;
    if (from == 1 && type_of_packet(bytes) == PacketType::kAccept) seen.accept = bytes;
  };
  ASSERT_TRUE(net.open());
  const secure::Proof proof = wire::decode_hello(seen.accept)->params.proof;
  const Secret psk = test_secret(1);
  for (const Guess& guess :
       {Guess{"psk", {psk}}, Guess{"0 psk", {Secret{}, psk}}, Guess{"psk psk", {psk, psk}}}) {
    EXPECT_NE(seen.proof(guess), proof) << guess.of;
  }
}

}  // namespace
}  // namespace metaroce::pair
