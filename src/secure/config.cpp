#include "secure/config.h"

#include <algorithm>

namespace metaroce::secure {
namespace {

template <class List>
bool has(const List& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.name == name; });
}

}  // namespace

std::string unusable_names(const Config& config, const std::string& identity,
                           const std::string& peer) {
  if (identity.empty() && peer.empty()) return {};
  const std::string named =
      identity.empty() ? "the peer name \"" + peer + "\"" : "the identity \"" + identity + "\"";
  if (config.policy == Policy::kPlain || !config.has_keys()) {
    return named +
           " names a key, and there are no keys: give a pre-shared key, or an own X25519 "
           "key and those of the peers";
  }
  const bool psk = has(config.psks, identity);
  const bool own = identity.empty() ? !config.own.empty() : has(config.own, identity);
  if (!identity.empty() && !psk && !own) {
    return "there is no own key and no pre-shared key named \"" + identity +
           "\"; check the identity and the key files";
  }
  if (!peer.empty() && !has(config.peers, peer)) {
    return "there is no trusted public key named \"" + peer +
           "\"; check the peer name and the peer keys";
  }
  if (!peer.empty() && !own) {
    return "a pre-shared key does not tell one peer from another, so it cannot prove that the peer "
           "is \"" +
           peer + "\"; name an own X25519 key as identity, or give no peer name";
  }
  if (!psk && config.peers.empty()) {
    return "the identity \"" + identity +
           "\" is an X25519 key, and no public key of a peer is trusted; give those of the peers";
  }
  return {};
}

}  // namespace metaroce::secure
