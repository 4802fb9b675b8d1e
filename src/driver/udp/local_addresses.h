// On a wildcard plane: which of our addresses a peer talks to, so that answers leave from it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "base/address.h"

namespace metaroce::driver {

class LocalAddresses {
 public:
  void learn(const SocketAddress& peer, const SocketAddress& local) {
    if (last_peer_.same_host(peer) && last_local_.same_host(local)) return;
    // A flood of made-up sources must not hold memory: what is in use is learned again at once.
    if (map_.size() >= kMost) map_.clear();
    map_[key(peer)] = local;
    last_peer_ = peer;
    last_local_ = local;
  }
  /// Null: not heard from this peer yet; the kernel's routing chooses.
  const SocketAddress* find(const SocketAddress& peer) const {
    const auto found = map_.find(key(peer));
    return found == map_.end() ? nullptr : &found->second;
  }

 private:
  static constexpr size_t kMost = 65536;
  struct Key {
    uint64_t a = 0;
    uint64_t b = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& k) const {
      return (k.a * 0x9e3779b97f4a7c15ull) ^ (k.b * 0xd1342543de82ef95ull >> 17);
    }
  };
  static Key key(const SocketAddress& address) {
    Key k;
    std::memcpy(&k.a, address.bytes.data(), 8);
    std::memcpy(&k.b, address.bytes.data() + 8, 8);
    return k;
  }
  std::unordered_map<Key, SocketAddress, Hash> map_;
  SocketAddress last_peer_;
  SocketAddress last_local_;
};

}  // namespace metaroce::driver
