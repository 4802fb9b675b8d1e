// The bytes every test moves: a pattern of a prime period, so that a byte placed at a wrong offset,
// or left out, differs from what the place expects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/rng.h"

namespace metaroce::pair {

inline constexpr uint64_t kPatternPeriod = 65521;

class Pattern {
 public:
  /// Sources up to `longest` bytes can be read from source().
  explicit Pattern(uint64_t longest) : bytes_(longest + kPatternPeriod) {
    Rng rng(0x7061747465726eull);
    const uint64_t once = bytes_.size() < kPatternPeriod ? bytes_.size() : kPatternPeriod;
    for (uint64_t i = 0; i < once; ++i) bytes_[i] = static_cast<std::byte>(rng.next());
    for (uint64_t i = once; i < bytes_.size(); ++i) bytes_[i] = bytes_[i - kPatternPeriod];
  }

  /// What belongs at `offset` and after; good for `longest` bytes.
  const std::byte* source(uint64_t offset) const { return bytes_.data() + offset % kPatternPeriod; }

  /// Number of bytes of `data` that do not belong at `offset`.
  uint64_t wrong(uint64_t offset, const std::byte* data, uint64_t length) const {
    uint64_t bad = 0;
    while (length > 0) {
      const uint64_t n = length < kPatternPeriod ? length : kPatternPeriod;
      const std::byte* expected = source(offset);
      if (expected + n > bytes_.data() + bytes_.size()) return wrong_bytewise(offset, data, length);
      if (std::memcmp(expected, data, n) != 0)
        for (uint64_t i = 0; i < n; ++i) bad += expected[i] != data[i];
      offset += n;
      data += n;
      length -= n;
    }
    return bad;
  }

 private:
  uint64_t wrong_bytewise(uint64_t offset, const std::byte* data, uint64_t length) const {
    uint64_t bad = 0;
    for (uint64_t i = 0; i < length; ++i) bad += *source(offset + i) != data[i];
    return bad;
  }

  std::vector<std::byte> bytes_;
};

/// Memory with guard zones on both sides.
class Arena {
 public:
  static constexpr size_t kGuard = 4096;

  /// `real` false: an address range without memory.
  Arena(uint64_t length, bool real) : length_(length) {
    if (real) bytes_.assign(length + 2 * kGuard, kCanary);
  }

  uint64_t length() const { return length_; }
  std::byte* base() { return bytes_.empty() ? nullptr : bytes_.data() + kGuard; }
  bool contains(const std::byte* p, uint64_t n) const {
    if (bytes_.empty()) return false;
    const std::byte* begin = bytes_.data() + kGuard;
    return p >= begin && n <= length_ && p <= begin + (length_ - n);
  }
  bool guards_intact() const {
    for (size_t i = 0; i < kGuard && !bytes_.empty(); ++i)
      if (bytes_[i] != kCanary || bytes_[bytes_.size() - 1 - i] != kCanary) return false;
    return true;
  }

 private:
  static constexpr std::byte kCanary{0xC5};
  uint64_t length_;
  std::vector<std::byte> bytes_;
};

}  // namespace metaroce::pair
