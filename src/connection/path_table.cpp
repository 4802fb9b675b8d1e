#include "connection/path_table.h"

#include <algorithm>
#include <array>
#include <new>

namespace metaroce::connection {
namespace {

using path::RestingPath;

bool can_rest(const PathSlot& slot, const std::vector<SocketAddress>& usual_peer) {
  if (slot.repair.size > 0 || slot.pmtu_search || slot.pmtu_due || slot.pmtu_at != kNever) {
    return false;
  }
  return slot.tx.can_rest() && slot.rx.can_rest(usual_peer[slot.rx.plane]);
}

RestingPath folded(const PathSlot& slot) {
  RestingPath out;
  slot.tx.rest(out);
  slot.rx.rest(out);
  out.big_losses = slot.big_losses;
  out.told = static_cast<uint8_t>(slot.told);
  out.noted = static_cast<uint8_t>(slot.noted);
  out.change = static_cast<uint8_t>(slot.change);
  out.changed_at = path::coarse(slot.changed_at);
  return out;
}

void unfold(Time now, const RestingPath& from, const SocketAddress& usual_peer, PathSlot& slot) {
  slot.tx.wake(now, from);
  slot.rx.wake(from, usual_peer);
  slot.big_losses = from.big_losses;
  slot.told = static_cast<PathState>(from.told);
  slot.noted = static_cast<path::State>(from.noted);
  slot.change = static_cast<PathChange>(from.change);
  slot.changed_at = path::from_coarse(now, from.changed_at);
}

}  // namespace

PathTable::~PathTable() {
  for (uint32_t i = 0; !resting_ && i < size_; ++i) pool_.give(slots()[i]);
  pool_.release_promise(capacity_);
}

void PathTable::reserve(uint32_t count) {
  MR_ASSERT(!resting_);
  if (count <= capacity_) return;
  pool_.promise(count - capacity_);
  std::unique_ptr<std::byte[]> storage(new std::byte[count * sizeof(RestingPath)]);
  auto counters = std::make_unique<PathCounters[]>(count);
  for (uint32_t i = 0; i < size_; ++i) {
    PathSlot* slot = slots()[i];
    new (storage.get() + i * sizeof(PathSlot*)) PathSlot*(slot);
    counters[i] = counters_[i];
    slot->tx.counters = slot->rx.counters = &counters[i];
  }
  storage_ = std::move(storage);
  counters_ = std::move(counters);
  capacity_ = count;
}

PathSlot& PathTable::add() {
  if (size_ == capacity_) reserve(std::min(kMaxPaths, capacity_ + 8));
  MR_ASSERT(size_ < capacity_);
  PathSlot* slot = pool_.take(settings_, windows_, counters_[size_]);
  slot->tx.id = static_cast<uint8_t>(size_);
  new (storage_.get() + size_ * sizeof(PathSlot*)) PathSlot*(slot);
  ++size_;
  return *slot;
}

bool PathTable::rest(const std::vector<SocketAddress>& usual_peer) {
  MR_ASSERT(!resting_);
  std::array<PathSlot*, kMaxPaths> held;
  std::copy_n(slots(), size_, held.begin());
  for (uint32_t i = 0; i < size_; ++i) {
    if (!can_rest(*held[i], usual_peer)) return false;
  }
  for (uint32_t i = 0; i < size_; ++i) {
    new (storage_.get() + i * sizeof(RestingPath)) RestingPath(folded(*held[i]));
    pool_.give(held[i]);
  }
  resting_ = true;
  return true;
}

void PathTable::wake(Time now, const std::vector<SocketAddress>& usual_peer) {
  MR_ASSERT(resting_);
  std::array<PathSlot*, kMaxPaths> taken;
  for (uint32_t i = 0; i < size_; ++i) {
    taken[i] = pool_.take(settings_, windows_, counters_[i]);
    taken[i]->tx.id = static_cast<uint8_t>(i);
    const RestingPath& from = rests()[i];
    unfold(now, from, usual_peer[from.rx_plane], *taken[i]);
  }
  for (uint32_t i = 0; i < size_; ++i) {
    new (storage_.get() + i * sizeof(PathSlot*)) PathSlot*(taken[i]);
  }
  resting_ = false;
}

}  // namespace metaroce::connection
