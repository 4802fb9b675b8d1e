// Bytes of a recording: variable-length numbers, bounded reading, the hash over outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"

namespace metaroce::telemetry {

/// Appends to a buffer that keeps its capacity.
class ByteWriter {
 public:
  void clear() { bytes_.clear(); }
  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }

  void u8(uint8_t v) { bytes_.push_back(std::byte{v}); }
  void u32(uint32_t v) { fixed(&v, sizeof v); }
  void u64(uint64_t v) { fixed(&v, sizeof v); }
  /// 7 bits a byte, lowest first.
  void number(uint64_t v) {
    while (v >= 0x80) {
      u8(static_cast<uint8_t>(v | 0x80));
      v >>= 7;
    }
    u8(static_cast<uint8_t>(v));
  }
  void signed_number(int64_t v) {
    number((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63));
  }
  void raw(const void* data, size_t length) { fixed(data, length); }
  void text(std::string_view s) {
    number(s.size());
    raw(s.data(), s.size());
  }
  void address(const SocketAddress& a) {
    u8(a.family);
    raw(a.bytes.data(), a.family == 4 ? 4 : 16);
    number(a.port);
    number(a.scope);
  }

 private:
  void fixed(const void* data, size_t length) {
    const size_t at = bytes_.size();
    bytes_.resize(at + length);
    if (length > 0) std::memcpy(bytes_.data() + at, data, length);
  }
  std::vector<std::byte> bytes_;
};

/// Reads what ByteWriter wrote. After reading beyond the end everything reads as 0 and ok() is
/// false.
class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == bytes_.size(); }
  size_t position() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  void fail() { ok_ = false; }

  uint8_t u8() {
    uint8_t v = 0;
    fixed(&v, sizeof v);
    return v;
  }
  /// The next byte, which stays to be read.
  std::byte peek() const { return left() > 0 ? bytes_[at_] : std::byte{0}; }
  uint32_t u32() {
    uint32_t v = 0;
    fixed(&v, sizeof v);
    return v;
  }
  uint64_t u64() {
    uint64_t v = 0;
    fixed(&v, sizeof v);
    return v;
  }
  uint64_t number() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = u8();
      v |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return v;
    }
    ok_ = false;
    return 0;
  }
  /// A number that must not be above `limit`.
  uint64_t number(uint64_t limit) {
    const uint64_t v = number();
    if (v <= limit) return v;
    ok_ = false;
    return 0;
  }
  int64_t signed_number() {
    const uint64_t v = number();
    return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
  }
  std::span<const std::byte> raw(size_t length) {
    if (!ok_ || length > left()) {
      ok_ = false;
      return {};
    }
    const auto part = bytes_.subspan(at_, length);
    at_ += length;
    return part;
  }
  std::string text(size_t limit) {
    const auto part = raw(number(limit));
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  SocketAddress address() {
    SocketAddress a;
    a.family = u8();
    fixed(a.bytes.data(), a.family == 4 ? 4 : 16);
    a.port = static_cast<uint16_t>(number(0xFFFF));
    a.scope = static_cast<uint32_t>(number(0xFFFFFFFF));
    return a;
  }

 private:
  void fixed(void* out, size_t length) {
    const auto part = raw(length);
    if (part.size() == length && length > 0) std::memcpy(out, part.data(), length);
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

/// Order matters, a bit matters; not for secrets.
class RollingHash {
 public:
  void mix(uint64_t v) {
    value_ = (value_ ^ v) * 0x9e3779b97f4a7c15ull;
    value_ ^= value_ >> 29;
  }
  void mix_bytes(const void* data, size_t length) {
    const auto* p = static_cast<const unsigned char*>(data);
    uint64_t word = 0;
    for (; length >= 8; length -= 8, p += 8) {
      std::memcpy(&word, p, 8);
      mix(word);
    }
    word = 0;
    if (length > 0) std::memcpy(&word, p, length);
    mix(word ^ (static_cast<uint64_t>(length) << 56));
  }
  void mix(const SocketAddress& a) {
    mix_bytes(a.bytes.data(), a.bytes.size());
    mix(uint64_t{a.scope} << 32 | uint64_t{a.port} << 8 | a.family);
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0x6d657461726f6365ull;
};

inline uint64_t checksum(std::span<const std::byte> bytes) {
  RollingHash hash;
  hash.mix_bytes(bytes.data(), bytes.size());
  return hash.value();
}

}  // namespace metaroce::telemetry
