// SipHash-2-4 with 64 bits of output (Aumasson and Bernstein, 2012): keyed, for transcripts and
// cookies, where OpenSSL would be a heavy guest in an engine that may run on a NIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace metaroce {

class SipHash {
 public:
  SipHash(uint64_t key0, uint64_t key1)
      : v0_(key0 ^ 0x736f6d6570736575ull),
        v1_(key1 ^ 0x646f72616e646f6dull),
        v2_(key0 ^ 0x6c7967656e657261ull),
        v3_(key1 ^ 0x7465646279746573ull) {}

  void update(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) {
      word_ |= static_cast<uint64_t>(b) << (8 * (length_ & 7));
      if ((++length_ & 7) == 0) absorb();
    }
  }

  uint64_t finish() {
    const uint64_t total = length_ & 0xFF;
    word_ |= total << 56;
    absorb();
    v2_ ^= 0xFF;
    for (int i = 0; i < 4; ++i) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  static uint64_t rotl(uint64_t x, int b) { return (x << b) | (x >> (64 - b)); }
  void absorb() {
    v3_ ^= word_;
    round();
    round();
    v0_ ^= word_;
    word_ = 0;
  }
  void round() {
    v0_ += v1_;
    v1_ = rotl(v1_, 13) ^ v0_;
    v0_ = rotl(v0_, 32);
    v2_ += v3_;
    v3_ = rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = rotl(v1_, 17) ^ v2_;
    v2_ = rotl(v2_, 32);
  }

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t word_ = 0;
  uint64_t length_ = 0;
};

}  // namespace metaroce
