// PROBE, 32 bytes: asks for an acknowledgement of its path; padding may follow.
//
//   w0-4 as in common.h, w4 = highest CPSN sent; w5 = stream 16 that asks for credit, 0 16; w6-7 0
//
// VOID, 32 bytes: "what is this CPSN?" turns an unseen CPSN into a refused one (MR-CPSN).
//
//   w0-4 as in common.h, w4 = the target | w5-7 0
#pragma once

#include "wire/common.h"

namespace metaroce::wire {

inline constexpr size_t kProbeBytes = 32;

struct ProbePacket {
  Sequenced s;
  uint16_t stream = 0;
  bool operator==(const ProbePacket&) const = default;
};

struct VoidPacket {
  Sequenced s;
  bool operator==(const VoidPacket&) const = default;
};

Decoded<ProbePacket> decode_probe(Bytes bytes);
Decoded<VoidPacket> decode_void(Bytes bytes);
size_t encode(const ProbePacket& packet, std::byte* out);
size_t encode(const VoidPacket& packet, std::byte* out);

}  // namespace metaroce::wire
