// Registered memory of the C interface: handles with generations, and what is posted on them.
#include <fmt/core.h>

#include "api/native/context.h"
#include "api/native/versioned.h"

namespace metaroce::api::native {
namespace {

constexpr uint32_t kKnownRights =
    MR_REMOTE_WRITE | MR_REMOTE_READ | MR_REMOTE_ATOMIC | MR_REMOTE_INVALIDATE;
static_assert(MR_REMOTE_WRITE == memory::access::kRemoteWrite);
static_assert(MR_REMOTE_READ == memory::access::kRemoteRead);
static_assert(MR_REMOTE_ATOMIC == memory::access::kRemoteAtomic);
static_assert(MR_REMOTE_INVALIDATE == memory::access::kRemoteInvalidate);

/// Takes a region or window into the table and tells the caller of it.
void enter(Context& c, const Region& made, std::byte* memory, uint64_t length, uint32_t rights,
           mr_region_info* info) {
  RegionRecord& record = c.regions()[made.index];
  record.region = made;
  record.memory = memory;
  record.length = length;
  record.posted = 0;
  record.used = true;
  ++record.generation;
  mr_region_info out{};
  out.region = uint64_t{record.generation} << 32 | (made.index + 1);
  out.address = made.address;
  out.key = made.key;
  out.rights = rights;
  out.length = length;
  give_sized(out, info);
}

mr_status add_region(Context& c, void* memory, size_t length, uint32_t rights,
                     mr_region_info* info) {
  if (info == nullptr || info->size < sizeof info->size) {
    return c.fail(MR_INVALID,
                  "info is NULL or its size is not set; it must be "
                  "sizeof(mr_region_info)");
  }
  if (memory == nullptr || length == 0) {
    return c.fail(MR_INVALID, fmt::format("memory is {}, length is {}; a region needs an address "
                                          "and at least 1 byte",
                                          memory, length));
  }
  if ((rights & ~kKnownRights) != 0) {
    return c.fail(MR_INVALID,
                  fmt::format("rights is {:#x}; this version knows {:#x}", rights, kKnownRights));
  }
  const auto made = c.endpoint().register_region({static_cast<std::byte*>(memory), length},
                                                 static_cast<uint8_t>(rights));
  if (!made) {
    std::string text = made.error().text;
    if (made.error().status == Status::kFull) {
      text = fmt::format("all {} memory regions are in use; raise the setting max_regions",
                         c.settings().max_regions);
    }
    return c.fail(to_c(made.error().status), std::move(text));
  }
  enter(c, *made, static_cast<std::byte*>(memory), length, rights, info);
  return MR_OK;
}

mr_status open_window(Context& c, mr_region region, uint64_t offset, uint64_t length,
                      uint32_t rights, uint32_t domain, mr_region_info* info) {
  if (info == nullptr || info->size < sizeof info->size) {
    return c.fail(MR_INVALID,
                  "info is NULL or its size is not set; it must be "
                  "sizeof(mr_region_info)");
  }
  uint32_t index = 0;
  const RegionRecord* r = c.find_region(region, index);
  if (r == nullptr) {
    return c.fail(MR_UNKNOWN_HANDLE, fmt::format("there is no region {:#x}", region));
  }
  if ((rights & ~kKnownRights) != 0) {
    return c.fail(MR_INVALID,
                  fmt::format("rights is {:#x}; this version knows {:#x}", rights, kKnownRights));
  }
  const auto made =
      c.endpoint().open_window(r->region, offset, length, static_cast<uint8_t>(rights), domain);
  if (!made && made.error() == Status::kFull) {
    return c.fail(MR_FULL, fmt::format("all {} regions and windows are in use; raise the setting "
                                       "max_regions",
                                       c.settings().max_regions));
  }
  if (!made) {
    return c.fail(MR_INVALID, fmt::format("{} bytes at offset {} are not inside the region of {} "
                                          "bytes, or it is a window itself",
                                          length, offset, r->length));
  }
  enter(c, *made, r->memory + offset, length, rights, info);
  return MR_OK;
}

}  // namespace

RegionRecord* Context::find_region(mr_region region, uint32_t& index) {
  index = static_cast<uint32_t>(region) - 1;
  if (index >= regions_.size()) return nullptr;
  RegionRecord& record = regions_[index];
  return record.used && record.generation == region >> 32 ? &record : nullptr;
}

}  // namespace metaroce::api::native

using metaroce::api::native::Context;
using metaroce::api::native::guarded;

extern "C" {

mr_status mr_region_register(mr_context* context, void* memory, size_t length, uint32_t rights,
                             mr_region_info* info) {
  return guarded(context, [&](Context& c) {
    return metaroce::api::native::add_region(c, memory, length, rights, info);
  });
}

mr_status mr_region_deregister(mr_context* context, mr_region region) {
  return guarded(context, [&](Context& c) {
    uint32_t index = 0;
    auto* record = c.find_region(region, index);
    if (record == nullptr) {
      return c.fail(MR_UNKNOWN_HANDLE, fmt::format("there is no region {:#x}", region));
    }
    if (record->posted != 0) {
      return c.fail(MR_BUSY, fmt::format("{} posted requests use the region; poll their "
                                         "completions first",
                                         record->posted));
    }
    const auto status = c.endpoint().deregister_region(record->region);
    if (status == metaroce::Status::kInvalid) {
      return c.fail(MR_BUSY, "windows are open on the region; close them first");
    }
    record->used = false;
    return metaroce::api::native::to_c(status);
  });
}

mr_status mr_window_open(mr_context* context, mr_region region, uint64_t offset, uint64_t length,
                         uint32_t rights, uint32_t domain, mr_region_info* info) {
  return guarded(context, [&](Context& c) {
    return metaroce::api::native::open_window(c, region, offset, length, rights, domain, info);
  });
}

}  // extern "C"
