// Words 0 and 1, common to all packets, and words 2 to 4 of data, control and probe.
//
//   w0 | version 2 | type 6 | flags 8 | path id 8 | floor or status 8 |
//   w1 | destination connection id 32 (index 16, random 16)          |
//   w2 | path sequence 32                                             |
//   w3 | tx stamp 24 (64 ns) | epoch 4 | backlog 2 | reserved 2       |
//   w4 | CPSN 32                                                      |
#pragma once

#include "wire/types.h"

namespace metaroce::wire {

inline constexpr size_t kCommonBytes = 8;
inline constexpr size_t kSequencedBytes = 20;

struct Common {
  PacketType type = PacketType::kData;
  uint8_t flags = 0;
  uint8_t path = 0;
  uint8_t floor = 0;  ///< floor delta; of an ACK the status byte
  uint32_t connection = 0;

  bool operator==(const Common&) const = default;
};

/// How much the sender still has to send, bits 2 of word 3.
enum class Backlog : uint8_t { kNone = 0, kBelowBdp = 1, kMore = 2, kBulk = 3 };

/// The words that every sequenced packet (data, control, probe, VOID) starts with.
struct Sequenced {
  uint8_t flags = 0;
  uint8_t path = 0;
  uint8_t floor = 0;
  uint32_t connection = 0;
  uint32_t path_seq = 0;
  uint32_t stamp = 0;  ///< 24 bits, units of 64 ns
  uint8_t epoch = 0;   ///< 4 bits
  Backlog backlog = Backlog::kNone;
  uint32_t cpsn = 0;

  bool operator==(const Sequenced&) const = default;
};

/// Fails on fewer than 8 bytes, another version or an unassigned type.
Decoded<Common> decode_common(Bytes bytes);

// MR-WIRE-002
inline constexpr uint8_t kFlagMask = 0xFC;  ///< bits of the flags byte that have a meaning

/// Word 0 from its parts; unused flag bits become zero.
constexpr uint32_t word0(PacketType type, uint8_t flags, uint8_t path, uint8_t floor) {
  // MR-WIRE-003
  return uint32_t{kVersion} << 30 | uint32_t{static_cast<uint8_t>(type)} << 24 |
         uint32_t{static_cast<uint8_t>(flags & kFlagMask)} << 16 | uint32_t{path} << 8 | floor;
}

/// Decodes words 0 to 4; the caller has checked type and that 20 bytes are there.
inline Sequenced load_sequenced(const std::byte* p) {
  const uint32_t w0 = load32(p);
  const uint32_t w3 = load32(p + 12);
  Sequenced s;
  s.flags = static_cast<uint8_t>(w0 >> 16) & kFlagMask;
  s.path = static_cast<uint8_t>(w0 >> 8);
  s.floor = static_cast<uint8_t>(w0);
  s.connection = load32(p + 4);
  s.path_seq = load32(p + 8);
  s.stamp = w3 >> 8;
  s.epoch = (w3 >> 4) & 15;
  s.backlog = static_cast<Backlog>((w3 >> 2) & 3);
  s.cpsn = load32(p + 16);
  return s;
}

/// Writes words 0 to 4 (20 bytes).
inline void store_sequenced(std::byte* p, PacketType type, const Sequenced& s) {
  store32(p, word0(type, s.flags, s.path, s.floor));  // MR-WIRE-020
  store32(p + 4, s.connection);
  store32(p + 8, s.path_seq);
  store32(p + 12,
          s.stamp << 8 | (s.epoch & 15u) << 4 | (static_cast<uint32_t>(s.backlog) & 3u) << 2);
  store32(p + 16, s.cpsn);
}

}  // namespace metaroce::wire
