// Objects of one kind whose storage is reserved in large pieces at set-up and touched only when an
// object lies there: what was never in use at once costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace metaroce {

/// take() never fails within what was promised and allocates nothing. The last given back is the
/// next taken, so that the storage in use stays small. Every object is given back by its owner.
template <class T>
class LazySlab {
 public:
  LazySlab() = default;
  ~LazySlab() { MR_ASSERT(used_ == 0); }
  LazySlab(const LazySlab&) = delete;
  LazySlab& operator=(const LazySlab&) = delete;

  /// Set-up: `count` more objects may be in use at once.
  void promise(uint32_t count) {
    promised_ += count;
    while (promised_ > pieces_.size() * kPiece) {
      // Not value-initialised: the pages stay untouched.
      pieces_.emplace_back(new Place[kPiece]);
    }
  }
  /// Takes back a promise; the storage stays for the next one.
  void release_promise(uint32_t count) {
    MR_ASSERT(count <= promised_);
    promised_ -= count;
  }

  template <class... Args>
  T* take(Args&&... args) {
    MR_ASSERT(used_ < promised_);
    Place* place = free_;
    if (place != nullptr) {
      free_ = place->next;
    } else {
      place = &pieces_[touched_ / kPiece][touched_ % kPiece];
      ++touched_;
    }
    ++used_;
    return new (place->bytes) T(std::forward<Args>(args)...);
  }

  void give(T* object) {
    MR_ASSERT(used_ > 0);
    object->~T();
    auto* place = new (static_cast<void*>(object)) Place;
    place->next = free_;
    free_ = place;
    --used_;
  }

  uint32_t used() const { return used_; }
  /// Most objects that were ever in use at once: as much storage was touched.
  uint32_t touched() const { return touched_; }

 private:
  static constexpr uint32_t kPiece = 1024;
  union Place {
    Place() {}  // NOLINT(modernize-use-equals-default): nothing is to be written here
    Place* next;
    alignas(T) std::byte bytes[sizeof(T)];
  };

  std::vector<std::unique_ptr<Place[]>> pieces_;
  Place* free_ = nullptr;
  uint32_t promised_ = 0;
  uint32_t touched_ = 0;
  uint32_t used_ = 0;
};

}  // namespace metaroce
