// An address on the wire: family 8 (4, 6 or 0 = none), 0 8, port 16, then 16 bytes. Internal.
#pragma once

#include "base/address.h"
#include "wire/types.h"

namespace metaroce::wire {

inline constexpr size_t kAddressBytes = 20;

/// False when the family is none of 0, 4 and 6. Bytes that the family does not use are ignored.
inline bool load_address(const std::byte* p, SocketAddress& a) {
  const uint32_t w = load32(p);
  a.family = static_cast<uint8_t>(w >> 24);
  if (a.family != 4 && a.family != 6) return a.family == 0;
  a.port = static_cast<uint16_t>(w);
  __builtin_memcpy(a.bytes.data(), p + 4, a.family == 4 ? 4 : 16);
  return true;
}

inline void store_address(std::byte* p, const SocketAddress& a) {
  __builtin_memset(p, 0, kAddressBytes);
  if (a.family == 0) return;
  store32(p, uint32_t{a.family} << 24 | a.port);
  __builtin_memcpy(p + 4, a.bytes.data(), a.family == 4 ? 4 : 16);
}

}  // namespace metaroce::wire
