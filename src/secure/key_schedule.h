// From Diffie-Hellman results and pre-shared keys to the keys of a connection (MR-SEC-010).
#pragma once

#include <array>

#include "secure/cipher.h"
#include "secure/secret.h"

namespace metaroce::secure {

using Proof = std::array<std::byte, 16>;

/// Everything that follows from one handshake.
struct HandshakeKeys {
  Secret accept;     ///< of the responder's proof in ACCEPT
  Secret confirm;    ///< of the MAC in CONFIRM
  Secret initiator;  ///< traffic secret of what the initiator sends
  Secret responder;
};

/// `transcript` binds the keys to every word of HELLO and ACCEPT; `inputs` are the shared secrets
/// in the order of MR-SEC-010.
void derive(const Digest& transcript, std::span<const Secret> inputs, HandshakeKeys& out);

Proof accept_proof(const HandshakeKeys& keys, const Digest& transcript);
/// The first 8 bytes as the number that CONFIRM carries.
uint64_t confirm_mac(const HandshakeKeys& keys, const Digest& transcript);

/// Key and IV of a traffic secret, and the secret that follows it.
struct TrafficKeys {
  std::array<std::byte, 32> key{};  ///< of which the suite takes its first bytes
  Nonce iv{};
  ~TrafficKeys();
};
void traffic_keys(const Secret& traffic, TrafficKeys& out);
void next_traffic(Secret& traffic);

}  // namespace metaroce::secure
