#include "wire/data_packet.h"

#include "base/types.h"
#include "wire/check.h"

namespace metaroce::wire {

namespace {

constexpr size_t kFixedBytes = 32;
constexpr uint32_t kAtomicBytes = 8;
constexpr uint8_t kMessageFlagMask = 0x1F;
constexpr uint32_t kOpcodes = 16;

// Header bytes by opcode and LAST; 0 = opcode not assigned. A table keeps the hot path to one
// load where the switch of data_header_bytes() would be a jump.
struct HeaderTable {
  uint8_t bytes[kOpcodes * 2] = {};
  constexpr HeaderTable() {
    for (uint32_t op = 0; op < kOpcodes; ++op) {
      bytes[op * 2] = static_cast<uint8_t>(data_header_bytes(static_cast<Opcode>(op), false));
      bytes[op * 2 + 1] = static_cast<uint8_t>(data_header_bytes(static_cast<Opcode>(op), true));
    }
  }
};
constexpr HeaderTable kHeader;

constexpr bool carries_payload(Opcode op) {
  constexpr uint32_t kWithout = 1u << static_cast<uint32_t>(Opcode::kReadRequest) |
                                1u << static_cast<uint32_t>(Opcode::kFetchAdd) |
                                1u << static_cast<uint32_t>(Opcode::kCompareSwap);
  return (kWithout >> static_cast<uint32_t>(op) & 1) == 0;
}

void load_key_address(const std::byte* p, DataPacket& d) {
  d.key = load32(p + 32);
  d.address = load64(p + 36);
}

void store_key_address(const DataPacket& d, std::byte* out) {
  store32(out + 32, d.key);
  store64(out + 36, d.address);
}

// The words from w8 on; the length has been checked.
void load_extension(const std::byte* p, DataPacket& d) {
  switch (d.opcode) {
    case Opcode::kWriteImm:
      if (d.last()) {
        d.rq_seq = load32(p + 44);
        d.immediate = load32(p + 48);
      }
      [[fallthrough]];
    case Opcode::kWrite:
      load_key_address(p, d);
      return;
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      if (d.last()) d.immediate = load32(p + 36);
      [[fallthrough]];
    case Opcode::kSend:
      d.rq_seq = load32(p + 32);
      return;
    case Opcode::kReadRequest:
      load_key_address(p, d);
      d.read_length = load32(p + 44);
      return;
    case Opcode::kCompareSwap:
      d.swap = load64(p + 52);
      [[fallthrough]];
    case Opcode::kFetchAdd:
      load_key_address(p, d);
      d.operand = load64(p + 44);
      return;
    case Opcode::kReadResponse:
    case Opcode::kAtomicResponse:
      return;
  }
}

}  // namespace

Decoded<DataPacket> decode_data(Bytes bytes) {
  const DropReason r = check_kind(bytes, PacketType::kData, kFixedBytes);
  if (r != DropReason::kNone) return unexpected(r);
  const std::byte* p = bytes.data();
  const uint32_t w5 = load32(p + 20);
  const uint32_t op = (w5 >> 8) & 0xFF;
  const uint32_t last = (w5 / message_flag::kLast) & 1;
  if (op >= kOpcodes) return unexpected(DropReason::kBadOpcode);
  const size_t header = kHeader.bytes[op * 2 + last];
  if (header == 0) return unexpected(DropReason::kBadOpcode);  // MR-WIRE-030
  if (bytes.size() < header) return unexpected(DropReason::kTooShort);

  Decoded<DataPacket> result;
  DataPacket& d = *result;
  d.s = load_sequenced(p);
  d.stream = static_cast<uint16_t>(w5 >> 16);
  d.opcode = static_cast<Opcode>(op);
  d.message_flags = static_cast<uint8_t>(w5) & kMessageFlagMask;
  d.msn = load32(p + 24);
  d.offset = load32(p + 28);
  d.payload_begin = static_cast<uint32_t>(header);
  d.payload_length = static_cast<uint32_t>(bytes.size() - header);
  const uint64_t end = uint64_t{d.offset} + (bytes.size() - header);
  if (end > kMaxMessageBytes) return unexpected(DropReason::kBadLength);  // MR-WIRE-028
  if (bytes.size() != header && !carries_payload(d.opcode)) {
    return unexpected(DropReason::kBadLength);  // MR-WIRE-006
  }
  if (d.opcode == Opcode::kAtomicResponse && d.payload_length != kAtomicBytes) {
    return unexpected(d.payload_length < kAtomicBytes ? DropReason::kTooShort
                                                      : DropReason::kBadLength);
  }
  load_extension(p, d);
  if (d.read_length > kMaxMessageBytes) return unexpected(DropReason::kBadField);
  return result;
}

size_t encode(const DataPacket& d, std::byte* out) {
  store_sequenced(out, PacketType::kData, d.s);
  store32(out + 20, uint32_t{d.stream} << 16 | uint32_t{static_cast<uint8_t>(d.opcode)} << 8 |
                        (d.message_flags & kMessageFlagMask));
  store32(out + 24, d.msn);
  store32(out + 28, d.offset);
  switch (d.opcode) {
    case Opcode::kWriteImm:
      if (d.last()) {
        store32(out + 44, d.rq_seq);
        store32(out + 48, d.immediate);
      }
      [[fallthrough]];
    case Opcode::kWrite:
      store_key_address(d, out);
      break;
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      if (d.last()) store32(out + 36, d.immediate);
      [[fallthrough]];
    case Opcode::kSend:
      store32(out + 32, d.rq_seq);
      break;
    case Opcode::kReadRequest:
      store_key_address(d, out);
      store32(out + 44, d.read_length);
      break;
    case Opcode::kCompareSwap:
      store64(out + 52, d.swap);
      [[fallthrough]];
    case Opcode::kFetchAdd:
      store_key_address(d, out);
      store64(out + 44, d.operand);
      break;
    case Opcode::kReadResponse:
    case Opcode::kAtomicResponse:
      break;
  }
  return kHeader.bytes[(static_cast<uint32_t>(d.opcode) & (kOpcodes - 1)) * 2 + (d.last() ? 1 : 0)];
}

}  // namespace metaroce::wire
