// Arithmetic on 32-bit sequence numbers that wrap (serial numbers, RFC 1982).
#pragma once

#include <cstdint>

namespace metaroce {

/// Signed distance from b to a; right while the two are less than 2^31 apart.
constexpr int32_t seq_diff(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b); }
constexpr bool seq_lt(uint32_t a, uint32_t b) { return seq_diff(a, b) < 0; }
constexpr bool seq_le(uint32_t a, uint32_t b) { return seq_diff(a, b) <= 0; }
constexpr bool seq_gt(uint32_t a, uint32_t b) { return seq_diff(a, b) > 0; }
constexpr bool seq_ge(uint32_t a, uint32_t b) { return seq_diff(a, b) >= 0; }
constexpr uint32_t seq_max(uint32_t a, uint32_t b) { return seq_lt(a, b) ? b : a; }

}  // namespace metaroce
