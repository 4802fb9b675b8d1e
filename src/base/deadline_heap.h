// A binary heap of deadlines by index: set, move and remove in O(log n), no allocation after
// construction. Equal times come out by index, so that order never depends on history.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"

namespace metaroce {

class DeadlineHeap {
 public:
  explicit DeadlineHeap(uint32_t capacity) : position_(capacity, kAbsent), times_(capacity) {
    heap_.reserve(capacity);
  }

  Time earliest() const { return heap_.empty() ? kNever : times_[heap_[0]]; }
  uint32_t earliest_index() const { return heap_[0]; }
  bool empty() const { return heap_.empty(); }

  /// kNever removes.
  void set(uint32_t index, Time time) {
    uint32_t at = position_[index];
    if (time == kNever) {
      if (at != kAbsent) remove(at);
      return;
    }
    if (at == kAbsent) {
      at = static_cast<uint32_t>(heap_.size());
      heap_.push_back(index);
      position_[index] = at;
    } else if (times_[index] == time) {
      return;
    }
    times_[index] = time;
    sift_down(sift_up(at));
  }

 private:
  static constexpr uint32_t kAbsent = 0xFFFFFFFFu;
  bool before(uint32_t a, uint32_t b) const {
    return times_[a] < times_[b] || (times_[a] == times_[b] && a < b);
  }
  void place(uint32_t at, uint32_t index) {
    heap_[at] = index;
    position_[index] = at;
  }
  uint32_t sift_up(uint32_t at) {
    const uint32_t index = heap_[at];
    while (at > 0 && before(index, heap_[(at - 1) / 2])) {
      place(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    place(at, index);
    return at;
  }
  void sift_down(uint32_t at) {
    const uint32_t index = heap_[at];
    for (;;) {
      uint32_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], index)) break;
      place(at, heap_[child]);
      at = child;
    }
    place(at, index);
  }
  void remove(uint32_t at) {
    position_[heap_[at]] = kAbsent;
    const uint32_t moved = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    place(at, moved);
    sift_down(sift_up(at));
  }

  std::vector<uint32_t> heap_;
  std::vector<uint32_t> position_;
  std::vector<Time> times_;
};

}  // namespace metaroce
