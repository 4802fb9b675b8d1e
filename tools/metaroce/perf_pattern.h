// Payload that can be checked: every 8 bytes depend on seed, stream, number and place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace metaroce::tool {

class PerfPattern {
 public:
  PerfPattern(uint32_t seed, uint16_t stream, uint64_t number)
      : base_(mix((uint64_t{seed} << 32) ^ (uint64_t{stream} << 48) ^ mix(number + 1))) {}

  void fill(std::span<std::byte> out) const {
    uint64_t word = base_;
    size_t at = 0;
    for (; at + 8 <= out.size(); at += 8, word += kStep) std::memcpy(&out[at], &word, 8);
    if (at < out.size()) std::memcpy(&out[at], &word, out.size() - at);
  }
  /// True when `in` is what fill() would have written.
  bool matches(std::span<const std::byte> in) const {
    uint64_t word = base_;
    uint64_t difference = 0;
    size_t at = 0;
    for (; at + 8 <= in.size(); at += 8, word += kStep) {
      uint64_t got = 0;
      std::memcpy(&got, &in[at], 8);
      difference |= got ^ word;
    }
    return difference == 0 && (at == in.size() || std::memcmp(&in[at], &word, in.size() - at) == 0);
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;
  static constexpr uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDull;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53ull;
    return x ^ (x >> 33);
  }
  uint64_t base_;
};

}  // namespace metaroce::tool
