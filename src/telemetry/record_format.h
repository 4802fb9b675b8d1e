// What a recording consists of (docs/telemetry.md). All numbers little-endian.
//
//   file  = magic, u32 version, u32 zero, block ...
//   block = u32 kBlockMagic, u32 length, u64 number of its first call, u64 checksum(bytes), bytes
//
// The first block holds the configuration alone; calls never cross blocks; the last block ends
// with kEnd. A call is: one byte (CallKind and flags), the time since the call before (when the
// flag says so), its inputs, and 32 bits of the hash over all outputs so far, unless it was quiet:
// gave nothing out and left the engine's deadline where it was.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "telemetry/bytes.h"
#include "wire/types.h"

namespace metaroce::telemetry {

inline constexpr std::string_view kRecordMagic = "MRRECORD";
inline constexpr uint32_t kRecordVersion = 2;
inline constexpr uint32_t kBlockMagic = 0x4B4C424Du;  // "MBLK"
inline constexpr size_t kFileHeader = 16;
inline constexpr size_t kBlockHeader = 24;
inline constexpr uint32_t kMaxBlock = 64u << 20;
inline constexpr size_t kMaxBatch = 4096;  ///< packets, runs, requests or completions of one call

enum class CallKind : uint8_t {
  kEnd = 0,
  kPackets,
  kTransmit,
  kDeadline,
  kPost,
  kPostReceives,
  kCompletions,
  kEvents,
  kConnect,
  kClose,
  kNetworkHint,
  kPlaneState,
  kChangePort,
  kAddRegion,
  kRemoveRegion,
  kTune,
  kCount
};

const char* to_string(CallKind kind);

inline constexpr uint8_t kKindMask = 0x1F;
inline constexpr uint8_t kHasTime = 0x20;
inline constexpr uint8_t kHasHash = 0x40;

/// Bytes of a received packet that the engine may look at, by its first byte: the payload of data
/// is copied by the driver, the padding of a probe means nothing.
inline size_t kept_length(std::byte first, size_t length) {
  constexpr size_t kLongestHeader = 64;
  const auto type = static_cast<wire::PacketType>(std::to_integer<uint8_t>(first) & 0x3F);
  const bool cut = type == wire::PacketType::kData || type == wire::PacketType::kProbe;
  return cut ? std::min(length, kLongestHeader) : length;
}

}  // namespace metaroce::telemetry
