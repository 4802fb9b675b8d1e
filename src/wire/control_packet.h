// CONTROL: carries path sequence and CPSN like data; idempotent by generation or absolute value.
//
//   w0-4 as in common.h; w5 stream 16, control opcode 8, 0 8; w6 MSN or generation; w7 0; w8 on:
//   RESET          w6 0, w8 final MSN
//   CREDIT         w6 0, w8 receive limit 32
//   PATH_OPEN      w6 generation (low 16 bits), w8 path id 8, plane 8, 0 16, w9 start,
//                  then two addresses
//   PATH_CLOSE     w6 generation (low 16 bits), w8 path id 8, 0 24
//   PORT_STATUS    w6 generation, w8 plane mask of usable planes 16, 0 16, then 16 loss bytes
//   ADD_ADDR       w6 generation, w8 plane 8, 0 24, one address; family 0: none any more
//   CLOSE          w6 0, w8 code 16, application error 16
//   KEY_UPDATE     w6 generation
//   RESPONSE_ERROR w6 request MSN, w8 reason 8, 0 24
//   An address: family 8 (4 or 6), 0 8, port 16, then 16 bytes (IPv4 in the first four)
#pragma once

#include "base/address.h"
#include "base/types.h"
#include "wire/common.h"

namespace metaroce::wire {

inline constexpr size_t kMinControl = 32;
inline constexpr size_t kMaxControl = 80;  // MR-WIRE-031

struct ControlPacket {
  Sequenced s;
  uint16_t stream = 0;
  ControlOpcode opcode = ControlOpcode::kClose;
  uint32_t generation = 0;  ///< w6, or the MSN
  uint32_t value = 0;       ///< RESET final MSN, CREDIT limit, CLOSE code, PORT_STATUS mask
  uint8_t path = 0;         ///< PATH_OPEN, PATH_CLOSE: the path it speaks of
  uint8_t plane = 0;
  uint32_t start = 0;
  SocketAddress address[2];  ///< PATH_OPEN: the opener's, the peer's; ADD_ADDR: [0]
  uint8_t loss[kMaxPlanes] = {};
  Refusal reason = Refusal::kUnknown;

  bool operator==(const ControlPacket&) const = default;
};

Decoded<ControlPacket> decode_control(Bytes bytes);
/// Writes to out (at least kMaxControl bytes), returns the length.
size_t encode(const ControlPacket& packet, std::byte* out);

}  // namespace metaroce::wire
