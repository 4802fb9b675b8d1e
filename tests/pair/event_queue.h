// The clock of a simulated run: events ordered by (time, sequence number), so that ties have an
// order of their own and a run depends on nothing but its seed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "base/time.h"

namespace metaroce::pair {

enum class EventKind : uint32_t {
  kArrival,   ///< argument: packet index in the network
  kDeadline,  ///< argument: side
  kNetwork,   ///< the set of active impairments changes
  kUser,      ///< argument: a number the caller chose
};

struct Event {
  int64_t time = 0;
  uint64_t sequence = 0;
  EventKind kind = EventKind::kUser;
  uint32_t argument = 0;
};

/// A heap with four children a node: half the depth of a binary one, and a node's children are
/// neighbours in memory.
class EventQueue {
 public:
  EventQueue() { heap_.reserve(4096); }

  bool empty() const { return heap_.empty(); }
  Time next_time() const { return heap_.empty() ? kNever : Time{heap_.front().time}; }
  const Event& top() const { return heap_.front(); }
  uint64_t pushed() const { return sequence_; }

  void push(Time at, EventKind kind, uint32_t argument) {
    heap_.push_back({});
    size_t i = heap_.size() - 1;
    const Event event{at.ns, sequence_++, kind, argument};
    while (i > 0) {
      const size_t up = (i - 1) / 4;
      if (!before(event, heap_[up])) break;
      heap_[i] = heap_[up];
      i = up;
    }
    heap_[i] = event;
  }

  Event pop() {
    MR_DASSERT(!heap_.empty());
    const Event result = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    const size_t n = heap_.size();
    if (n == 0) return result;
    size_t i = 0;
    for (;;) {
      const size_t child = i * 4 + 1;
      if (child >= n) break;
      size_t best = child;
      const size_t end = child + 4 < n ? child + 4 : n;
      for (size_t c = child + 1; c < end; ++c)
        if (before(heap_[c], heap_[best])) best = c;
      if (!before(heap_[best], last)) break;
      heap_[i] = heap_[best];
      i = best;
    }
    heap_[i] = last;
    return result;
  }

 private:
  static bool before(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.sequence < b.sequence;
  }

  std::vector<Event> heap_;
  uint64_t sequence_ = 0;
};

}  // namespace metaroce::pair
