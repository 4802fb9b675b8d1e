// Registered memory: keys, bounds and rights (MR-MEM).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/expected.h"
#include "base/flat_map.h"
#include "base/rng.h"
#include "base/slab.h"
#include "base/status.h"

namespace metaroce::memory {

namespace access {
inline constexpr uint8_t kRemoteWrite = 0x01;
inline constexpr uint8_t kRemoteRead = 0x02;
inline constexpr uint8_t kRemoteAtomic = 0x04;
inline constexpr uint8_t kRemoteInvalidate = 0x08;  ///< a peer's SEND_INV may end the key
}  // namespace access

/// Why an access is not allowed.
enum class AccessError : uint8_t { kKey, kBounds, kRights };

inline constexpr uint32_t kNoRegion = 0xFFFFFFFFu;
/// Protection domain: a group of connections. A key of domain 0 serves all of them.
using Domain = uint32_t;

struct Region {
  std::byte* base = nullptr;  ///< null: a region without memory (simulation)
  uint64_t length = 0;
  uint64_t remote_base = 0;  ///< the address that peers use for its first byte
  uint32_t key = 0;
  Domain domain = 0;
  uint32_t parent = kNoRegion;  ///< of a window: the region it opens a part of
  uint32_t windows = 0;         ///< of a region: how many windows there are
  uint8_t rights = 0;
};

struct RegionInfo {
  uint32_t index = 0;
  uint32_t key = 0;
  uint64_t remote_base = 0;
};

/// Where a checked access lands.
struct Target {
  uint32_t region = 0;
  uint64_t offset = 0;
  std::byte* address = nullptr;
  uint64_t room = 0;  ///< bytes from there to the end of the region
};

class Regions {
 public:
  Regions(uint32_t capacity, Rng rng);

  /// Fails with kFull or kInvalid (length 0, or remote addresses that would wrap).
  Expected<RegionInfo, Status> add(std::byte* base, uint64_t length, uint8_t rights,
                                   Domain domain = 0);
  /// As add, with an own remote base address.
  Expected<RegionInfo, Status> add_at(std::byte* base, uint64_t length, uint8_t rights,
                                      uint64_t remote_base, Domain domain = 0);
  /// A key of its own for a part of a region, with rights of its own, for the connections of one
  /// domain. Addresses are those of the region. kUnknownHandle, kInvalid, kFull.
  Expected<RegionInfo, Status> add_window(uint32_t region, uint64_t offset, uint64_t length,
                                          uint8_t rights, Domain domain);
  /// kUnknownHandle; kInvalid: the region still has windows. Nothing is placed in it and nothing
  /// read from it when this returned (MR-MEM-007).
  Status remove(uint32_t index);

  /// A peer of this domain may end this key (MR-MEM-008).
  bool may_invalidate(uint32_t key, Domain domain) const;
  /// Its key is no more; remove() still ends the region or window.
  void invalidate(uint32_t key);

  /// Checks key, bounds and rights; a zero-length access checks nothing (MR-MEM).
  Expected<Target, AccessError> check(uint32_t key, uint64_t address, uint32_t length,
                                      uint8_t right, Domain domain = 0) const;

  uint32_t count() const { return slab_.used(); }

 private:
  Expected<RegionInfo, Status> insert(const Region& region);

  Slab<Region> slab_;
  FlatMap by_key_;
  Rng rng_;
};

}  // namespace metaroce::memory
