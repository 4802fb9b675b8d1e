// A bad network inside the driver: seeded, per packet, with its own books.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/rng.h"
#include "base/time.h"
#include "base/types.h"
#include "driver/common/fault_spec.h"

namespace metaroce::driver {

/// A packet as the network carries it: trailer included, nothing verified.
struct RawPacket {
  std::span<std::byte> bytes;
  Ecn ecn = Ecn::kNotEct;
  uint8_t plane = 0;
  SocketAddress address;  ///< received: where it came from; to be sent: where it goes
  SocketAddress local;    ///< to be sent: the address and port it leaves from
};

/// What was done to packets, counted where it was done. Index [path id] or [plane].
struct FaultTally {
  using Kinds = std::array<uint64_t, static_cast<size_t>(FaultKind::kCount)>;
  Kinds total{};
  std::array<Kinds, kMaxPaths> path{};
  std::array<Kinds, kMaxPlanes> plane{};
  uint64_t seen = 0;         ///< packets that met the injector
  Time first_drop = kNever;  ///< of drop or black hole
  Time last_drop{};

  uint64_t of(FaultKind kind) const { return total[static_cast<size_t>(kind)]; }
  /// Packets that never arrived: drop and black hole.
  uint64_t lost() const { return of(FaultKind::kDrop) + of(FaultKind::kBlackhole); }
};

/// One direction of one driver. Not thread-safe.
class FaultInjector {
 public:
  /// Only the rules of `direction` count. Times of the rules count from `start`.
  FaultInjector(const FaultSpec& spec, Direction direction, Time start);
  FaultInjector() = default;

  bool enabled() const { return !rules_.empty() || dark_ != 0 || !held_.empty(); }

  enum class Verdict : uint8_t { kPass, kGone };
  /// Decides on one packet: passes it (possibly corrupted or marked in place), or takes it (lost,
  /// or held back for later; then its bytes were copied).
  Verdict apply(Time now, RawPacket& packet);

  /// Next held packet whose time has come, in order of time. The bytes of all packets given out
  /// stay valid until recycle().
  bool release(Time now, RawPacket& out);
  void recycle();
  Time next_release() const;

  /// Switches a black hole on a plane on or off, whatever the rules say.
  void set_plane_dark(uint8_t plane, bool dark);

  const FaultTally& tally() const { return tally_; }

 private:
  struct Held {
    Time when;
    uint64_t order = 0;
    RawPacket packet;
    std::vector<std::byte> storage;
  };
  void count(FaultKind kind, uint8_t path, uint8_t plane, Time now);
  void hold(Time when, const RawPacket& packet);
  static bool matches(const FaultRule& rule, uint8_t path, uint8_t plane, Duration since);
  static bool later(const std::unique_ptr<Held>& a, const std::unique_ptr<Held>& b);

  std::vector<FaultRule> rules_;
  std::vector<Rng> rngs_;  // one a rule: adding a rule leaves the draws of the others alone
  Time start_{};
  uint32_t dark_ = 0;
  uint64_t order_ = 0;
  std::vector<std::unique_ptr<Held>> held_;  // heap, earliest first
  std::vector<std::unique_ptr<Held>> given_;
  std::vector<std::unique_ptr<Held>> free_;
  FaultTally tally_;
};

}  // namespace metaroce::driver
