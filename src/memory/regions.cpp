#include "memory/regions.h"

namespace metaroce::memory {

Regions::Regions(uint32_t capacity, Rng rng)
    : slab_(capacity), by_key_(capacity), rng_(rng.fork("keys")) {}

Expected<RegionInfo, Status> Regions::add(std::byte* base, uint64_t length, uint8_t rights,
                                          Domain domain) {
  return add_at(base, length, rights, reinterpret_cast<uint64_t>(base), domain);
}

Expected<RegionInfo, Status> Regions::add_at(std::byte* base, uint64_t length, uint8_t rights,
                                             uint64_t remote_base, Domain domain) {
  if (length == 0 || remote_base + length < remote_base) return unexpected(Status::kInvalid);
  Region region;
  region.base = base;
  region.length = length;
  region.remote_base = remote_base;
  region.rights = rights;
  region.domain = domain;
  return insert(region);
}

Expected<RegionInfo, Status> Regions::add_window(uint32_t index, uint64_t offset, uint64_t length,
                                                 uint8_t rights, Domain domain) {
  if (!slab_.is_used(index)) return unexpected(Status::kUnknownHandle);
  const Region& parent = slab_[index];
  if (parent.parent != kNoRegion || length == 0 || offset > parent.length ||
      length > parent.length - offset) {
    return unexpected(Status::kInvalid);
  }
  Region window;
  window.base = parent.base == nullptr ? nullptr : parent.base + offset;
  window.length = length;
  window.remote_base = parent.remote_base + offset;
  window.rights = rights;
  window.domain = domain;
  window.parent = index;
  const auto added = insert(window);
  if (added) ++slab_[index].windows;
  return added;
}

Expected<RegionInfo, Status> Regions::insert(const Region& region) {
  const uint32_t index = slab_.allocate();
  if (index == Slab<Region>::kNone) return unexpected(Status::kFull);
  // 32 random bits a registration; 0 stays free so that a forgotten key never works.
  uint32_t key = rng_.next32();  // MR-MEM-001
  while (key == 0 || by_key_.find(key) != FlatMap::kNone) key = rng_.next32();
  slab_[index] = region;
  slab_[index].key = key;
  const bool inserted = by_key_.insert(key, index);
  MR_ASSERT(inserted);
  return RegionInfo{index, key, region.remote_base};
}

Status Regions::remove(uint32_t index) {
  if (!slab_.is_used(index)) return Status::kUnknownHandle;
  const Region& region = slab_[index];
  if (region.windows > 0) return Status::kInvalid;
  if (region.key != 0) {
    const bool erased = by_key_.erase(region.key);  // MR-MEM-007
    MR_ASSERT(erased);
  }
  if (region.parent != kNoRegion) --slab_[region.parent].windows;
  slab_.release(index);
  return Status::kOk;
}

bool Regions::may_invalidate(uint32_t key, Domain domain) const {
  const uint32_t index = by_key_.find(key);
  if (index == FlatMap::kNone) return false;
  const Region& region = slab_[index];
  return (region.domain == 0 || region.domain == domain) &&
         (region.rights & access::kRemoteInvalidate) != 0;
}

void Regions::invalidate(uint32_t key) {
  const uint32_t index = by_key_.find(key);
  if (index == FlatMap::kNone) return;
  by_key_.erase(key);
  slab_[index].key = 0;
}

Expected<Target, AccessError> Regions::check(uint32_t key, uint64_t address, uint32_t length,
                                             uint8_t right, Domain domain) const {
  if (length == 0) return Target{};  // MR-MEM-005
  const uint32_t index = by_key_.find(key);
  if (index == FlatMap::kNone) return unexpected(AccessError::kKey);  // MR-MEM-002
  const Region& region = slab_[index];
  if (region.domain != 0 && region.domain != domain) return unexpected(AccessError::kKey);
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
