// The bytes of a run: what each request carries, and memory in which every area has guards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/rng.h"
#include "engine/api.h"

namespace metaroce::oracle {

inline uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 31)) * 0x94d049bb133111ebull;
  return z ^ (z >> 29);
}

/// Random bytes that all messages are pieces of, and that the peer may read.
class Quarry {
 public:
  static constexpr uint32_t kBytes = 1 << 17;
  static constexpr uint32_t kLongest = 1 << 15;
  static const Quarry& get() {
    static const Quarry quarry;
    return quarry;
  }
  std::byte* base() const { return const_cast<std::byte*>(bytes_.data()); }
  /// Where a piece named by a number begins; kLongest bytes follow.
  static uint32_t offset(uint64_t name) {
    return static_cast<uint32_t>(mixed(name, 77) % (kBytes - kLongest));
  }

 private:
  Quarry() : bytes_(kBytes) {
    Rng rng(0x717561727279ull);
    for (std::byte& b : bytes_) b = static_cast<std::byte>(rng.next());
  }
  std::vector<std::byte> bytes_;
};

/// Lengths of the segments that a request of `length` bytes is cut into, some of them empty.
inline void cut(uint64_t name, uint32_t length, uint32_t segments, uint32_t (&out)[16]) {
  uint32_t left = length;
  for (uint32_t i = 0; i + 1 < segments; ++i) {
    const uint64_t luck = mixed(name, 100 + i);
    uint32_t n = static_cast<uint32_t>(luck % (2ull * length / segments + 2));
    if (luck >> 61 == 0) n = 0;
    out[i] = n < left ? n : left;
    left -= out[i];
  }
  out[segments - 1] = left;
}

/// The bytes of a request, segment by segment, as it lies in the quarry.
inline uint32_t source_of(uint64_t name, uint32_t length, uint32_t segments,
                          engine::Segment (&out)[16]) {
  uint32_t lengths[16];
  cut(name, length, segments, lengths);
  for (uint32_t i = 0; i < segments; ++i) {
    out[i] = {Quarry::get().base() + Quarry::offset(mixed(name, i)), lengths[i]};
  }
  return segments;
}

/// Memory of a side for one purpose; areas are handed out once, with guards between them.
class Ground {
 public:
  static constexpr std::byte kGuard{0xC5};
  static constexpr uint32_t kGap = 16;

  struct Area {
    uint32_t begin;
    uint32_t length;
  };

  void reset(size_t bytes) {
    bytes_.assign(bytes + 64, kGuard);
    areas_.clear();
    used_ = kGap;
  }
  bool fits(uint64_t length) const { return used_ + length + 2 * kGap < bytes_.size(); }
  uint32_t take(uint32_t length) {
    MR_ASSERT(fits(length));
    const uint32_t begin = used_;
    used_ = (used_ + length + kGap + 7) & ~7u;
    areas_.push_back({begin, length});
    return begin;
  }
  /// What is taken from now on is given back by rewind().
  struct Mark {
    uint32_t used;
    size_t areas;
  };
  Mark mark() const { return {used_, areas_.size()}; }
  void rewind(const Mark& mark) {
    used_ = mark.used;
    areas_.resize(mark.areas);
  }
  std::byte* at(uint32_t offset) { return bytes_.data() + offset; }
  std::byte* base() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  bool contains(const std::byte* p, uint64_t n) const {
    return p >= bytes_.data() && n <= bytes_.size() && p <= bytes_.data() + (bytes_.size() - n);
  }
  /// Every byte outside the areas below `end` is as it was.
  bool gaps_intact(size_t end) const {
    size_t at = 0;
    for (const Area& a : areas_) {
      if (!untouched(at, a.begin)) return false;
      at = a.begin + a.length;
    }
    return untouched(at, std::min(end, bytes_.size()));
  }
  bool untouched(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      if (bytes_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<Area> areas_;
  uint32_t used_ = kGap;
};

}  // namespace metaroce::oracle
