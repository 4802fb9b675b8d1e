// What an engine knows of keys: its own, those of its peers, and whether it insists on them.
#pragma once

#include <string>
#include <vector>

#include "secure/cipher.h"
#include "secure/secret.h"

namespace metaroce::secure {

enum class Policy : uint8_t {
  kPlain,     ///< no keys: neither encrypted nor authenticated
  kOffered,   ///< secured with peers that offer it too, plain with the others
  kRequired,  ///< secured or not at all (MR-SEC-007)
};

/// How two endpoints prove who they are; numbers of TLV 8.
enum class Mode : uint8_t { kNone = 0, kPsk = 1, kX25519 = 2 };

struct PskIdentity {
  std::string name;  ///< 1 to kMaxName bytes; sent in the clear
  Secret key;
};
struct OwnKey {
  std::string name;
  Secret private_key;
  PublicKey public_key{};
};
struct PeerKey {
  std::string name;
  PublicKey key{};
};
inline constexpr size_t kMaxName = 64;

struct Config {
  Policy policy = Policy::kPlain;
  /// In order of preference; the responder takes the first of its own that the initiator offers.
  std::vector<Suite> suites = all_suites();
  std::vector<PskIdentity> psks;
  std::vector<OwnKey> own;
  std::vector<PeerKey> peers;  ///< pinned: nobody else is spoken to in mode X25519

  bool has_keys() const { return !psks.empty() || (!own.empty() && !peers.empty()); }
  const PskIdentity* find_psk(std::string_view name) const {
    for (const PskIdentity& p : psks) {
      if (p.name == name) return &p;
    }
    return nullptr;
  }
  /// Null when the key is not pinned.
  const PeerKey* find_peer(const PublicKey& key) const {
    for (const PeerKey& p : peers) {
      if (p.key == key) return &p;
    }
    return nullptr;
  }
};

/// Why no attempt can be made as `identity` to the pinned key `peer` (each may be empty: none
/// named), with the remedy, in one line; empty when one can (MR-SEC-020).
std::string unusable_names(const Config& config, const std::string& identity,
                           const std::string& peer);

}  // namespace metaroce::secure
