#include "wire/common.h"

#include "wire/check.h"

namespace metaroce::wire {

Decoded<Common> decode_common(Bytes bytes) {
  if (bytes.size() < kCommonBytes) return unexpected(DropReason::kTooShort);
  const uint32_t w0 = load32(bytes.data());
  if (w0 >> 30 != kVersion) return unexpected(DropReason::kBadVersion);
  const uint32_t type = (w0 >> 24) & 0x3F;
  if (type < static_cast<uint32_t>(PacketType::kData) ||
      type > static_cast<uint32_t>(PacketType::kRefuse)) {
    return unexpected(DropReason::kBadType);
  }
  Common c;
  c.type = static_cast<PacketType>(type);
  c.flags = static_cast<uint8_t>(w0 >> 16) & kFlagMask;
  c.path = static_cast<uint8_t>(w0 >> 8);
  c.floor = static_cast<uint8_t>(w0);
  c.connection = load32(bytes.data() + 4);
  return c;
}

}  // namespace metaroce::wire
