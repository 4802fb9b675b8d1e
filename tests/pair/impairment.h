// What can be wrong with the simulated network, as plain data.
#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"

namespace metaroce::pair {

inline constexpr uint64_t kCertain = 1ull << 32;  ///< probabilities are parts of this

/// A probability given in parts per million, as Rng::chance wants it.
constexpr uint64_t per_million(uint64_t ppm) { return ppm * kCertain / 1'000'000; }

enum class ImpairmentKind : uint8_t {
  kLoss,   ///< probability
  kBurst,  ///< Gilbert-Elliott: probability enters the bad state, exit leaves it; all lost in it
  kDuplicate,   ///< probability; the copy comes up to `max` later
  kReorder,     ///< probability; such a packet is delayed by U[min, max] more
  kCorrupt,     ///< probability; the packet arrives damaged
  kMark,        ///< probability of a congestion mark without congestion
  kDark,        ///< everything vanishes
  kRehash,      ///< every `period` the one-way delay becomes U[min, max], each path on its own
  kDelay,       ///< the one-way delay becomes U[min, max], drawn once a path
  kPortChange,  ///< every `period` (0: once) a path gets another source port; done by Pair
  kMtu,         ///< packets above `value` bytes of IP vanish
};

enum class Direction : uint8_t { kForward = 0, kBackward = 1, kBoth = 2 };

struct Impairment {
  ImpairmentKind kind = ImpairmentKind::kLoss;
  Direction direction = Direction::kBoth;
  bool data = true;  ///< acts on sequenced packets
  bool acks = true;  ///< acts on acknowledgements and the handshake
  int plane = -1;    ///< -1: every plane
  int port = -1;     ///< source port; -1: every path
  Time begin{0};
  Time end = kNever;
  uint64_t probability = 0;  ///< parts of kCertain
  uint64_t exit = 0;         ///< parts of kCertain
  Duration min;
  Duration max;
  Duration period;
  uint32_t value = 0;
};

/// The network without impairments. A path is a source port of a plane; each direction of it is a
/// link of its own unless the plane has one shared rate.
struct NetworkConfig {
  uint32_t planes = 1;
  uint64_t rate_bps = 50'000'000'000ull;  ///< of each path, or of a plane when shared
  bool shared_rate = false;
  Duration delay = microseconds(5);  ///< one way
  Duration delay_spread;             ///< each path adds a fixed U[0, spread]
  uint64_t queue_bytes = 250'000;    ///< tail drop above
  uint64_t mark_bytes = 62'500;      ///< mark above; 0: this fabric never marks
  uint32_t mtu = 9000;               ///< IP bytes
};

/// Counted by the network itself, never taken from an engine.
struct Tally {
  uint64_t sent = 0;
  uint64_t bytes = 0;  ///< on the wire
  uint64_t delivered = 0;
  uint64_t lost = 0;  ///< random and burst loss
  uint64_t queue_drops = 0;
  uint64_t dark_drops = 0;
  uint64_t mtu_drops = 0;
  uint64_t misrouted = 0;  ///< to an address that is not on this plane
  uint64_t crc_errors = 0;
  uint64_t duplicates = 0;  ///< copies the network made
  uint64_t queue_marks = 0;
  uint64_t random_marks = 0;
  uint64_t reordered = 0;  ///< delayed on purpose
  uint64_t late = 0;       ///< sequenced packets that arrived behind a later one of their path
  uint64_t rehashes = 0;
  // What kind of packet, by type and flags of its header:
  uint64_t data_new = 0;
  uint64_t data_repairs = 0;
  uint64_t data_copies = 0;
  uint64_t spurious_repairs = 0;  ///< repairs of a packet of which an earlier copy was not lost
  uint64_t probes = 0;
  uint64_t acks = 0;
  uint64_t controls = 0;  ///< control and VOID
  uint64_t handshakes = 0;

  void add(const Tally& other);
  /// What was counted since `earlier`.
  Tally since(const Tally& earlier) const;
  /// Packets of the network's own doing that did not arrive whole.
  uint64_t drops() const {
    return lost + queue_drops + dark_drops + mtu_drops + misrouted + crc_errors;
  }
};

}  // namespace metaroce::pair
