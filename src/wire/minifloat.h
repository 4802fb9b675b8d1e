// The 8-bit time of the ACK: units of 64 ns, m for values below 16, else (16 + m) << (e - 1).
#pragma once

#include "base/time.h"

namespace metaroce::wire {

inline constexpr uint8_t kDelaySaturated = 0xFF;

/// Rounds down; durations beyond the largest value saturate to 0xFF; negative ones give 0.
uint8_t encode_delay(Duration d);
Duration decode_delay(uint8_t v);

/// Transmit stamps: 24 bits of 64 ns, wrapping after 1.07 s.
constexpr uint32_t stamp_of(Time t) {  // MR-WIRE-021
  return static_cast<uint32_t>(static_cast<uint64_t>(t.ns) >> 6) & 0xFFFFFF;
}
/// Time from `stamp` to `now`, exact to 64 ns while less than 1.07 s.
constexpr Duration since_stamp(Time now, uint32_t stamp) {
  return nanoseconds(static_cast<int64_t>((stamp_of(now) - stamp) & 0xFFFFFF) << 6);
}

}  // namespace metaroce::wire
