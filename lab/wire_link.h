// What one direction of a wire does to its packets: a function of the packets, the rules, the seed
// and the time. It reads no clock and knows no socket (wire.cpp does).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "lab/link_rules.h"

namespace metaroce::lab {

/// What a packet socket gives and takes in front of each packet (PACKET_VNET_HDR), as virtio
/// defines it; linux/virtio_net.h is no C++.
struct VnetHeader {
  static constexpr uint8_t kNeedsChecksum = 1;  ///< flag: not computed yet, only its place is known
  uint8_t flags = 0;
  uint8_t gso_type = 0;
  uint16_t headers = 0, gso_size = 0;
  uint16_t checksum_start = 0, checksum_offset = 0;

  bool operator==(const VnetHeader&) const = default;
};
static_assert(sizeof(VnetHeader) == 10);

/// An Ethernet packet and what the kernel said of its checksum and its segments.
struct WirePacket {
  VnetHeader vnet;
  std::vector<std::byte> bytes;
  bool copy = false;  ///< made by `duplicate`
};

class WireLink {
 public:
  static constexpr uint32_t kMostPacket = 65536 + 64;  ///< the largest one carried, GSO or not
  static constexpr uint32_t kMostPackets = 65536;      ///< held at once
  static constexpr uint64_t kMostBytes = 64u << 20;    ///< held at once
  static constexpr uint8_t kTrimmedDscp = 0x2A;
  static constexpr uint32_t kTrimmedPayload = 64;

  explicit WireLink(uint64_t seed) : rng_(seed) {}

  /// For the packets from now on; those inside keep their time.
  void set(const LinkRules& rules);
  /// A packet comes in. `flap` goes by `now` alone, so that all links that flap alike on one clock
  /// go dark together: in every second phase since its zero.
  void offer(Time now, std::span<const std::byte> packet, const VnetHeader& vnet = {});
  /// When the next packet wants to leave, kNever without one.
  Time next_departure() const;
  /// The next packet whose time has come.
  std::optional<WirePacket> take(Time now);

  /// A packet that was taken and could not be sent after all: it was dropped by a queue.
  void refused(const WirePacket& packet);
  /// So many came that nobody had room to read.
  void overrun(uint64_t packets);

  const LinkCounts& counts() const { return counts_; }

 private:
  struct Held {
    Time due;
    WirePacket packet;
  };
  struct Queued {
    Time until;  ///< its last bit is on the wire
    uint32_t bytes;
  };
  enum class Queueing : uint8_t { kPassed, kMarked, kTrimmed, kFull };

  bool chance(uint32_t ppm) { return ppm != 0 && rng_.below(1'000'000) < ppm; }
  bool is_dark(Time now) const;
  bool is_lost();
  bool corrupt(WirePacket& packet);
  bool has_room(size_t bytes) const;
  /// `leaves`: when its last bit does.
  Queueing queue(Time now, WirePacket& packet, Time& leaves);
  Time serialise(Time now, uint32_t bytes);
  void hold(std::deque<Held>& where, Time due, WirePacket&& packet);

  LinkRules rules_;
  LinkCounts counts_;
  Rng rng_;
  bool in_burst_ = false;
  std::deque<Queued> queue_;  ///< what waits for its turn at rate_bps, the one on the wire too
  uint64_t queued_bytes_ = 0;
  Time busy_until_;
  uint64_t busy_rest_ = 0;  ///< and this part of a nanosecond, in 1/rate_bps
  // Times never fall within one of them: packets overtake each other only across them.
  std::deque<Held> in_order_;
  std::deque<Held> late_;
  uint64_t held_bytes_ = 0;
};

}  // namespace metaroce::lab
