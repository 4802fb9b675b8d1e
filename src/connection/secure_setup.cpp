#include "connection/secure_setup.h"

#include <algorithm>

#include "connection/connection.h"
#include "connection/transcript.h"
#include "secure/hash.h"
#include "secure/x25519.h"

namespace metaroce::connection {

using secure::Mode;
using secure::Policy;
using secure::Secret;
using secure::Suite;
using wire::SetupRefusal;

namespace {

template <class List>
auto find_name(const List& list, const std::string& name) -> decltype(list.data()) {
  for (const auto& entry : list) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

bool offers(const wire::HandshakeParams& params, Suite suite) {
  const auto end = params.suites.begin() + params.suite_count;
  return std::find(params.suites.begin(), end, static_cast<uint8_t>(suite)) != end;
}

const secure::OwnKey* wanted_key(const secure::Config& config,
                                 const std::array<std::byte, 8>& wanted) {
  if (config.own.empty()) return nullptr;
  if (wanted == std::array<std::byte, 8>{}) return &config.own.front();
  for (const secure::OwnKey& own : config.own) {
    if (std::equal(wanted.begin(), wanted.end(), own.public_key.begin())) return &own;
  }
  return nullptr;
}

/// Finds the keys that the offer names; false when they are not known here.
bool find_keys(const secure::Config& config, const wire::SecurityOffer& offer, SecureSetup& setup) {
  setup.mode = static_cast<Mode>(offer.mode);
  if (setup.mode == Mode::kPsk) {
    setup.psk = config.find_psk(offer.identity());
    return setup.psk != nullptr;
  }
  if (setup.mode != Mode::kX25519) return false;
  setup.peer = config.find_peer(offer.static_key);  // MR-SEC-010: pinned, or nobody
  setup.own = wanted_key(config, offer.wanted);
  return setup.peer != nullptr && setup.own != nullptr;
}

/// The shared secrets in the order of MR-SEC-010. False when a public key is bad.
bool shared_secrets(const SecureSetup& setup, bool initiator, const wire::SecurityOffer& theirs,
                    std::array<Secret, 3>& out, size_t& count) {
  count = 0;
  if (!secure::x25519(setup.ephemeral, theirs.ephemeral, out[count++])) return false;
  if (setup.mode == Mode::kPsk) {
    out[count++] = setup.psk->key;
    return true;
  }
  // es: the initiator's ephemeral and the responder's static key; se: the other way round.
  Secret& es = out[count++];
  Secret& se = out[count++];
  Secret& own_static = initiator ? se : es;
  Secret& own_ephemeral = initiator ? es : se;
  return secure::x25519(setup.own->private_key, theirs.ephemeral, own_static) &&
         secure::x25519(setup.ephemeral, theirs.static_key, own_ephemeral);
}

}  // namespace

std::unique_ptr<SecureSetup> choose_security(const secure::Config& config,
                                             const std::string& identity, const std::string& peer,
                                             bool& known) {
  known = identity.empty() && peer.empty();
  if (config.policy == Policy::kPlain || !config.has_keys()) return nullptr;
  auto setup = std::make_unique<SecureSetup>();
  if (!identity.empty()) {
    setup->psk = find_name(config.psks, identity);
    setup->own = find_name(config.own, identity);
  } else if (peer.empty() && !config.psks.empty()) {
    setup->psk = &config.psks.front();
  } else if (!config.own.empty()) {
    setup->own = &config.own.front();
  }
  if (!peer.empty()) {
    setup->peer = find_name(config.peers, peer);
    // MR-SEC-020: whoever holds a pre-shared key can pose as any peer, so it proves none.
    setup->psk = nullptr;
  }
  known = (setup->psk != nullptr || (setup->own != nullptr && !config.peers.empty())) &&
          peer.empty() == (setup->peer == nullptr);
  setup->mode = setup->psk != nullptr ? Mode::kPsk : Mode::kX25519;
  return setup;
}

bool is_worth_a_key(const wire::HelloPacket& hello, size_t bytes) {
  const wire::SecurityOffer& offer = hello.params.security;
  if (offer.mode == 0) return true;
  return bytes + wire::kCrcBytes >= wire::kMinSecureHello && !secure::is_low_order(offer.ephemeral);
}

SecurePlan plan_security(const secure::Config& config, const wire::HelloPacket& hello) {
  SecurePlan plan;
  const wire::SecurityOffer& offer = hello.params.security;
  const bool ours = config.policy != Policy::kPlain && config.has_keys();
  const bool must = offer.required || config.policy == Policy::kRequired;  // MR-SEC-007
  SetupRefusal why = SetupRefusal::kOther;
  if (!ours) {
    why = SetupRefusal::kNoSecurity;
  } else if (offer.mode == 0) {
    why = SetupRefusal::kSecurityRequired;
  } else if (!find_keys(config, offer, plan.setup)) {
    why = SetupRefusal::kUnknownKey;
  } else {
    const auto suite = std::find_if(config.suites.begin(), config.suites.end(),
                                    [&](Suite s) { return offers(hello.params, s); });
    plan.secured = suite != config.suites.end();
    if (plan.secured) {
      plan.setup.suite = *suite;
    } else {
      why = SetupRefusal::kNoSuite;
    }
  }
  if (must && !plan.secured) plan.refusal = why;
  return plan;
}

void Connection::offer_security(wire::HandshakeParams& params, bool accept) {
  if (security_ == nullptr) return;
  SecureSetup& setup = *security_;
  shared_.rng.fill(setup.ephemeral.bytes());  // MR-SEC-008
  const secure::Config& config = shared_.security;
  for (const Suite suite : config.suites) {
    if (accept || params.suite_count == params.suites.size()) break;
    params.suites[params.suite_count++] = static_cast<uint8_t>(suite);
  }
  if (accept) params.suites[params.suite_count++] = static_cast<uint8_t>(setup.suite);
  wire::SecurityOffer& offer = params.security;
  offer.mode = static_cast<uint8_t>(setup.mode);
  offer.required = config.policy == Policy::kRequired;
  offer.ephemeral = secure::x25519_public(setup.ephemeral);
  if (setup.mode == Mode::kPsk) {
    offer.name_length = static_cast<uint8_t>(setup.psk->name.copy(offer.name.data(), 64));
    return;
  }
  offer.static_key = setup.own->public_key;
  if (!accept && setup.peer != nullptr) {
    std::copy_n(setup.peer->key.begin(), offer.wanted.size(), offer.wanted.begin());
  }
}

secure::Digest Connection::transcript() const {
  secure::Sha256 hash;
  absorb(hash, hello_bytes_, wire::kHelloFixed);
  absorb(hash, accept_bytes_, wire::kAcceptFixed);
  return hash.finish();
}

void Connection::install_keys(const secure::HandshakeKeys& keys) {
  const uint32_t paths = std::max<uint32_t>(
      {announced_paths(), peer_max_paths_, peer_open_paths_, shared_.settings.paths_per_plane});
  session_ = std::make_unique<secure::Session>(security_->suite,
                                               initiator_ ? keys.initiator : keys.responder,
                                               initiator_ ? keys.responder : keys.initiator, paths);
  for (uint32_t i = 0; i < peer_open_paths_; ++i) {
    session_->open_receive_path(static_cast<uint8_t>(i), 0, peer_start_seq_ + (i << 24));
  }
  const SecureSetup& setup = *security_;
  peer_name_ = setup.psk != nullptr ? setup.psk->name.c_str() : setup.peer->name.c_str();
}

bool Connection::secure_as_responder(const SecurePlan& plan, const wire::HelloPacket& hello) {
  security_ = std::make_unique<SecureSetup>(plan.setup);
  encode_hello(true);
  std::array<Secret, 3> secrets;
  size_t count = 0;
  if (!shared_secrets(*security_, false, hello.params.security, secrets, count)) return false;
  const secure::Digest digest = transcript();
  secure::HandshakeKeys keys;
  secure::derive(digest, std::span<const Secret>(secrets).first(count), keys);
  const secure::Proof proof = secure::accept_proof(keys, digest);  // MR-SEC-009
  const size_t length = accept_bytes_.size();
  accept_bytes_.resize(wire::kMaxHandshake);
  accept_bytes_.resize(wire::set_tlv(accept_bytes_.data(), length, wire::tlv::kProof, proof));
  mac_ = secure::confirm_mac(keys, digest);  // MR-CONN-011
  install_keys(keys);
  return true;
}

SetupRefusal Connection::secure_as_initiator(const wire::HelloPacket& accept) {
  const wire::SecurityOffer& theirs = accept.params.security;
  if (theirs.mode == 0) {
    // MR-SEC-007: whoever took the offer out of our HELLO gets no connection for it.
    if (shared_.security.policy == Policy::kRequired) return SetupRefusal::kNoSecurity;
    security_.reset();
    return SetupRefusal::kOther;
  }
  if (security_ == nullptr || theirs.mode != static_cast<uint8_t>(security_->mode) ||
      !accept.params.has_proof) {
    return SetupRefusal::kWrongProof;
  }
  SecureSetup& setup = *security_;
  setup.suite = static_cast<Suite>(accept.params.suites[0]);
  const auto& ours = shared_.security.suites;
  const bool offered = std::find(ours.begin(), ours.end(), setup.suite) != ours.end();
  if (accept.params.suite_count != 1 || !offered) return SetupRefusal::kNoSuite;
  if (setup.mode == Mode::kX25519) {
    const secure::PeerKey* peer = shared_.security.find_peer(theirs.static_key);
    // MR-SEC-010
    if (peer == nullptr || (setup.peer != nullptr && setup.peer->key != peer->key)) {
      return SetupRefusal::kUnknownKey;
    }
    setup.peer = peer;
  }
  std::array<Secret, 3> secrets;
  size_t count = 0;
  if (!shared_secrets(setup, true, theirs, secrets, count)) return SetupRefusal::kWrongProof;
  const secure::Digest digest = transcript();
  secure::HandshakeKeys keys;
  secure::derive(digest, std::span<const Secret>(secrets).first(count), keys);
  // MR-SEC-009: nothing is sent under keys that the responder has not shown to have.
  if (!secure::equal(secure::accept_proof(keys, digest), accept.params.proof)) {
    return SetupRefusal::kWrongProof;
  }
  mac_ = secure::confirm_mac(keys, digest);
  install_keys(keys);
  return SetupRefusal::kOther;
}

bool Connection::may_yield_to(const wire::HelloPacket& hello) const {
  if (security_ == nullptr) return true;
  const wire::SecurityOffer& offer = hello.params.security;
  if (offer.mode == 0) return shared_.security.policy != Policy::kRequired;
  if (offer.mode != static_cast<uint8_t>(security_->mode)) return false;
  if (security_->mode == Mode::kPsk) return offer.identity() == security_->psk->name;
  return security_->peer == nullptr || security_->peer->key == offer.static_key;
}

}  // namespace metaroce::connection
