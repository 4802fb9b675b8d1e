// Objects of one kind, all allocated at construction, handed out by index.
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace metaroce {

template <class T>
class Slab {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  explicit Slab(uint32_t capacity) : items_(capacity), next_(capacity) {
    for (uint32_t i = 0; i < capacity; ++i) next_[i] = i + 1 < capacity ? i + 1 : kNone;
    free_ = capacity > 0 ? 0 : kNone;
  }

  uint32_t capacity() const { return static_cast<uint32_t>(items_.size()); }
  uint32_t used() const { return used_; }
  uint32_t available() const { return capacity() - used_; }

  /// A fresh default value, or kNone when the slab is exhausted.
  uint32_t allocate() {
    const uint32_t i = allocate_as_left();
    if (i != kNone) items_[i] = T{};
    return i;
  }
  /// As allocate(), with what the last owner left in it: for large objects of which little has to
  /// be cleared.
  uint32_t allocate_as_left() {
    if (free_ == kNone) return kNone;
    const uint32_t i = free_;
    free_ = next_[i];
    next_[i] = kUsed;
    ++used_;
    return i;
  }

  void release(uint32_t i) {
    MR_ASSERT(i < items_.size() && next_[i] == kUsed);
    next_[i] = free_;
    free_ = i;
    --used_;
  }

  bool is_used(uint32_t i) const { return i < items_.size() && next_[i] == kUsed; }
  T& operator[](uint32_t i) {
    MR_DASSERT(is_used(i));
    return items_[i];
  }
  const T& operator[](uint32_t i) const {
    MR_DASSERT(is_used(i));
    return items_[i];
  }

 private:
  static constexpr uint32_t kUsed = 0xFFFFFFFEu;
  std::vector<T> items_;
  std::vector<uint32_t> next_;
  uint32_t free_ = kNone;
  uint32_t used_ = 0;
};

}  // namespace metaroce
