// Numbers of the wire format that several packet kinds share (spec/03-packets.md, spec/10).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/expected.h"

namespace metaroce::wire {

using Bytes = std::span<const std::byte>;

inline constexpr uint8_t kVersion = 0;
inline constexpr size_t kCrcBytes = 4;
inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kMinHello = 512;      ///< HELLO and a path-opening PROBE are padded to this
inline constexpr uint16_t kBasePort = 28672;  ///< service port of slot 0

enum class PacketType : uint8_t {
  kData = 1,
  kControl = 2,
  kProbe = 3,
  kVoid = 4,
  kAck = 5,
  kAckLong = 6,
  kAckWide = 7,
  kAckWideRefused = 8,
  kHello = 9,
  kCookie = 10,
  kAccept = 11,
  kConfirm = 12,
  kHostProbe = 13,
  kUnknownConnection = 14,
  kRefuse = 15,
};

/// Flags of word 0.
namespace flag {
inline constexpr uint8_t kAckRequest = 0x80;
inline constexpr uint8_t kRetransmission = 0x40;
inline constexpr uint8_t kCopy = 0x20;
inline constexpr uint8_t kPhase = 0x10;
inline constexpr uint8_t kLastPath = 0x08;
inline constexpr uint8_t kAlt = 0x04;
}  // namespace flag

enum class Opcode : uint8_t {
  kWrite = 1,
  kWriteImm = 2,
  kSend = 3,
  kSendImm = 4,
  kSendInv = 5,
  kReadRequest = 6,
  kReadResponse = 7,
  kFetchAdd = 8,
  kCompareSwap = 9,
  kAtomicResponse = 10,
};

/// Message flags of word 5.
namespace message_flag {
inline constexpr uint8_t kFirst = 0x01;
inline constexpr uint8_t kLast = 0x02;
inline constexpr uint8_t kSolicited = 0x04;
inline constexpr uint8_t kFence = 0x08;
inline constexpr uint8_t kUnordered = 0x10;
}  // namespace message_flag

enum class ControlOpcode : uint8_t {
  kReset = 1,
  kCredit = 2,
  kPathOpen = 3,
  kPathClose = 4,
  kPortStatus = 5,
  kAddAddr = 6,
  kClose = 7,
  kKeyUpdate = 8,
  kResponseError = 9,
};

/// Why a receiver refused a packet (spec/10-registries.md); stands in a long ACK.
enum class Refusal : uint8_t {
  kUnknown = 0,
  kVoid = 1,
  kNotReady = 2,
  kNoOpenMessage = 3,
  kNoPending = 4,
  kStreamNotReady = 5,
  kNoResource = 6,
  kLength = 7,
  kKey = 8,
  kBounds = 9,
  kAccess = 10,
  kUnsupported = 11,
  kStreamClosed = 12,
  kSpan = 13,
};

/// Code of CLOSE: class in the high 16 bits, number of the application in the low ones.
namespace close_code {
inline constexpr uint32_t kNormal = 0;
inline constexpr uint32_t kApplication = 1u << 16;
inline constexpr uint32_t kProtocol = 2u << 16;
inline constexpr uint32_t kResources = 3u << 16;
inline constexpr uint32_t kShutdown = 4u << 16;
inline constexpr uint32_t kKeyExhausted = 5u << 16;
}  // namespace close_code

/// Why a HELLO was answered with REFUSE (spec/10-registries.md). Other numbers read as kOther.
enum class SetupRefusal : uint8_t {
  kOther = 0,
  kVersion = 1,       ///< no common version; the packet names those of its sender
  kCriticalTlv = 2,   ///< a critical TLV is not understood; the packet names it
  kNotListening = 3,  ///< this endpoint accepts no connections
  kNoRoom = 4,        ///< every connection is taken: worth asking again
  kSecurityRequired = 5,  ///< it opens no plain connection
  kUnknownKey = 6,        ///< it does not know this identity or key
  kNoSecurity = 7,        ///< it has no keys, or none of this kind
  kNoSuite = 8,           ///< no common AEAD suite
  kWrongProof = 9,        ///< never sent: the peer's proof in ACCEPT shows another key
};

/// Why a byte string was dropped before it touched any state. Counted, never logged per packet.
enum class DropReason : uint8_t {
  kNone = 0,
  kTooShort,      ///< shorter than the header its type and opcode ask for
  kBadVersion,
  kBadType,
  kBadOpcode,
  kBadLength,     ///< longer than its kind allows, or a length field that points outside
  kBadField,      ///< a value outside its valid range
  kBadTlv,
  kUnknownConnection,
  kUnknownPath,
  kPathWindow,    ///< path sequence too far from the base
  kCpsnWindow,    ///< older than the duplicate filter reaches
  kAckInvalid,    ///< acknowledges what was never sent
  kNotConfirmed,  ///< data before CONFIRM on a plain connection
  kNoState,       ///< not expected in the connection's state
  kTableFull,
  kBadTag,        ///< of a secured connection, and not sealed by its peer
  kKeyGuess,      ///< names an unknown key, too many of which came before
  kCount
};

template <class T>
using Decoded = Expected<T, DropReason>;

/// Big-endian access; the caller has checked the bounds.
inline uint32_t load32(const std::byte* p) {
  uint32_t v;
  __builtin_memcpy(&v, p, 4);
  return __builtin_bswap32(v);
}
inline uint64_t load64(const std::byte* p) {
  uint64_t v;
  __builtin_memcpy(&v, p, 8);
  return __builtin_bswap64(v);
}
inline void store32(std::byte* p, uint32_t v) {  // MR-WIRE-001
  v = __builtin_bswap32(v);
  __builtin_memcpy(p, &v, 4);
}
inline void store64(std::byte* p, uint64_t v) {
  v = __builtin_bswap64(v);
  __builtin_memcpy(p, &v, 8);
}

}  // namespace metaroce::wire
