// A queue of fixed capacity, allocated at construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace metaroce {

template <class T>
class Ring {
 public:
  explicit Ring(uint32_t capacity) {
    uint32_t n = 1;
    while (n < capacity) n *= 2;
    items_.resize(n);
    mask_ = n - 1;
  }

  bool empty() const { return head_ == tail_; }
  bool full() const { return size() > mask_; }
  uint32_t size() const { return tail_ - head_; }
  uint32_t capacity() const { return mask_ + 1; }

  bool push(const T& v) {
    if (full()) return false;
    items_[tail_++ & mask_] = v;
    return true;
  }
  T& front() {
    MR_DASSERT(!empty());
    return items_[head_ & mask_];
  }
  /// The i-th element from the front.
  T& at(uint32_t i) {
    MR_DASSERT(i < size());
    return items_[(head_ + i) & mask_];
  }
  void pop() {
    MR_DASSERT(!empty());
    ++head_;
  }
  void clear() { head_ = tail_; }

 private:
  std::vector<T> items_;
  uint32_t mask_ = 0;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

}  // namespace metaroce
