// How a placement is carried out, for drivers and for everything that stands in for one.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "base/fence.h"
#include "engine/api.h"

namespace metaroce::engine {

/// Copies so that the bytes with the highest addresses become visible last (MR-MSG-063): who sees
/// the last 8 bytes of a packet sees the others. No order between packets comes of it.
inline void copy_up(std::byte* to, const std::byte* from, size_t length) {
  constexpr size_t kWord = 8;
  const size_t head = length >= kWord ? length - kWord : 0;
  if (head > 0) std::memcpy(to, from, head);
  release_fence();
  if (length >= kWord) {
    uint64_t word;
    std::memcpy(&word, from + head, kWord);
    std::memcpy(to + head, &word, kWord);  // one store
    return;
  }
  for (size_t i = 0; i < length; ++i) {
    __atomic_store_n(reinterpret_cast<unsigned char*>(to + i), static_cast<unsigned char>(from[i]),
                     __ATOMIC_RELEASE);
  }
}

/// Calls `copy(address, from, length)` for each piece of a placement; an address may be null.
template <class Copy>
void for_each_piece(std::span<const std::byte> packet, const Placement& p, Copy copy) {
  const std::byte* from = packet.data() + p.payload_begin;
  if (p.rest.empty()) return copy(p.address, from, size_t{p.length});
  copy(p.address, from, size_t{p.first});
  size_t left = p.length - p.first;
  from += p.first;
  for (const Segment& s : p.rest) {
    if (left == 0) return;
    const size_t n = std::min<size_t>(left, s.length);
    if (n > 0) copy(s.address, from, n);
    from += n;
    left -= n;
  }
}

inline void carry_out(std::span<const std::byte> packet, const Placement& placement) {
  for_each_piece(packet, placement, [](std::byte* to, const std::byte* from, size_t length) {
    if (to != nullptr) copy_up(to, from, length);
  });
}

}  // namespace metaroce::engine
