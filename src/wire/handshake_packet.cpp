#include "wire/handshake_packet.h"

#include <algorithm>

#include "wire/address_codec.h"
#include "wire/check.h"

namespace metaroce::wire {

namespace {

constexpr size_t kCookieBytes = 36;
constexpr size_t kConfirmBytes = 20;
constexpr size_t kRefuseBytes = 24;
constexpr size_t kHostProbeBytes = 20;
constexpr size_t kUnknownConnectionBytes = 12;

// Value bytes of the TLVs. A longer value is read up to here: a later revision may append.
constexpr size_t kVersionsValue = 2;
constexpr size_t kPlaneValue = 20;  // plane 8, family 8, port 16, address 16 bytes
constexpr size_t kLimitsValue = 12;
constexpr size_t kCookieValue = 16;
constexpr size_t kOperationsValue = 4;
constexpr size_t kProofValue = 16;
constexpr size_t kSecurityHead = 34;  // mode 8, flags 8, ephemeral key 32 bytes
constexpr size_t kStaticKey = 32;
constexpr uint8_t kRequiredFlag = 0x80;
constexpr uint8_t kModePsk = 1;
constexpr uint8_t kModeX25519 = 2;

constexpr uint8_t kMinWindowLog2 = 10;
constexpr uint8_t kMaxWindowLog2 = 20;

uint16_t load16(const std::byte* p) {
  return static_cast<uint16_t>(static_cast<uint32_t>(p[0]) << 8 | static_cast<uint32_t>(p[1]));
}

void store16(std::byte* p, uint16_t v) {
  p[0] = static_cast<std::byte>(v >> 8);
  p[1] = static_cast<std::byte>(v);
}

// One bit per TLV that may stand only once; the planes follow from bit 8 on.
bool first_time(uint32_t& seen, uint32_t bit) {
  const bool fresh = (seen >> bit & 1) == 0;
  seen |= 1u << bit;
  return fresh;
}

bool load_plane(Bytes value, HandshakeParams& params, uint32_t& seen) {
  if (value.size() < kPlaneValue) return false;
  const auto plane = static_cast<uint8_t>(value[0]);
  if (plane >= kMaxPlanes || !first_time(seen, 8u + plane)) return false;
  SocketAddress& a = params.planes[plane];
  a.family = static_cast<uint8_t>(value[1]);
  if (a.family != 4 && a.family != 6) return false;
  a.port = load16(value.data() + 2);
  __builtin_memcpy(a.bytes.data(), value.data() + 4, a.family == 4 ? 4 : 16);
  return true;
}

bool load_limits(Bytes value, HandshakeParams& params) {
  if (value.size() < kLimitsValue) return false;
  const std::byte* p = value.data();
  params.cpsn_window_log2 = static_cast<uint8_t>(p[0]);
  params.max_paths = static_cast<uint8_t>(p[1]);
  params.max_streams = load16(p + 2);
  params.span = load16(p + 4);
  params.pmtu = load16(p + 6);
  params.inflight_packets = load32(p + 8);
  return params.cpsn_window_log2 >= kMinWindowLog2 && params.cpsn_window_log2 <= kMaxWindowLog2 &&
         params.max_paths > 0 && params.span > 0;
}

bool load_suites(Bytes value, HandshakeParams& params) {
  if (value.empty()) return false;
  params.suite_count = static_cast<uint8_t>(std::min(value.size(), params.suites.size()));
  __builtin_memcpy(params.suites.data(), value.data(), params.suite_count);
  return true;
}

// MR-WIRE-063
bool load_security(Bytes value, SecurityOffer& offer) {
  if (value.size() < kSecurityHead || value[0] == std::byte{0}) return false;
  offer.mode = static_cast<uint8_t>(value[0]);
  offer.required = (static_cast<uint8_t>(value[1]) & kRequiredFlag) != 0;
  __builtin_memcpy(offer.ephemeral.data(), value.data() + 2, offer.ephemeral.size());
  const Bytes rest = value.subspan(kSecurityHead);
  if (offer.mode == kModeX25519) {
    if (rest.size() < kStaticKey + offer.wanted.size()) return false;
    __builtin_memcpy(offer.static_key.data(), rest.data(), kStaticKey);
    __builtin_memcpy(offer.wanted.data(), rest.data() + kStaticKey, offer.wanted.size());
  } else if (offer.mode == kModePsk) {
    if (rest.empty()) return false;
    offer.name_length = static_cast<uint8_t>(rest[0]);
    if (offer.name_length > offer.name.size() || offer.name_length > rest.size() - 1) return false;
    __builtin_memcpy(offer.name.data(), rest.data() + 1, offer.name_length);
  }
  return true;
}

bool load_tlv(uint8_t type, Bytes value, HandshakeParams& params, uint32_t& seen) {
  const uint8_t kind = type & static_cast<uint8_t>(~tlv::kCritical);
  switch (kind) {
    case tlv::kVersions:
      if (value.size() < kVersionsValue || !first_time(seen, kind)) return false;
      params.versions = load16(value.data());
      return true;
    case tlv::kPlaneAddress:
      return load_plane(value, params, seen);
    case tlv::kLimits:
      return first_time(seen, kind) && load_limits(value, params);
    case tlv::kCookie:
      if (value.size() < kCookieValue || !first_time(seen, kind)) return false;
      params.has_cookie = true;
      __builtin_memcpy(params.cookie.data(), value.data(), kCookieValue);
      return true;
    case tlv::kOperations:
      if (value.size() < kOperationsValue || !first_time(seen, 29)) return false;
      params.outstanding = load16(value.data());
      params.atomics = load16(value.data() + 2);
      return true;
    case tlv::kAead:
      return first_time(seen, kind) && load_suites(value, params);
    case tlv::kSecurity:
      return first_time(seen, 31) && load_security(value, params.security);
    case tlv::kProof:
      if (value.size() < kProofValue || !first_time(seen, 30)) return false;
      params.has_proof = true;
      __builtin_memcpy(params.proof.data(), value.data(), kProofValue);
      return true;
    default:
      // Known numbers that HandshakeParams cannot express yet are unknown here.
      return (type & tlv::kCritical) == 0;  // MR-CONN-016
  }
}

bool load_tlvs(Bytes area, HandshakeParams& params) {
  uint32_t seen = 0;
  while (!area.empty()) {
    if (area.size() < 4) return false;
    const auto type = static_cast<uint8_t>(area[0]);
    const auto length = static_cast<size_t>(area[1]);
    const size_t padded = (2 + length + 3) & ~size_t{3};
    if (padded > area.size()) return false;  // MR-WIRE-056
    if (!load_tlv(type, area.subspan(2, length), params, seen)) return false;
    area = area.subspan(padded);
  }
  return true;
}

// Starts a TLV in zeroed memory; returns where its value goes and moves `out` behind it.
std::byte* open_tlv(std::byte*& out, uint8_t type, size_t length) {
  std::byte* value = out + 2;
  out[0] = static_cast<std::byte>(type);
  out[1] = static_cast<std::byte>(length);
  out += (2 + length + 3) & ~size_t{3};
  return value;
}

void store_security(std::byte*& out, const HandshakeParams& params) {
  const SecurityOffer& offer = params.security;
  if (params.suite_count > 0) {
    __builtin_memcpy(open_tlv(out, tlv::kAead, params.suite_count), params.suites.data(),
                     params.suite_count);
  }
  if (offer.mode == 0) return;
  const size_t rest = offer.mode == kModeX25519 ? kStaticKey + offer.wanted.size()
                                                : size_t{offer.name_length} + 1;
  // MR-SEC-007: who cannot do without says so to those who do not know this TLV, too.
  const uint8_t critical = offer.required ? tlv::kCritical : uint8_t{0};
  std::byte* value = open_tlv(out, tlv::kSecurity | critical, kSecurityHead + rest);
  value[0] = static_cast<std::byte>(offer.mode);
  value[1] = static_cast<std::byte>(offer.required ? kRequiredFlag : uint8_t{0});
  __builtin_memcpy(value + 2, offer.ephemeral.data(), offer.ephemeral.size());
  if (offer.mode == kModeX25519) {
    std::byte* key = value + kSecurityHead;
    __builtin_memcpy(key, offer.static_key.data(), kStaticKey);
    __builtin_memcpy(key + kStaticKey, offer.wanted.data(), offer.wanted.size());
  } else {
    value[kSecurityHead] = static_cast<std::byte>(offer.name_length);
    __builtin_memcpy(value + kSecurityHead + 1, offer.name.data(), offer.name_length);
  }
}

std::byte* store_tlvs(std::byte* out, const HandshakeParams& params) {
  // Critical: who ignored these two would break the connection.
  store16(open_tlv(out, tlv::kVersions | tlv::kCritical, kVersionsValue), params.versions);
  std::byte* limits = open_tlv(out, tlv::kLimits | tlv::kCritical, kLimitsValue);
  limits[0] = static_cast<std::byte>(params.cpsn_window_log2);
  limits[1] = static_cast<std::byte>(params.max_paths);
  store16(limits + 2, params.max_streams);
  store16(limits + 4, params.span);
  store16(limits + 6, params.pmtu);
  store32(limits + 8, params.inflight_packets);
  for (uint32_t i = 0; i < kMaxPlanes; ++i) {
    const SocketAddress& a = params.planes[i];
    if (a.family == 0) continue;
    std::byte* value = open_tlv(out, tlv::kPlaneAddress, kPlaneValue);
    value[0] = static_cast<std::byte>(i);
    value[1] = static_cast<std::byte>(a.family);
    store16(value + 2, a.port);
    __builtin_memcpy(value + 4, a.bytes.data(), a.family == 4 ? 4 : 16);
  }
  if (params.outstanding != 0) {
    std::byte* value = open_tlv(out, tlv::kOperations, kOperationsValue);
    store16(value, params.outstanding);
    store16(value + 2, params.atomics);
  }
  store_security(out, params);
  if (params.has_proof) {
    __builtin_memcpy(open_tlv(out, tlv::kProof, kProofValue), params.proof.data(), kProofValue);
  }
  if (params.has_cookie) {
    __builtin_memcpy(open_tlv(out, tlv::kCookie, kCookieValue), params.cookie.data(), kCookieValue);
  }
  return out;
}

}  // namespace

Decoded<HelloPacket> decode_hello(Bytes bytes) {
  const bool is_accept = !bytes.empty() && bytes[0] == first_byte(PacketType::kAccept);
  const size_t fixed = is_accept ? kAcceptFixed : kHelloFixed;
  const DropReason r =
      check_kind(bytes, is_accept ? PacketType::kAccept : PacketType::kHello, fixed);
  if (r != DropReason::kNone) return unexpected(r);
  // MR-WIRE-050: 512 bytes with the trailer, which the caller has cut off.
  if (!is_accept && bytes.size() < kMinHello - kCrcBytes) return unexpected(DropReason::kBadLength);
  const std::byte* p = bytes.data();
  const uint32_t w7 = load32(p + 28);
  const size_t tlv_bytes = w7 & 0xFFFF;
  if (tlv_bytes > bytes.size() - fixed) return unexpected(DropReason::kBadLength);
  HelloPacket h;
  h.is_accept = is_accept;
  h.connection = is_accept ? load32(p + 4) : 0;
  h.own_connection = load32(p + 8);
  h.nonce = load64(p + 12);
  h.start_seq = load32(p + 20);
  h.start_cpsn = load32(p + 24);
  h.paths = static_cast<uint8_t>(w7 >> 24);
  if (is_accept) h.echoed_nonce = load64(p + 32);
  if (!load_tlvs(bytes.subspan(fixed, tlv_bytes), h.params)) {
    return unexpected(DropReason::kBadTlv);
  }
  return h;
}

size_t encode(const HelloPacket& h, std::byte* out) {
  __builtin_memset(out, 0, kMaxHandshake);
  const size_t fixed = h.is_accept ? kAcceptFixed : kHelloFixed;
  store32(out, word0(h.is_accept ? PacketType::kAccept : PacketType::kHello, 0, 0, 0));
  store32(out + 4, h.is_accept ? h.connection : 0);
  store32(out + 8, h.own_connection);
  store64(out + 12, h.nonce);
  store32(out + 20, h.start_seq);
  store32(out + 24, h.start_cpsn);
  if (h.is_accept) store64(out + 32, h.echoed_nonce);  // MR-WIRE-051
  const std::byte* end = store_tlvs(out + fixed, h.params);
  const auto length = static_cast<size_t>(end - out);
  store32(out + 28, uint32_t{h.paths} << 24 | static_cast<uint32_t>(length - fixed));
  const size_t least = h.params.security.mode != 0 ? kMinSecureHello - kCrcBytes : kMinHello;
  return h.is_accept || length > least ? length : least;  // MR-CONN-006
}

Decoded<CookiePacket> decode_cookie(Bytes bytes) {
  const DropReason r = check_exact(bytes, PacketType::kCookie, kCookieBytes);
  if (r != DropReason::kNone) return unexpected(r);
  CookiePacket c;
  c.connection = load32(bytes.data() + 4);
  c.nonce = load64(bytes.data() + 12);
  __builtin_memcpy(c.cookie.data(), bytes.data() + 20, c.cookie.size());
  return c;
}

size_t encode(const CookiePacket& c, std::byte* out) {
  store32(out, word0(PacketType::kCookie, 0, 0, 0));
  store32(out + 4, c.connection);
  store32(out + 8, 0);
  store64(out + 12, c.nonce);
  __builtin_memcpy(out + 20, c.cookie.data(), c.cookie.size());  // MR-WIRE-052
  return kCookieBytes;
}

Decoded<ConfirmPacket> decode_confirm(Bytes bytes) {
  const DropReason r = check_exact(bytes, PacketType::kConfirm, kConfirmBytes);
  if (r != DropReason::kNone) return unexpected(r);
  return ConfirmPacket{load32(bytes.data() + 4), load64(bytes.data() + 12)};
}

size_t encode(const ConfirmPacket& c, std::byte* out) {
  store32(out, word0(PacketType::kConfirm, 0, 0, 0));
  store32(out + 4, c.connection);
  store32(out + 8, 0);
  store64(out + 12, c.mac);
  return kConfirmBytes;
}

Decoded<RefusePacket> decode_refuse(Bytes bytes) {
  const DropReason r = check_exact(bytes, PacketType::kRefuse, kRefuseBytes);
  if (r != DropReason::kNone) return unexpected(r);
  const uint32_t w5 = load32(bytes.data() + 20);
  RefusePacket p;
  p.connection = load32(bytes.data() + 4);
  p.nonce = load64(bytes.data() + 12);
  p.reason = static_cast<uint8_t>(w5 >> 24);
  p.detail = static_cast<uint8_t>(w5 >> 16);
  p.versions = static_cast<uint16_t>(w5);
  return p;
}

size_t encode(const RefusePacket& p, std::byte* out) {
  store32(out, word0(PacketType::kRefuse, 0, 0, 0));
  store32(out + 4, p.connection);
  store32(out + 8, 0);
  store64(out + 12, p.nonce);  // MR-WIRE-057
  store32(out + 20, uint32_t{p.reason} << 24 | uint32_t{p.detail} << 16 | p.versions);
  return kRefuseBytes;
}

Decoded<HostProbePacket> decode_host_probe(Bytes bytes) {
  const DropReason r = check_exact(bytes, PacketType::kHostProbe, kHostProbeBytes);
  if (r != DropReason::kNone) return unexpected(r);
  const bool asks = (static_cast<uint8_t>(bytes[1]) & flag::kAckRequest) != 0;
  return HostProbePacket{asks, load64(bytes.data() + 12)};
}

size_t encode(const HostProbePacket& h, std::byte* out) {
  store32(out, word0(PacketType::kHostProbe, h.asks ? flag::kAckRequest : uint8_t{0}, 0, 0));
  store64(out + 4, 0);
  store64(out + 12, h.nonce);
  return kHostProbeBytes;
}

Decoded<UnknownConnectionPacket> decode_unknown_connection(Bytes bytes) {
  const DropReason r = check_exact(bytes, PacketType::kUnknownConnection, kUnknownConnectionBytes);
  if (r != DropReason::kNone) return unexpected(r);
  return UnknownConnectionPacket{load32(bytes.data() + 4), load32(bytes.data() + 8)};
}

size_t encode(const UnknownConnectionPacket& u, std::byte* out) {
  store32(out, word0(PacketType::kUnknownConnection, 0, 0, 0));
  store32(out + 4, u.word1);
  store32(out + 8, u.word2);
  return kUnknownConnectionBytes;
}

namespace {

size_t fixed_of(Bytes bytes) {
  return bytes[0] == first_byte(PacketType::kAccept) ? kAcceptFixed : kHelloFixed;
}

size_t tlv_bytes(Bytes bytes) { return load32(bytes.data() + 28) & 0xFFFF; }

}  // namespace

bool decode_hello_head(Bytes bytes, HelloHead& out) {
  if (bytes.size() < kHelloFixed || bytes.size() < fixed_of(bytes)) return false;
  const size_t fixed = fixed_of(bytes);
  out.own_connection = load32(bytes.data() + 8);
  out.nonce = load64(bytes.data() + 12);
  if (fixed == kAcceptFixed) out.echoed_nonce = load64(bytes.data() + 32);
  if (tlv_bytes(bytes) > bytes.size() - fixed) return true;
  Bytes area = bytes.subspan(fixed, tlv_bytes(bytes));
  while (area.size() >= 4) {
    const auto type = static_cast<uint8_t>(area[0]);
    const uint8_t kind = type & static_cast<uint8_t>(~tlv::kCritical);
    const size_t padded = (2 + static_cast<size_t>(area[1]) + 3) & ~size_t{3};
    if (padded > area.size()) break;
    const bool known = (kind >= tlv::kVersions && kind <= tlv::kCookie) || kind == tlv::kAead ||
                       kind == tlv::kSecurity || kind == tlv::kProof;
    if (!known && (type & tlv::kCritical) != 0) {
      out.unknown_tlv = type;
      break;
    }
    area = area.subspan(padded);
  }
  return true;
}

size_t set_tlv(std::byte* packet, size_t length, uint8_t type, Bytes value) {
  const size_t fixed = fixed_of({packet, length});
  const size_t used = tlv_bytes({packet, length});
  for (size_t at = fixed; at < fixed + used;) {
    const auto size = static_cast<size_t>(packet[at + 1]);
    if (packet[at] == static_cast<std::byte>(type) && size == value.size()) {
      __builtin_memcpy(packet + at + 2, value.data(), size);
      return length;
    }
    at += (2 + size + 3) & ~size_t{3};
  }
  const size_t end = fixed + used;
  const size_t padded = (2 + value.size() + 3) & ~size_t{3};
  if (end + padded > kMaxHandshake) return length;
  if (end + padded > length) __builtin_memset(packet + length, 0, end + padded - length);
  std::byte* out = packet + end;
  std::byte* at = open_tlv(out, type, value.size());
  if (!value.empty()) __builtin_memcpy(at, value.data(), value.size());
  store32(packet + 28, load32(packet + 28) + static_cast<uint32_t>(padded));
  return end + padded > length ? end + padded : length;
}

}  // namespace metaroce::wire
