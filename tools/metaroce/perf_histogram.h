// A histogram of durations with buckets that grow with the value: fixed size, exact to 1.6 %.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace metaroce::tool {

/// What is told of a distribution; all zero when nothing was counted.
struct Percentiles {
  uint64_t count = 0;
  int64_t min = 0;  ///< ns, like all that follow
  int64_t mean = 0;
  int64_t p50 = 0;
  int64_t p90 = 0;
  int64_t p99 = 0;
  int64_t p999 = 0;
  int64_t max = 0;
  bool operator==(const Percentiles&) const = default;
};

/// Values from 0 to 2^63 ns. Up to 128 ns a bucket is 1 ns wide; above, each doubling has 64.
class LatencyHistogram {
 public:
  void add(Duration d) {
    const uint64_t ns = d.ns > 0 ? static_cast<uint64_t>(d.ns) : 0;
    ++buckets_[index_of(ns)];
    ++count_;
    sum_ += ns;
    if (count_ == 1 || ns < min_) min_ = ns;
    if (ns > max_) max_ = ns;
  }
  void clear() { *this = LatencyHistogram(); }
  uint64_t count() const { return count_; }
  int64_t min() const { return static_cast<int64_t>(min_); }
  int64_t max() const { return static_cast<int64_t>(max_); }
  int64_t mean() const { return count_ == 0 ? 0 : static_cast<int64_t>(sum_ / count_); }

  /// The smallest value that at least `per_mille` of 1000 values do not exceed: the upper end of
  /// its bucket, never beyond the largest value seen.
  int64_t at(uint32_t per_mille) const {
    if (count_ == 0) return 0;
    const uint64_t whole = count_ / 1000 * per_mille;
    const uint64_t rest = (count_ % 1000 * per_mille + 999) / 1000;
    const uint64_t rank = whole + rest == 0 ? 1 : whole + rest;
    uint64_t seen = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen < rank) continue;
      const uint64_t top = top_of(i);
      return static_cast<int64_t>(top > max_ ? max_ : top < min_ ? min_ : top);
    }
    return max();
  }
  Percentiles percentiles() const {
    return {count_, min(), mean(), at(500), at(900), at(990), at(999), max()};
  }

 private:
  static constexpr unsigned kBits = 6;  // 64 buckets a doubling
  static constexpr uint64_t kExact = 2u << kBits;
  static constexpr size_t kBuckets = kExact + (63 - kBits) * (size_t{1} << kBits);

  static size_t index_of(uint64_t ns) {
    if (ns < kExact) return static_cast<size_t>(ns);
    const auto top = static_cast<unsigned>(std::bit_width(ns)) - 1;  // kBits + 1 to 63
    const uint64_t part = (ns >> (top - kBits)) & ((uint64_t{1} << kBits) - 1);
    return static_cast<size_t>(kExact + ((top - kBits - 1) << kBits) + part);
  }
  static uint64_t top_of(size_t index) {
    if (index < kExact) return index;
    const uint64_t above = index - kExact;
    const uint64_t shift = (above >> kBits) + 1;
    const uint64_t part = (above & ((uint64_t{1} << kBits) - 1)) | (uint64_t{1} << kBits);
    return ((part + 1) << shift) - 1;
  }

  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = 0;
  uint64_t max_ = 0;
};

}  // namespace metaroce::tool
