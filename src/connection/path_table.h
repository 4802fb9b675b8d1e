// The paths of a connection by path id: slots while it is awake, RestingPaths in the same storage
// while it rests (MR-CONN-040). Counters stay where they are.
#pragma once

#include <memory>
#include <vector>

#include "connection/path_slot.h"
#include "path/resting.h"

namespace metaroce::connection {

class PathTable {
 public:
  PathTable(PathPool& pool, const Settings& settings, Slab<path::SentWindow>& windows)
      : pool_(pool), settings_(settings), windows_(windows) {}
  ~PathTable();
  PathTable(const PathTable&) = delete;
  PathTable& operator=(const PathTable&) = delete;

  uint32_t size() const { return size_; }
  /// Allocates room for `count` paths. Awake only.
  void reserve(uint32_t count);
  /// One more, with the next id; may allocate. Awake only.
  PathSlot& add();

  // Awake only.
  PathSlot* operator[](size_t i) { return awake()[i]; }
  const PathSlot* operator[](size_t i) const { return awake()[i]; }
  const PathSlot* const* begin() const { return awake(); }
  const PathSlot* const* end() const { return awake() + size_; }

  PathCounters& counters(size_t i) { return counters_[i]; }
  const PathCounters& counters(size_t i) const { return counters_[i]; }

  bool resting() const { return resting_; }
  /// `usual_peer`: the peer's address on each plane that a path may have. Nothing is done unless
  /// every path can rest.
  bool rest(const std::vector<SocketAddress>& usual_peer);
  void wake(Time now, const std::vector<SocketAddress>& usual_peer);
  /// While it rests.
  const path::RestingPath& at_rest(size_t i) const {
    MR_DASSERT(resting_);
    return rests()[i];
  }

  /// Storage of this table at rest, without the counters.
  size_t state_bytes() const { return capacity_ * sizeof(path::RestingPath); }
  size_t counter_bytes() const { return capacity_ * sizeof(PathCounters); }

 private:
  static_assert(sizeof(path::RestingPath) >= sizeof(PathSlot*));
  PathSlot** awake() const {
    MR_DASSERT(!resting_);
    return slots();
  }
  PathSlot** slots() const { return reinterpret_cast<PathSlot**>(storage_.get()); }
  path::RestingPath* rests() const {
    return reinterpret_cast<path::RestingPath*>(storage_.get());
  }

  PathPool& pool_;
  const Settings& settings_;
  Slab<path::SentWindow>& windows_;
  std::unique_ptr<std::byte[]> storage_;
  std::unique_ptr<PathCounters[]> counters_;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
  bool resting_ = false;
};

}  // namespace metaroce::connection
