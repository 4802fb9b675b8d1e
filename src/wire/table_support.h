// For tests: what the table generated from spec/wire/packets.toml is made of.
#pragma once

#include <concepts>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "wire/packet.h"

namespace metaroce::wire::table {

/// The value of a field as on the wire, most significant bit first.
using Bits = std::vector<bool>;

inline Bits bits_of_number(uint64_t v, size_t width) {
  Bits b(width);
  for (size_t i = 0; i < width; ++i) b[i] = (v >> (width - 1 - i) & 1) != 0;
  return b;
}

inline uint64_t number_of(const Bits& b) {
  uint64_t v = 0;
  for (const bool bit : b) v = v << 1 | (bit ? 1 : 0);
  return v;
}

/// Any field: how the table describes it and how the codec's struct holds it.
template <class P>
struct Field {
  std::string_view name;
  size_t at;     ///< first bit in the packet or TLV
  size_t width;  ///< bits
  uint64_t low;  ///< range, when the width is at most 32
  uint64_t high;
  uint64_t values[3];  ///< when there are any: the only ones allowed
  size_t value_count;
  void (*set)(P&, const Bits&);
  Bits (*get)(const P&);

  std::span<const uint64_t> allowed_values() const { return {values, value_count}; }
};

template <class P>
struct Form {
  std::string_view name;
  size_t bytes;          ///< header, or TLV without padding
  size_t payload_least;  ///< payload that must follow
  P base;
  std::span<const Field<P>> fields;
};

template <class T>
requires(std::integral<T> || std::is_enum_v<T>) void assign(T& member, const Bits& b) {
  member = static_cast<T>(number_of(b));
}

template <class T>
requires(std::integral<T> || std::is_enum_v<T>) Bits bits_of(const T& member, size_t width) {
  return bits_of_number(static_cast<uint64_t>(member), width);
}

/// Maps: the bit that comes first on the wire is bit 0.
inline void assign(Bitmap256& member, const Bits& b) {
  member.reset();
  for (uint32_t i = 0; i < 256; ++i) {
    if (b[i]) member.set(i);
  }
}

inline Bits bits_of(const Bitmap256& member, size_t width) {
  Bits b(width);
  for (uint32_t i = 0; i < width; ++i) b[i] = member.test(i);
  return b;
}

inline void assign(std::array<uint64_t, 16>& member, const Bits& b) {
  member = {};
  for (size_t i = 0; i < b.size(); ++i) member[i / 64] |= uint64_t{b[i]} << (i % 64);
}

inline Bits bits_of(const std::array<uint64_t, 16>& member, size_t width) {
  Bits b(width);
  for (size_t i = 0; i < width; ++i) b[i] = (member[i / 64] >> (i % 64) & 1) != 0;
  return b;
}

/// Arrays of bytes.
template <class T>
requires(sizeof(std::declval<T>()[0]) == 1) void assign(T& member, const Bits& b) {
  for (size_t i = 0; i < b.size() / 8; ++i) {
    uint32_t v = 0;
    for (size_t k = 0; k < 8; ++k) v = v << 1 | (b[i * 8 + k] ? 1 : 0);
    member[i] = static_cast<std::remove_reference_t<decltype(member[0])>>(v);
  }
}

template <class T>
requires(sizeof(std::declval<T>()[0]) == 1) Bits bits_of(const T& member, size_t width) {
  Bits b;
  for (size_t i = 0; i < width / 8; ++i) {
    const Bits byte = bits_of_number(static_cast<uint64_t>(member[i]), 8);
    b.insert(b.end(), byte.begin(), byte.end());
  }
  return b;
}

/// A field that is a part of a member: flags of a flags byte.
template <class T>
void assign_masked(T& member, uint32_t mask, const Bits& b) {
  const auto shifted = static_cast<uint32_t>(number_of(b)) << std::countr_zero(mask);
  member = static_cast<T>((static_cast<uint32_t>(member) & ~mask) | shifted);
}

template <class T>
Bits bits_masked(const T& member, uint32_t mask, size_t width) {
  return bits_of_number((static_cast<uint32_t>(member) & mask) >> std::countr_zero(mask), width);
}

inline void set_ones(Bitmap256& map, size_t width) { assign(map, Bits(width, true)); }
inline void set_ones(std::array<uint64_t, 16>& map, size_t width) {
  assign(map, Bits(width, true));
}

/// Reads and writes a bit range of a packet.
inline Bits bits_at(const std::vector<std::byte>& bytes, size_t at, size_t width) {
  Bits b(width);
  for (size_t i = 0; i < width; ++i) {
    b[i] = (static_cast<uint32_t>(bytes[(at + i) / 8]) >> (7 - (at + i) % 8) & 1) != 0;
  }
  return b;
}

inline void put_bits(std::vector<std::byte>& bytes, size_t at, const Bits& b) {
  for (size_t i = 0; i < b.size(); ++i) {
    const auto mask = static_cast<std::byte>(0x80u >> (at + i) % 8);
    std::byte& byte = bytes[(at + i) / 8];
    byte = b[i] ? byte | mask : byte & ~mask;
  }
}

/// Header bytes of a packet, and `payload` bytes of 0x5A behind them.
template <class P>
std::vector<std::byte> encoded(const P& packet, size_t payload = 0) {
  std::vector<std::byte> out(kMaxHandshake);
  out.resize(encode(packet, out.data()));
  out.resize(out.size() + payload, std::byte{0x5A});
  return out;
}

}  // namespace metaroce::wire::table
