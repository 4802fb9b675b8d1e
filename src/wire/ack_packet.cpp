#include "wire/ack_packet.h"

#include "wire/check.h"

namespace metaroce::wire {

namespace {

constexpr size_t kMapAt = 16;
constexpr size_t kWideMapBytes = 128;

// MR-WIRE-043: on the wire the first bit of a map is the most significant of its first byte; in
// memory bit 0 of word 0. The big-endian load and a 64-bit bit reversal together leave a reversal
// in each byte.
constexpr uint64_t reverse_in_bytes(uint64_t v) {
  v = (v >> 1 & 0x5555555555555555ull) | (v & 0x5555555555555555ull) << 1;
  v = (v >> 2 & 0x3333333333333333ull) | (v & 0x3333333333333333ull) << 2;
  return (v >> 4 & 0x0F0F0F0F0F0F0F0Full) | (v & 0x0F0F0F0F0F0F0F0Full) << 4;
}

uint64_t load_map64(const std::byte* p) {
  uint64_t v;
  __builtin_memcpy(&v, p, 8);
  return reverse_in_bytes(v);
}

void store_map64(std::byte* p, uint64_t v) {
  v = reverse_in_bytes(v);
  __builtin_memcpy(p, &v, 8);
}

void load_map(const std::byte* p, Bitmap256& map) {
  for (int i = 0; i < 4; ++i) map.set_raw(i, load_map64(p + 8 * i));
}

void store_map(std::byte* p, const Bitmap256& map) {
  for (int i = 0; i < 4; ++i) store_map64(p + 8 * i, map.raw(i));
}

// Words 0 to 3, and the four words behind the map.
void load_fields(const std::byte* p, const std::byte* after_map, AckFields& f) {
  const uint32_t w0 = load32(p);
  f.flags = static_cast<uint8_t>(w0 >> 16) & kFlagMask;
  f.path = static_cast<uint8_t>(w0 >> 8);
  f.status = static_cast<uint8_t>(w0);
  f.connection = load32(p + 4);
  f.counter = load32(p + 8);
  f.base = load32(p + 12);
  const uint32_t echo = load32(after_map);
  const uint32_t rate = load32(after_map + 4);
  const uint32_t credit = load32(after_map + 12);
  f.stamp = echo >> 8;
  f.delay = static_cast<uint8_t>(echo);
  f.ce_count = static_cast<uint16_t>(rate >> 16);
  f.hint = static_cast<uint16_t>(rate);
  f.decided_through = load32(after_map + 8);
  f.stream = static_cast<uint16_t>(credit >> 16);
  f.limit = static_cast<uint16_t>(credit);
}

void store_fields(std::byte* p, std::byte* after_map, PacketType type, const AckFields& f) {
  store32(p, word0(type, f.flags, f.path, f.status));
  store32(p + 4, f.connection);
  store32(p + 8, f.counter);
  store32(p + 12, f.base);
  store32(after_map, f.stamp << 8 | f.delay);
  store32(after_map + 4, uint32_t{f.ce_count} << 16 | f.hint);
  store32(after_map + 8, f.decided_through);
  store32(after_map + 12, uint32_t{f.stream} << 16 | f.limit);
}

// The two words that end the kinds with refusals.
void load_refusal(const std::byte* p, AckFields& f) {
  const uint32_t w = load32(p);
  f.reason = refusal_of(static_cast<uint8_t>(w >> 24));
  f.refusal_delay = static_cast<uint8_t>(w >> 16);
  f.refusal_stream = static_cast<uint16_t>(w);
  f.refusal_rq_seq = load32(p + 4);
}

void store_refusal(std::byte* p, const AckFields& f) {
  store32(p, uint32_t{static_cast<uint8_t>(f.reason)} << 24 | uint32_t{f.refusal_delay} << 16 |
                 f.refusal_stream);
  store32(p + 4, f.refusal_rq_seq);
}

}  // namespace

Decoded<AckPacket> decode_ack(Bytes bytes) {
  const bool is_long = !bytes.empty() && bytes[0] == first_byte(PacketType::kAckLong);
  const DropReason r = is_long ? check_exact(bytes, PacketType::kAckLong, kAckLongBytes)
                               : check_exact(bytes, PacketType::kAck, kAckBytes);
  if (r != DropReason::kNone) return unexpected(r);
  const std::byte* p = bytes.data();
  Decoded<AckPacket> result;
  AckPacket& a = *result;
  load_fields(p, p + 48, a.f);
  load_map(p + kMapAt, a.map);
  if (is_long) {
    a.is_long = true;
    load_map(p + kAckBytes, a.refused);
    if (a.refused.minus(a.map).any()) return unexpected(DropReason::kBadField);  // MR-WIRE-047
    load_refusal(p + 96, a.f);
  }
  return result;
}

size_t encode(const AckPacket& a, std::byte* out) {
  store_fields(out, out + 48, a.is_long ? PacketType::kAckLong : PacketType::kAck, a.f);
  store_map(out + kMapAt, a.map);
  if (!a.is_long) return kAckBytes;
  store_map(out + kAckBytes, a.refused);
  store_refusal(out + 96, a.f);
  return kAckLongBytes;
}

Decoded<AckWidePacket> decode_ack_wide(Bytes bytes) {
  const bool has = !bytes.empty() && bytes[0] == first_byte(PacketType::kAckWideRefused);
  const DropReason r = has ? check_exact(bytes, PacketType::kAckWideRefused, kAckWideRefusedBytes)
                           : check_exact(bytes, PacketType::kAckWide, kAckWideBytes);
  if (r != DropReason::kNone) return unexpected(r);
  const std::byte* p = bytes.data();
  Decoded<AckWidePacket> result;
  AckWidePacket& a = *result;
  load_fields(p, p + kMapAt + kWideMapBytes, a.f);
  for (size_t i = 0; i < a.map.size(); ++i) a.map[i] = load_map64(p + kMapAt + 8 * i);
  if (has) {
    a.has_refused = true;
    uint64_t stray = 0;
    for (size_t i = 0; i < a.map.size(); ++i) {
      a.refused[i] = load_map64(p + kAckWideBytes + 8 * i);
      stray |= a.refused[i] & ~a.map[i];
    }
    if (stray != 0) return unexpected(DropReason::kBadField);
    load_refusal(p + kAckWideBytes + kWideMapBytes, a.f);
  }
  return result;
}

size_t encode(const AckWidePacket& a, std::byte* out) {
  store_fields(out, out + kMapAt + kWideMapBytes,
               a.has_refused ? PacketType::kAckWideRefused : PacketType::kAckWide, a.f);
  for (size_t i = 0; i < a.map.size(); ++i) store_map64(out + kMapAt + 8 * i, a.map[i]);
  if (!a.has_refused) return kAckWideBytes;
  for (size_t i = 0; i < a.refused.size(); ++i)
    store_map64(out + kAckWideBytes + 8 * i, a.refused[i]);
  store_refusal(out + kAckWideBytes + kWideMapBytes, a.f);
  return kAckWideRefusedBytes;
}

}  // namespace metaroce::wire
