// The receiver's memory of what it decided: two bits for each CPSN of the window (MR-CPSN-002).
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "base/seq.h"

namespace metaroce::connection {

enum class Fate : uint8_t { kUnseen = 0, kAccepted = 1, kRefused = 2, kVoided = 3 };

class CpsnFilter {
 public:
  /// `window` is a power of two; the first CPSN will be `start`.
  CpsnFilter(uint32_t window, uint32_t start)
      : words_(window / 32), window_(window), highest_(start - 1), decided_(start) {}

  /// MR-CPSN-004: outside of it nothing is decided and nothing acknowledged.
  bool in_range(uint32_t cpsn) const {
    const int32_t above = seq_diff(cpsn, highest_);
    return above > -static_cast<int32_t>(window_) && above <= static_cast<int32_t>(window_);
  }

  Fate lookup(uint32_t cpsn) const {
    if (seq_gt(cpsn, highest_)) return Fate::kUnseen;
    return get(cpsn);
  }

  /// Decides an unseen CPSN, once and for ever (MR-CPSN-005).
  void decide(uint32_t cpsn, Fate fate) {
    MR_DASSERT(in_range(cpsn) && lookup(cpsn) == Fate::kUnseen);
    // MR-CPSN-003: only a new highest CPSN moves the window.
    for (; seq_lt(highest_, cpsn); ++highest_) put(highest_ + 1, Fate::kUnseen);
    put(cpsn, fate);
    // What left the window undecided stays so for ever; nothing may walk over it one by one.
    if (seq_lt(decided_, highest_ - window_ + 1)) decided_ = highest_ - window_ + 1;
    while (seq_le(decided_, highest_) && get(decided_) != Fate::kUnseen) ++decided_;
  }

  /// MR-ACK-017: the lowest CPSN not decided.
  uint32_t decided_through() const { return decided_; }
  uint32_t highest() const { return highest_; }

 private:
  Fate get(uint32_t cpsn) const {
    const uint32_t i = cpsn & (window_ - 1);
    return static_cast<Fate>((words_[i / 32] >> (2 * (i % 32))) & 3);
  }
  void put(uint32_t cpsn, Fate fate) {
    const uint32_t i = cpsn & (window_ - 1);
    const int shift = static_cast<int>(2 * (i % 32));
    words_[i / 32] = (words_[i / 32] & ~(3ull << shift)) | (static_cast<uint64_t>(fate) << shift);
  }

  std::vector<uint64_t> words_;
  uint32_t window_;
  uint32_t highest_;
  uint32_t decided_;
};

}  // namespace metaroce::connection
