// 256 bits, as a ring indexed by sequence number modulo 256.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace metaroce {

/// Bit i lives in word i / 64. All index arguments are taken modulo 256.
class Bitmap256 {
 public:
  void set(uint32_t i) { word(i) |= bit(i); }
  void clear(uint32_t i) { word(i) &= ~bit(i); }
  bool test(uint32_t i) const { return (words_[(i >> 6) & 3] & bit(i)) != 0; }
  void reset() { words_ = {}; }
  bool any() const { return (words_[0] | words_[1] | words_[2] | words_[3]) != 0; }
  int count() const {
    return std::popcount(words_[0]) + std::popcount(words_[1]) + std::popcount(words_[2]) +
           std::popcount(words_[3]);
  }

  uint64_t raw(int w) const { return words_[static_cast<size_t>(w & 3)]; }
  void set_raw(int w, uint64_t v) { words_[static_cast<size_t>(w & 3)] = v; }

  Bitmap256 operator&(const Bitmap256& o) const {
    return zip(o, [](uint64_t a, uint64_t b) { return a & b; });
  }
  Bitmap256 operator|(const Bitmap256& o) const {
    return zip(o, [](uint64_t a, uint64_t b) { return a | b; });
  }
  /// This without the bits of o.
  Bitmap256 minus(const Bitmap256& o) const {
    return zip(o, [](uint64_t a, uint64_t b) { return a & ~b; });
  }
  bool operator==(const Bitmap256&) const = default;

  /// Result bit i = this bit (i + n) mod 256: what is seen from position n on.
  Bitmap256 rotated_down(uint32_t n) const {
    Bitmap256 r;
    const uint32_t w = (n >> 6) & 3;
    const uint32_t s = n & 63;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint64_t low = words_[(i + w) & 3] >> s;
      const uint64_t high = s == 0 ? 0 : words_[(i + w + 1) & 3] << (64 - s);
      r.words_[i] = low | high;
    }
    return r;
  }
  /// Inverse of rotated_down: result bit (i + n) mod 256 = this bit i.
  Bitmap256 rotated_up(uint32_t n) const { return rotated_down((256 - (n & 255)) & 255); }

  /// The bits [first, first + length) modulo 256; length 0 to 256.
  static Bitmap256 range(uint32_t first, uint32_t length) {
    Bitmap256 r;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t begin = i * 64;
      if (length >= begin + 64) {
        r.words_[i] = ~0ull;
      } else if (length > begin) {
        r.words_[i] = (1ull << (length - begin)) - 1;
      }
    }
    return r.rotated_up(first);
  }

  /// Calls f(index) for each set bit, in ring order from first on.
  template <class F>
  void for_each_from(uint32_t first, F&& f) const {
    if (!any()) return;
    const Bitmap256 view = rotated_down(first);
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint64_t w = view.words_[i]; w != 0; w &= w - 1) {
        f((first + i * 64 + static_cast<uint32_t>(std::countr_zero(w))) & 255);
      }
    }
  }

  /// Distance from first to the first set bit in ring order, 256 when none is set.
  uint32_t first_from(uint32_t first) const {
    const Bitmap256 view = rotated_down(first);
    for (uint32_t i = 0; i < 4; ++i) {
      if (view.words_[i] != 0) {
        return i * 64 + static_cast<uint32_t>(std::countr_zero(view.words_[i]));
      }
    }
    return 256;
  }

  /// Distance from first to the last set bit in ring order, -1 when none is set.
  int last_from(uint32_t first) const {
    const Bitmap256 view = rotated_down(first);
    for (int i = 3; i >= 0; --i) {
      const uint64_t w = view.words_[static_cast<size_t>(i)];
      if (w != 0) return i * 64 + 63 - std::countl_zero(w);
    }
    return -1;
  }

 private:
  static constexpr uint64_t bit(uint32_t i) { return 1ull << (i & 63); }
  uint64_t& word(uint32_t i) { return words_[(i >> 6) & 3]; }
  template <class F>
  Bitmap256 zip(const Bitmap256& o, F&& f) const {
    Bitmap256 r;
    for (size_t i = 0; i < 4; ++i) r.words_[i] = f(words_[i], o.words_[i]);
    return r;
  }

  std::array<uint64_t, 4> words_{};
};

}  // namespace metaroce
