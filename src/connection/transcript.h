// The words of a handshake that both sides must have seen alike (MR-CONN-011).
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "wire/handshake_packet.h"

namespace metaroce::connection {

/// Words 2 to 6, the TLVs, and behind them word 7 with the number of their bytes: where one packet
/// ends and the next begins must not be open. The cookie is between the responder and the address,
/// and the proof is made from all the rest.
template <class Hash>
void absorb(Hash& hash, std::span<const std::byte> packet, size_t fixed) {
  hash.update(packet.subspan(8, 20));
  uint32_t hashed = 0;
  const size_t end = fixed + (wire::load32(packet.data() + 28) & 0xFFFF);
  for (size_t at = fixed; at + 2 <= end && end <= packet.size();) {
    const auto type = static_cast<uint8_t>(packet[at]) & 0x7F;
    const size_t size = (2 + static_cast<size_t>(packet[at + 1]) + 3) / 4 * 4;
    const bool left_out = type == wire::tlv::kCookie || type == wire::tlv::kProof;
    if (!left_out) {
      hash.update(packet.subspan(at, std::min(size, end - at)));
      hashed += static_cast<uint32_t>(std::min(size, end - at));
    }
    at += size;
  }
  std::array<std::byte, 4> word;
  wire::store32(word.data(), (wire::load32(packet.data() + 28) & 0xFFFF0000u) | hashed);
  hash.update(word);
}

}  // namespace metaroce::connection
