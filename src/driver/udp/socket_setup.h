// How the sockets of the UDP driver are made. Internal to driver/udp.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/expected.h"
#include "driver/common/error.h"
#include "driver/common/syscalls.h"

namespace metaroce::driver {

struct OpenSocket {
  int fd = -1;
  int family = 0;  ///< AF_INET or AF_INET6
  uint16_t port = 0;
  uint32_t receive_buffer = 0;  ///< granted, as net.core.rmem_max counts
  uint32_t send_buffer = 0;     ///< granted, as net.core.wmem_max counts
};

struct BufferWish {
  uint32_t receive = 0;
  uint32_t send = 0;
};

/// A bound, non-blocking receive socket: GRO, ECN, overflow count, errors, no fragmentation, and
/// for a wildcard the address that was asked.
Expected<OpenSocket, Error> open_service_socket(Syscalls& calls, const SocketAddress& local,
                                                BufferWish wish);

/// A transmit socket bound to `local` with its port. Fails with the errno of the call, so that the
/// caller can try another port (EADDRINUSE) or do without (EMFILE).
Expected<OpenSocket, int> open_transmit_socket(Syscalls& calls, const SocketAddress& local,
                                               uint32_t send_buffer);

/// Datagrams of `payload` bytes and a header that a receive buffer of so many bytes (as
/// net.core.rmem_max counts) holds, by what the kernel charges for each.
uint32_t datagrams_that_fit(uint32_t receive_buffer, uint32_t payload);

}  // namespace metaroce::driver
