// Checks that every decoder starts with. Internal to wire/.
#pragma once

#include <bit>

#include "wire/types.h"

namespace metaroce::wire {

static_assert(std::endian::native == std::endian::little, "load32 and the maps assume it");

/// First byte of a packet of this type in our version.
constexpr std::byte first_byte(PacketType type) {
  return static_cast<std::byte>(kVersion << 6 | static_cast<uint8_t>(type));
}

/// kNone when `bytes` is of our version, of this type and at least `least` bytes long.
inline DropReason check_kind(Bytes bytes, PacketType type, size_t least) {
  if (bytes.size() >= least && bytes[0] == first_byte(type)) [[likely]]
    return DropReason::kNone;
  if (bytes.size() < least) return DropReason::kTooShort;  // MR-WIRE-012
  return (static_cast<uint8_t>(bytes[0]) >> 6) != kVersion ? DropReason::kBadVersion
                                                           : DropReason::kBadType;
}

/// The same for a kind that has one length only.
inline DropReason check_exact(Bytes bytes, PacketType type, size_t length) {
  const DropReason r = check_kind(bytes, type, length);
  if (r != DropReason::kNone) return r;
  return bytes.size() == length ? DropReason::kNone : DropReason::kBadLength;
}

/// Numbers this revision does not know read as "unknown": a sender may learn new ones first.
constexpr Refusal refusal_of(uint8_t v) {  // MR-WIRE-060
  return v <= static_cast<uint8_t>(Refusal::kSpan) ? static_cast<Refusal>(v) : Refusal::kUnknown;
}

}  // namespace metaroce::wire
