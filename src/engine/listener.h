// What an engine knows of peers it has no connection with: cookies, half-open handshakes,
// handshakes that are over, and the short answers it owes. Everything has a fixed size.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/flat_map.h"
#include "base/ring.h"
#include "base/rng.h"
#include "base/siphash.h"
#include "base/time.h"

namespace metaroce::engine {

using Cookie = std::array<std::byte, 16>;

/// Proof that a HELLO comes from where it says, kept by its sender (MR-CONN-008). No state: the key
/// of each half life follows from the secret and the time.
class Cookies {
 public:
  Cookies(Rng rng, Duration life);
  Cookie make(Time now, const SocketAddress& from, uint64_t nonce) const;
  /// True for a cookie of this address, port and nonce that is no older than the life.
  bool check(Time now, const SocketAddress& from, uint64_t nonce, const Cookie& cookie) const;

 private:
  uint64_t mac(uint32_t period, const SocketAddress& from, uint64_t nonce) const;
  uint32_t period_at(Time now) const { return static_cast<uint32_t>(now.ns / half_life_ns_); }

  uint64_t key0_;
  uint64_t key1_;
  int64_t half_life_ns_;
};

/// The handshakes that are half-open without a cookie: few, so that a flood finds a wall.
class HalfOpenList {
 public:
  struct Entry {
    uint32_t handle = 0;
    SocketAddress source;
  };

  explicit HalfOpenList(uint32_t capacity) { entries_.reserve(capacity); }
  /// Forgets the entries for which `alive(handle)` is false.
  template <class F>
  void prune(F&& alive) {
    std::erase_if(entries_, [&](const Entry& e) { return !alive(e.handle); });
  }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t of(const SocketAddress& source) const;
  void add(uint32_t handle, const SocketAddress& source) { entries_.push_back({handle, source}); }

 private:
  std::vector<Entry> entries_;
};

/// Nonces of handshakes whose connection is gone: a late copy of their HELLO opens nothing
/// (MR-CONN-004). The oldest are forgotten first.
class PastNonces {
 public:
  explicit PastNonces(uint32_t capacity) : ring_(capacity), index_(ring_.capacity()) {}
  void add(Time now, uint64_t nonce);
  bool contains(Time now, uint64_t nonce);

 private:
  struct Past {
    uint64_t nonce = 0;
    Time at{0};
  };
  void forget_old(Time now);

  Ring<Past> ring_;
  FlatMap index_;
};

/// A packet that belongs to no connection and is on its way out.
struct Reply {
  SocketAddress to;
  uint8_t plane = 0;
  uint8_t length = 0;
  std::array<std::byte, 40> bytes{};
};

/// At most one for each interval and source; sources share a few slots.
class SourceLimit {
 public:
  explicit SourceLimit(Duration interval) : interval_(interval) { last_.fill(Time{-(1ll << 60)}); }
  bool allows(Time now, const SocketAddress& source);

 private:
  Duration interval_;
  std::array<Time, 64> last_{};
};

}  // namespace metaroce::engine
