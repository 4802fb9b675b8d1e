// The receiver's memory of what it decided: two bits for each CPSN of the window (MR-CPSN-002).
#pragma once

#include <algorithm>
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
    advance_decided();
  }

  /// Accepts the next `n` CPSNs above the highest, as decide() would one by one.
  void accept_next(uint32_t n) {
    const bool all = decided_ == highest_ + 1;
    while (n > 0) {
      const uint32_t i = (highest_ + 1) & (window_ - 1);
      const uint32_t k = std::min(n, 32 - i % 32);
      const uint64_t mask = (k == 32 ? ~0ull : (1ull << (2 * k)) - 1) << (2 * (i % 32));
      words_[i / 32] = (words_[i / 32] & ~mask) | (kAllAccepted & mask);
      highest_ += k;
      n -= k;
    }
    if (all) {
      decided_ = highest_ + 1;
    } else {
      advance_decided();
    }
  }

  /// MR-ACK-017: the lowest CPSN not decided.
  uint32_t decided_through() const { return decided_; }
  uint32_t highest() const { return highest_; }
  size_t table_bytes() const { return words_.capacity() * sizeof(uint64_t); }

 private:
  static constexpr uint64_t kAllAccepted = 0x5555555555555555ull;  // Fate::kAccepted 32 times

  void advance_decided() {
    // What left the window undecided stays so for ever; nothing may walk over it one by one.
    if (seq_lt(decided_, highest_ - window_ + 1)) decided_ = highest_ - window_ + 1;
    while (seq_le(decided_, highest_) && get(decided_) != Fate::kUnseen) ++decided_;
  }
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
