// A hash map of fixed capacity: 64-bit keys to 32-bit values, no allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace metaroce {

/// Open addressing, linear probing, deletion by shifting back. It cannot be iterated, so its order
/// never reaches a result. Value 0xFFFFFFFF is reserved for "free".
class FlatMap {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  explicit FlatMap(uint32_t capacity) : capacity_(capacity) {
    uint32_t slots = 8;
    while (slots < capacity * 2) slots *= 2;
    slots_.resize(slots);
    mask_ = slots - 1;
  }

  uint32_t size() const { return size_; }
  bool full() const { return size_ >= capacity_; }

  uint32_t find(uint64_t key) const {
    for (uint32_t i = home(key);; i = (i + 1) & mask_) {
      if (slots_[i].value == kNone) return kNone;
      if (slots_[i].key == key) return slots_[i].value;
    }
  }

  /// False when full; the key must not be present.
  bool insert(uint64_t key, uint32_t value) {
    MR_DASSERT(value != kNone);
    MR_DASSERT(find(key) == kNone);
    if (full()) return false;
    uint32_t i = home(key);
    while (slots_[i].value != kNone) i = (i + 1) & mask_;
    slots_[i] = {key, value};
    ++size_;
    return true;
  }

  bool erase(uint64_t key) {
    uint32_t i = home(key);
    while (slots_[i].key != key || slots_[i].value == kNone) {
      if (slots_[i].value == kNone) return false;
      i = (i + 1) & mask_;
    }
    --size_;
    for (uint32_t j = i;;) {
      j = (j + 1) & mask_;
      if (slots_[j].value == kNone) break;
      const uint32_t h = home(slots_[j].key);
      // The entry at j may fill the hole at i unless its home lies in (i, j].
      if (((j - h) & mask_) >= ((j - i) & mask_)) {
        slots_[i] = slots_[j];
        i = j;
      }
    }
    slots_[i].value = kNone;
    return true;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = kNone;
  };
  uint32_t home(uint64_t key) const {
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15ull;
    return static_cast<uint32_t>(key >> 32) & mask_;
  }

  std::vector<Slot> slots_;
  uint32_t mask_ = 0;
  uint32_t capacity_;
  uint32_t size_ = 0;
};

}  // namespace metaroce
