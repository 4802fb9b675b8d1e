#include "wire/control_packet.h"

#include "wire/address_codec.h"
#include "wire/check.h"

namespace metaroce::wire {

namespace {

constexpr uint32_t kPathGenerationMask = 0xFFFF;  // as many bits as it has in the AEAD nonce

constexpr size_t control_bytes(ControlOpcode opcode) {
  switch (opcode) {
    case ControlOpcode::kReset:
    case ControlOpcode::kCredit:
    case ControlOpcode::kPathClose:
    case ControlOpcode::kClose:
    case ControlOpcode::kResponseError:
      return 36;
    case ControlOpcode::kPathOpen:
      return 40 + 2 * kAddressBytes;
    case ControlOpcode::kPortStatus:
      return 36 + kMaxPlanes;
    case ControlOpcode::kAddAddr:
      return 36 + kAddressBytes;
    case ControlOpcode::kKeyUpdate:
      return 32;
  }
  return 0;
}
static_assert(control_bytes(ControlOpcode::kPathOpen) == kMaxControl);

uint32_t word6(const ControlPacket& c) {
  switch (c.opcode) {
    case ControlOpcode::kReset:
      return c.generation & 1;
    case ControlOpcode::kCredit:
    case ControlOpcode::kClose:
      return 0;
    case ControlOpcode::kPathOpen:
    case ControlOpcode::kPathClose:
      return c.generation & kPathGenerationMask;
    default:
      return c.generation;
  }
}

// The words from w8 on; the length has been checked.
DropReason load_words(const std::byte* p, ControlPacket& c) {
  const uint32_t w8 = c.opcode == ControlOpcode::kKeyUpdate ? 0 : load32(p + 32);
  switch (c.opcode) {
    case ControlOpcode::kReset:
      c.generation &= 1;
      c.value = w8;
      return DropReason::kNone;
    case ControlOpcode::kCredit:
    case ControlOpcode::kClose:
      c.generation = 0;
      c.value = w8;
      return DropReason::kNone;
    case ControlOpcode::kPathOpen:
      c.generation &= kPathGenerationMask;
      c.path = static_cast<uint8_t>(w8 >> 24);
      c.plane = static_cast<uint8_t>(w8 >> 16);
      c.start = load32(p + 36);
      if (!load_address(p + 40, c.address[0]) || !load_address(p + 60, c.address[1]) ||
          c.plane >= kMaxPlanes) {
        return DropReason::kBadField;
      }
      return DropReason::kNone;
    case ControlOpcode::kPathClose:
      c.generation &= kPathGenerationMask;
      c.path = static_cast<uint8_t>(w8 >> 24);
      return DropReason::kNone;
    case ControlOpcode::kPortStatus:
      c.value = w8 >> 16;
      __builtin_memcpy(c.loss, p + 36, kMaxPlanes);
      return DropReason::kNone;
    case ControlOpcode::kAddAddr:
      c.plane = static_cast<uint8_t>(w8 >> 24);
      if (!load_address(p + 36, c.address[0]) || c.plane >= kMaxPlanes) {
        return DropReason::kBadField;
      }
      return DropReason::kNone;
    case ControlOpcode::kKeyUpdate:
      return DropReason::kNone;
    case ControlOpcode::kResponseError:
      c.reason = refusal_of(static_cast<uint8_t>(w8 >> 24));
      return DropReason::kNone;
  }
  return DropReason::kBadOpcode;
}

}  // namespace

Decoded<ControlPacket> decode_control(Bytes bytes) {
  const DropReason r = check_kind(bytes, PacketType::kControl, kMinControl);
  if (r != DropReason::kNone) return unexpected(r);
  const std::byte* p = bytes.data();
  const uint32_t w5 = load32(p + 20);
  ControlPacket c;
  c.opcode = static_cast<ControlOpcode>(w5 >> 8 & 0xFF);
  const size_t length = control_bytes(c.opcode);
  if (length == 0) return unexpected(DropReason::kBadOpcode);
  if (bytes.size() < length) return unexpected(DropReason::kTooShort);
  if (bytes.size() > length) return unexpected(DropReason::kBadLength);
  c.s = load_sequenced(p);
  c.stream = static_cast<uint16_t>(w5 >> 16);
  c.generation = load32(p + 24);
  const DropReason words = load_words(p, c);
  if (words != DropReason::kNone) return unexpected(words);
  return c;
}

size_t encode(const ControlPacket& c, std::byte* out) {
  store_sequenced(out, PacketType::kControl, c.s);
  store32(out + 20, uint32_t{c.stream} << 16 | uint32_t{static_cast<uint8_t>(c.opcode)} << 8);
  store32(out + 24, word6(c));
  store32(out + 28, 0);
  switch (c.opcode) {
    case ControlOpcode::kReset:
    case ControlOpcode::kCredit:
    case ControlOpcode::kClose:
      store32(out + 32, c.value);
      break;
    case ControlOpcode::kPathOpen:
      store32(out + 32, uint32_t{c.path} << 24 | uint32_t{c.plane} << 16);
      store32(out + 36, c.start);
      store_address(out + 40, c.address[0]);
      store_address(out + 60, c.address[1]);
      break;
    case ControlOpcode::kPathClose:
      store32(out + 32, uint32_t{c.path} << 24);
      break;
    case ControlOpcode::kPortStatus:
      store32(out + 32, c.value << 16);
      __builtin_memcpy(out + 36, c.loss, kMaxPlanes);
      break;
    case ControlOpcode::kAddAddr:
      store32(out + 32, uint32_t{c.plane} << 24);
      store_address(out + 36, c.address[0]);
      break;
    case ControlOpcode::kKeyUpdate:
      break;
    case ControlOpcode::kResponseError:
      store32(out + 32, uint32_t{static_cast<uint8_t>(c.reason)} << 24);
      break;
  }
  return control_bytes(c.opcode);
}

}  // namespace metaroce::wire
