// On a wildcard plane: which of our addresses a peer talks to, so that answers leave from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "base/address.h"
#include "base/random_source.h"
#include "base/siphash.h"

namespace metaroce::driver {

class LocalAddresses {
 public:
  static constexpr size_t kMost = 65536;

  /// `random` keys the table: hosts pick their addresses, and must not pick them into one chain.
  explicit LocalAddresses(RandomSource& random) : map_(0, Hash(random)) {}

  void learn(const SocketAddress& peer, const SocketAddress& local) {
    if (last_peer_.same_host(peer) && last_local_.same_host(local)) return;
    // A flood of made-up sources must not hold memory: what is in use is learned again at once.
    if (map_.size() >= kMost) map_.clear();
    map_[peer.bytes] = local;
    last_peer_ = peer;
    last_local_ = local;
  }
  /// Null: not heard from this peer yet; the kernel's routing chooses.
  const SocketAddress* find(const SocketAddress& peer) const {
    const auto found = map_.find(peer.bytes);
    return found == map_.end() ? nullptr : &found->second;
  }
  size_t size() const { return map_.size(); }
  /// The most entries that a look-up may have to compare.
  size_t longest_chain() const {
    size_t most = 0;
    for (size_t b = 0; b < map_.bucket_count(); ++b) most = std::max(most, map_.bucket_size(b));
    return most;
  }

 private:
  using Host = decltype(SocketAddress::bytes);
  /// MR-SEC-024
  class Hash {
   public:
    explicit Hash(RandomSource& random) {
      random.fill(std::as_writable_bytes(std::span(&key0_, 1)));
      random.fill(std::as_writable_bytes(std::span(&key1_, 1)));
    }
    size_t operator()(const Host& host) const {
      SipHash hash(key0_, key1_);
      hash.update(std::as_bytes(std::span(host)));
      return hash.finish();
    }

   private:
    uint64_t key0_ = 0;
    uint64_t key1_ = 0;
  };
  std::unordered_map<Host, SocketAddress, Hash> map_;
  SocketAddress last_peer_;
  SocketAddress last_local_;
};

}  // namespace metaroce::driver
