#include "memory/regions.h"

namespace metaroce::memory {

Regions::Regions(uint32_t capacity, Rng rng)
    : slab_(capacity), by_key_(capacity), rng_(rng.fork("keys")) {}

Expected<RegionInfo, Status> Regions::add(std::byte* base, uint64_t length, uint8_t rights) {
  return add_at(base, length, rights, reinterpret_cast<uint64_t>(base));
}

Expected<RegionInfo, Status> Regions::add_at(std::byte* base, uint64_t length, uint8_t rights,
                                             uint64_t remote_base) {
  if (length == 0 || remote_base + length < remote_base) return unexpected(Status::kInvalid);
  const uint32_t index = slab_.allocate();
  if (index == Slab<Region>::kNone) return unexpected(Status::kFull);
  // MR-MEM: 32 random bits a registration; 0 stays free so that a forgotten key never works.
  uint32_t key = rng_.next32();  // MR-MEM-001
  while (key == 0 || by_key_.find(key) != FlatMap::kNone) key = rng_.next32();
  slab_[index] = Region{base, length, remote_base, key, rights};
  const bool inserted = by_key_.insert(key, index);
  MR_ASSERT(inserted);
  return RegionInfo{index, key, remote_base};
}

Status Regions::remove(uint32_t index) {
  if (!slab_.is_used(index)) return Status::kUnknownHandle;
  const bool erased = by_key_.erase(slab_[index].key);  // MR-MEM-007
  MR_ASSERT(erased);
  slab_.release(index);
  return Status::kOk;
}

Expected<Target, AccessError> Regions::check(uint32_t key, uint64_t address, uint32_t length,
                                               uint8_t right) const {
  if (length == 0) return Target{};  // MR-MEM-005
  const uint32_t index = by_key_.find(key);
  if (index == FlatMap::kNone) return unexpected(AccessError::kKey);  // MR-MEM-002
  const Region& region = slab_[index];
  if ((region.rights & right) != right) return unexpected(AccessError::kRights);  // MR-MEM-004
  const uint64_t offset = address - region.remote_base;
  // MR-MEM-003
  if (address < region.remote_base || offset > region.length || length > region.length - offset) {
    return unexpected(AccessError::kBounds);
  }
  // MR-MEM-006
  return Target{index, offset, region.base == nullptr ? nullptr : region.base + offset,
                region.length - offset};
}

}  // namespace metaroce::memory
