// A socket address without a socket: what the engine knows of where a packet goes or came from.
#pragma once

#include <array>
#include <cstdint>

namespace metaroce {

/// IPv4 addresses stand in the first four bytes; family is 4, 6 or 0 (none).
struct SocketAddress {
  std::array<uint8_t, 16> bytes{};
  uint32_t scope = 0;  ///< interface index of a link-local IPv6 address, local meaning only
  uint16_t port = 0;   ///< host byte order
  uint8_t family = 0;

  bool operator==(const SocketAddress&) const = default;
  /// 0.0.0.0 or ::, "any address of this host".
  bool is_any() const { return bytes == std::array<uint8_t, 16>{}; }
  bool is_loopback() const {
    if (family == 4) return bytes[0] == 127;
    std::array<uint8_t, 16> one{};
    one[15] = 1;
    return bytes == one;
  }
  bool same_host(const SocketAddress& o) const { return family == o.family && bytes == o.bytes; }
};

}  // namespace metaroce
