// HELLO, COOKIE, ACCEPT, CONFIRM, REFUSE, HOST_PROBE, UNKNOWN_CONNECTION: before a connection
// exists.
//
//   HELLO   w0, w1 0 | w2 own connection id | w3-4 nonce | w5 start path sequence | w6 start CPSN
//           w7 paths opened 8, 0 8, TLV bytes 16 | TLVs | zeros to at least 512 bytes
//   ACCEPT  w1 the initiator's id, w2-7 as HELLO (own id, own nonce ...) | w8-9 echoed nonce | TLVs
//   COOKIE  w1 the initiator's id | w2 0 | w3-4 echoed nonce | w5-8 cookie
//   CONFIRM w1 the responder's id | w2 0 | w3-4 transcript MAC
//   REFUSE  w1 the initiator's id | w2 0 | w3-4 echoed nonce | w5 reason 8, TLV type 8, versions 16
//   HOST_PROBE         w1 0 | w2 0 | w3-4 nonce; flag AR asks, without AR answers
//   UNKNOWN_CONNECTION w1-2 = words 1 and 2 of the packet it answers
//   TLV: type 8 (bit 7: critical) | length 8 | value, padded to a multiple of 4
#pragma once

#include <array>
#include <string_view>

#include "base/address.h"
#include "base/types.h"
#include "wire/common.h"

namespace metaroce::wire {

inline constexpr size_t kHelloFixed = 32;
inline constexpr size_t kAcceptFixed = 40;
inline constexpr size_t kMaxHandshake = 1200;
/// A HELLO that offers security is padded to this with its trailer, for the ACCEPT is longer too.
inline constexpr size_t kMinSecureHello = 640;

namespace tlv {
inline constexpr uint8_t kVersions = 1;
inline constexpr uint8_t kPlaneAddress = 2;
inline constexpr uint8_t kLimits = 3;
inline constexpr uint8_t kCookie = 4;
inline constexpr uint8_t kAckWide = 5;
inline constexpr uint8_t kAead = 6;
inline constexpr uint8_t kVendor = 7;
inline constexpr uint8_t kOperations = 10;
inline constexpr uint8_t kSecurity = 8;
inline constexpr uint8_t kProof = 9;
inline constexpr uint8_t kGrease = 0x40;  ///< to 0x5F: means nothing, on purpose
inline constexpr uint8_t kCritical = 0x80;
}  // namespace tlv

/// TLV 8: how its sender wants to be recognised, and its half of a fresh secret.
struct SecurityOffer {
  uint8_t mode = 0;       ///< 0: the TLV is not there; 1 pre-shared key, 2 X25519; others unknown
  bool required = false;  ///< its sender opens no plain connection
  std::array<std::byte, 32> ephemeral{};   ///< X25519 public key of this attempt alone
  std::array<std::byte, 32> static_key{};  ///< mode 2
  std::array<std::byte, 8> wanted{};       ///< mode 2: how the peer's key must begin; 0: any
  uint8_t name_length = 0;                 ///< mode 1: which key
  std::array<char, 64> name{};

  std::string_view identity() const { return {name.data(), name_length}; }
  bool operator==(const SecurityOffer&) const = default;
};

/// What the TLVs say, decoded. Unknown TLVs without the critical bit are skipped.
struct HandshakeParams {
  uint16_t versions = 1;  ///< bit v set = version v spoken
  std::array<SocketAddress, kMaxPlanes> planes{};  ///< family 0 = not given
  uint8_t cpsn_window_log2 = 12;
  uint8_t max_paths = 32;
  uint16_t max_streams = 0xFFFF;
  uint16_t span = 256;               ///< unfinished messages a stream
  uint32_t inflight_packets = 1024;  ///< what the receive buffer of the sender of this TLV holds
  uint16_t pmtu = 1500;
  uint16_t outstanding = 0;  ///< Reads and atomics its sender answers at once; 0: not given, 16
  uint16_t atomics = 0;      ///< bit 0 FETCH_ADD, bit 1 COMPARE_SWAP, further ones to come
  bool has_cookie = false;
  std::array<std::byte, 16> cookie{};
  uint8_t suite_count = 0;  ///< TLV 6; 0: not there
  std::array<uint8_t, 8> suites{};
  SecurityOffer security;
  bool has_proof = false;  ///< TLV 9
  std::array<std::byte, 16> proof{};

  bool operator==(const HandshakeParams&) const = default;
};

struct HelloPacket {  // HELLO and ACCEPT
  bool is_accept = false;
  uint32_t connection = 0;      ///< w1
  uint32_t own_connection = 0;  ///< w2
  uint64_t nonce = 0;
  uint32_t start_seq = 0;
  uint32_t start_cpsn = 0;
  uint8_t paths = 0;
  uint64_t echoed_nonce = 0;  ///< ACCEPT only
  HandshakeParams params;

  bool operator==(const HelloPacket&) const = default;
};

struct CookiePacket {
  uint32_t connection = 0;
  uint64_t nonce = 0;
  std::array<std::byte, 16> cookie{};
  bool operator==(const CookiePacket&) const = default;
};

struct ConfirmPacket {
  uint32_t connection = 0;
  uint64_t mac = 0;
  bool operator==(const ConfirmPacket&) const = default;
};

struct RefusePacket {
  uint32_t connection = 0;
  uint64_t nonce = 0;
  uint8_t reason = 0;     ///< SetupRefusal
  uint8_t detail = 0;     ///< kCriticalTlv: the type that was not understood
  uint16_t versions = 0;  ///< bit v set = its sender speaks version v
  bool operator==(const RefusePacket&) const = default;
};

struct HostProbePacket {
  bool asks = false;
  uint64_t nonce = 0;
  bool operator==(const HostProbePacket&) const = default;
};

struct UnknownConnectionPacket {
  uint32_t word1 = 0;
  uint32_t word2 = 0;
  bool operator==(const UnknownConnectionPacket&) const = default;
};

/// Fail with kTooShort, kBadTlv (truncated, twice, out of range, or unknown and critical),
/// kBadLength (a HELLO that is below 512 bytes with its trailer).
Decoded<HelloPacket> decode_hello(Bytes bytes);  // HELLO and ACCEPT
Decoded<CookiePacket> decode_cookie(Bytes bytes);
Decoded<ConfirmPacket> decode_confirm(Bytes bytes);
Decoded<RefusePacket> decode_refuse(Bytes bytes);
Decoded<HostProbePacket> decode_host_probe(Bytes bytes);
Decoded<UnknownConnectionPacket> decode_unknown_connection(Bytes bytes);

/// Each writes to out (kMaxHandshake bytes for HELLO and ACCEPT), returns the length with padding.
size_t encode(const HelloPacket& packet, std::byte* out);
size_t encode(const CookiePacket& packet, std::byte* out);
size_t encode(const ConfirmPacket& packet, std::byte* out);
size_t encode(const RefusePacket& packet, std::byte* out);
size_t encode(const HostProbePacket& packet, std::byte* out);
size_t encode(const UnknownConnectionPacket& packet, std::byte* out);

/// The words of a HELLO or ACCEPT that an answer "not like this" needs, read before its TLVs are
/// believed. False when not even they are there.
struct HelloHead {
  uint32_t own_connection = 0;
  uint64_t nonce = 0;
  uint64_t echoed_nonce = 0;  ///< ACCEPT only
  uint8_t unknown_tlv = 0;    ///< type of the first critical TLV nobody here understands, 0: none
};
bool decode_hello_head(Bytes bytes, HelloHead& out);

/// Adds a TLV to an encoded HELLO or ACCEPT of `length` bytes in a buffer of kMaxHandshake, or
/// overwrites the value of one that has this type and size already; returns the new length.
size_t set_tlv(std::byte* packet, size_t length, uint8_t type, Bytes value);

}  // namespace metaroce::wire
