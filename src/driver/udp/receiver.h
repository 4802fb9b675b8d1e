// recvmsg calls to verified packets. Internal to driver/udp.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "driver/common/fault_injector.h"
#include "driver/common/loop.h"
#include "driver/common/syscalls.h"
#include "driver/udp/transmitter.h"
#include "driver/udp/udp_options.h"
#include "engine/api.h"
#include "engine/engine.h"

namespace metaroce::driver {

class Receiver {
 public:
  Receiver(Syscalls& calls, UdpCounters& counters, FaultInjector& faults,
           bool hand_over_single = false);

  void add_plane(int fd, bool wildcard);
  /// Who opens sealed packets; null: no connection is secured.
  void set_opener(engine::Engine* opener) { opener_ = opener; }
  /// One batch from the planes in turn. `loop` holds the planes' sockets; it is asked which are
  /// ready when there are many.
  std::span<const engine::RxPacket> receive(Time now, Loop& loop, Transmitter& transmitter);
  void place(std::span<const engine::RxPacket> packets, std::span<const engine::Placement> list);

 private:
  // One more than any datagram, so that GRO never has to cut (P03).
  static constexpr size_t kBufferBytes = 65536;
  // A batch stays in the cache, but is not cut short by datagrams that carry little: with only a
  // few of them a turn, answers to probes would leave slower than probes arrive.
  static constexpr size_t kArenaBytes = 4 * kBufferBytes;
  static constexpr size_t kMostCalls = 64;
  // Asking which planes are ready costs one call; reading an empty socket also costs one.
  static constexpr size_t kReadDirectly = 2;
  struct Plane {
    int fd = -1;
    bool wildcard = false;
    uint32_t overflow = 0;
  };
  struct Arrival {
    size_t bytes = 0;
    size_t segment = 0;
    Ecn ecn = Ecn::kNotEct;
    SocketAddress from;
    SocketAddress to;  ///< family 0: not told
  };
  bool has_space() const {
    return calls_made_ < kMostCalls && filled_ + kBufferBytes <= kArenaBytes;
  }
  bool read_plane(Time now, uint8_t index, Transmitter& transmitter);
  bool call_kernel(Plane& plane, std::byte* buffer, Arrival& arrival, Transmitter& transmitter,
                   uint8_t index);
  void read_controls(msghdr& message, Plane& plane, Arrival& arrival);
  void split(Time now, const Arrival& arrival, std::byte* buffer, uint8_t index);
  void admit(Time now, const RawPacket& packet);
  /// True when the packet is dealt with: opened and admitted, or dropped.
  bool admit_sealed(Time now, const RawPacket& packet);

  Syscalls& calls_;
  UdpCounters& counters_;
  FaultInjector& faults_;
  const bool hand_over_single_;
  engine::Engine* opener_ = nullptr;
  std::vector<Plane> planes_;
  std::unique_ptr<std::byte[]> arena_;
  size_t filled_ = 0;
  size_t calls_made_ = 0;
  size_t next_plane_ = 0;
  std::vector<engine::RxPacket> packets_;
};

}  // namespace metaroce::driver
