#include "wire/minifloat.h"

#include <bit>

namespace metaroce::wire {

namespace {
constexpr uint64_t kLargestUnits = 31ull << 14;
}

uint8_t encode_delay(Duration d) {
  if (d.ns <= 0) return 0;
  const uint64_t units = static_cast<uint64_t>(d.ns) >> 6;
  if (units < 16) return static_cast<uint8_t>(units);
  if (units >= kLargestUnits) return kDelaySaturated;
  const uint32_t e = static_cast<uint32_t>(std::bit_width(units)) - 4;
  const uint64_t m = (units >> (e - 1)) & 15;
  return static_cast<uint8_t>(e << 4 | m);
}

Duration decode_delay(uint8_t v) {
  const uint32_t e = v >> 4;
  const int64_t m = v & 15;
  return nanoseconds((e == 0 ? m : (16 + m) << (e - 1)) << 6);
}

}  // namespace metaroce::wire
