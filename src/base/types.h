// Small types shared by all folders.
#pragma once

#include <cstdint>

namespace metaroce {

/// Congestion bits of the IP header (RFC 3168), with their values on the wire.
enum class Ecn : uint8_t { kNotEct = 0, kEct1 = 1, kEct0 = 2, kCe = 3 };

inline constexpr uint32_t kMaxPaths = 256;
inline constexpr uint32_t kMaxPlanes = 16;
inline constexpr uint32_t kMaxRun = 15;  ///< packets of one path in one gathered send
inline constexpr uint64_t kMaxMessageBytes = 1ull << 31;

}  // namespace metaroce
