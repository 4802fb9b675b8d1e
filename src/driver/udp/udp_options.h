// What a UDP driver is asked for, and what it counts.
#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/time.h"
#include "driver/common/fault_spec.h"
#include "driver/common/syscalls.h"
#include "wire/types.h"

namespace metaroce::driver {

enum class GsoMode : uint8_t { kAuto, kOn, kOff };  ///< kOn: as kAuto, but never given up

struct UdpOptions {
  /// Planes, at most 16; the port of each is ignored. A wildcard address (0.0.0.0, ::) is one
  /// plane on whatever interface; :: takes IPv4 peers too. Empty: one plane, ::.
  std::vector<SocketAddress> local;
  /// Service port on every plane; 0: a free one is chosen, the same for all planes.
  uint16_t port = wire::kBasePort;
  /// Socket buffer bytes asked of the kernel, as net.core.rmem_max and wmem_max count them.
  uint32_t receive_buffer = 8u << 20;
  uint32_t send_buffer = 1u << 20;
  /// Payload for which inflight_packets() is worked out.
  uint32_t max_payload = 4096;
  GsoMode gso = GsoMode::kAuto;
  /// How long wait() looks for work before it blocks.
  Duration spin = microseconds(50);
  /// A lone datagram is handed over without a look for more behind it. Saves a call of the kernel
  /// for each message of a slow exchange, costs batches where many small datagrams come.
  bool hand_over_single = false;
  /// Transmit sockets of all planes; above it sends leave from the plane's service socket.
  uint32_t max_tx_sockets = 512;
  FaultSpec faults;
  Syscalls* syscalls = nullptr;  ///< null: the real ones
};

// name, meaning
#define MR_UDP_COUNTERS(X)                                                        \
  X(tx_datagrams, "datagrams handed to the kernel")                               \
  X(tx_bytes, "bytes of them")                                                    \
  X(tx_calls, "sendmsg calls that succeeded")                                     \
  X(gso_batches, "of them with more than one datagram")                           \
  X(rx_datagrams, "datagrams received")                                           \
  X(rx_bytes, "bytes of them")                                                    \
  X(rx_calls, "recvmsg calls that returned data")                                 \
  X(gro_batches, "of them with more than one datagram")                           \
  X(rx_ce, "datagrams received with a congestion mark")                           \
  X(crc_errors, "packets dropped because their CRC did not match")                \
  X(truncated, "receives with MSG_TRUNC or MSG_CTRUNC")                           \
  X(rx_overflow, "datagrams the kernel dropped for want of receive buffer")       \
  X(placed_bytes, "payload bytes copied to their place")                          \
  X(blocked, "sends that met a full socket or device queue (EAGAIN, ENOBUFS)")    \
  X(retried, "sends repeated at once after an error that was not theirs")         \
  X(send_errors, "datagrams given up because the kernel refused them")            \
  X(too_big, "datagrams refused with EMSGSIZE")                                   \
  X(gso_fallbacks, "batches sent one by one because segmentation failed")         \
  X(icmp_errors, "errors read from the error queues")                             \
  X(tx_sockets_opened, "transmit sockets opened")                                 \
  X(tx_sockets_closed, "transmit sockets closed to make room")                    \
  X(shared_sends, "runs sent from the service socket for want of an own one")     \
  X(ports_substituted, "source ports that were taken and replaced by a free one") \
  X(link_changes, "planes that went up or down")                                  \
  X(tag_errors, "packets of secured connections dropped: not sealed by the peer")

struct UdpCounters {
#define X(name, meaning) uint64_t name = 0;
  MR_UDP_COUNTERS(X)
#undef X
};

}  // namespace metaroce::driver
