// Doubly linked lists of slab entries by index: no pointers, no allocation, removal in O(1).
#pragma once

#include <cstdint>

#include "base/slab.h"

namespace metaroce::message {

inline constexpr uint32_t kNoIndex = 0xFFFFFFFFu;

struct Link {
  uint32_t prev = kNoIndex;
  uint32_t next = kNoIndex;
};

struct ListEnds {
  uint32_t head = kNoIndex;
  uint32_t tail = kNoIndex;
  bool empty() const { return head == kNoIndex; }
};

/// Puts i behind `after`; kNoIndex means to the front.
template <auto kLink, class T>
void list_insert_after(Slab<T>& slab, ListEnds& ends, uint32_t after, uint32_t i) {
  Link& link = slab[i].*kLink;
  link.prev = after;
  link.next = after == kNoIndex ? ends.head : (slab[after].*kLink).next;
  (link.next == kNoIndex ? ends.tail : (slab[link.next].*kLink).prev) = i;
  (link.prev == kNoIndex ? ends.head : (slab[link.prev].*kLink).next) = i;
}

template <auto kLink, class T>
void list_push_back(Slab<T>& slab, ListEnds& ends, uint32_t i) {
  list_insert_after<kLink>(slab, ends, ends.tail, i);
}

template <auto kLink, class T>
void list_remove(Slab<T>& slab, ListEnds& ends, uint32_t i) {
  const Link link = slab[i].*kLink;
  (link.next == kNoIndex ? ends.tail : (slab[link.next].*kLink).prev) = link.prev;
  (link.prev == kNoIndex ? ends.head : (slab[link.prev].*kLink).next) = link.next;
  slab[i].*kLink = Link{};
}

}  // namespace metaroce::message
