// ACK (64 bytes), ACK_LONG (104), ACK_WIDE (160), ACK_WIDE_REFUSED (296): a snapshot of one path.
//
//   w0 as in common.h, last byte = status (flags 4, late count 4) | w1 destination connection
//   w2 connection-wide ACK counter | w3 path base | w4-11 map of base + 0..255 (w4 msb = base)
//   w12 echoed stamp 24, ack delay 8 | w13 CE count 16, rate hint 16 | w14 decided-through CPSN
//   w15 stream 16, its receive limit 16 (low bits)
//   ACK_LONG: w16-23 refused map, w24 reason 8, delay 8, stream 16, w25 receive-queue sequence
//   ACK_WIDE: map of 1,024 bits in w4-35, the rest follows; with refusals + 1,024-bit refused map
//   and the last two words of ACK_LONG
#pragma once

#include "base/bitmap256.h"
#include "wire/common.h"

namespace metaroce::wire {

inline constexpr size_t kAckBytes = 64;  // MR-WIRE-040
inline constexpr size_t kAckLongBytes = 104;  // MR-WIRE-041
inline constexpr size_t kAckWideBytes = 160;  // MR-WIRE-042
inline constexpr size_t kAckWideRefusedBytes = 296;

namespace ack_status {  // MR-WIRE-044
inline constexpr uint8_t kOtherPlane = 0x80;
inline constexpr uint8_t kPendingNearlyFull = 0x40;
inline constexpr uint8_t kSlabNearlyFull = 0x20;
inline constexpr uint8_t kUnsolicited = 0x10;
}  // namespace ack_status

inline constexpr uint16_t kHintNoLimit = 0xFFFF;
inline constexpr uint16_t kHintStop = 0;

/// The fields all four kinds share.
struct AckFields {
  uint8_t flags = 0;
  uint8_t path = 0;
  uint8_t status = 0;
  uint32_t connection = 0;
  uint32_t counter = 0;
  uint32_t base = 0;
  uint32_t stamp = 0;  ///< 24 bits
  uint8_t delay = 0;   ///< minifloat of 64 ns, see minifloat.h
  uint16_t ce_count = 0;
  uint16_t hint = kHintNoLimit;
  uint32_t decided_through = 0;
  uint16_t stream = 0;
  uint16_t limit = 0;
  // Only in the kinds with refusals:
  Refusal reason = Refusal::kUnknown;
  uint8_t refusal_delay = 0;  ///< same minifloat
  uint16_t refusal_stream = 0;
  uint32_t refusal_rq_seq = 0;

  bool operator==(const AckFields&) const = default;
};

/// ACK and ACK_LONG: bit i of the maps = base + i.
struct AckPacket {
  AckFields f;
  Bitmap256 map;
  Bitmap256 refused;
  bool is_long = false;

  bool operator==(const AckPacket&) const = default;
};

/// ACK_WIDE and ACK_WIDE_REFUSED: bit i of word i / 64 = base + i.
struct AckWidePacket {
  AckFields f;
  std::array<uint64_t, 16> map{};
  std::array<uint64_t, 16> refused{};
  bool has_refused = false;

  bool operator==(const AckWidePacket&) const = default;
};

/// Fails with kTooShort or kBadLength unless the length is exactly that of its kind; kBadField when
/// a refused bit has no map bit.
Decoded<AckPacket> decode_ack(Bytes bytes);
Decoded<AckWidePacket> decode_ack_wide(Bytes bytes);
size_t encode(const AckPacket& packet, std::byte* out);
size_t encode(const AckWidePacket& packet, std::byte* out);

}  // namespace metaroce::wire
