// SipHash-2-4 against the vectors its authors published: key 00 to 0f, input 00, 01, 02 ...
#include "base/siphash.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace metaroce {
namespace {

constexpr uint64_t kKey0 = 0x0706050403020100ull;
constexpr uint64_t kKey1 = 0x0f0e0d0c0b0a0908ull;

std::vector<std::byte> counting(size_t n) {
  std::vector<std::byte> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<std::byte>(i);
  return v;
}

uint64_t hash(size_t n) {
  SipHash h(kKey0, kKey1);
  h.update(counting(n));
  return h.finish();
}

TEST(SipHash, PublishedVectors) {
  EXPECT_EQ(hash(0), 0x726fdb47dd0e0e31ull);
  EXPECT_EQ(hash(1), 0x74f839c593dc67fdull);
  EXPECT_EQ(hash(2), 0x0d6c8009d9a94f5aull);
  EXPECT_EQ(hash(3), 0x85676696d7fb7e2dull);
  EXPECT_EQ(hash(4), 0xcf2794e0277187b7ull);
  EXPECT_EQ(hash(5), 0x18765564cd99a68dull);
  EXPECT_EQ(hash(6), 0xcbc9466e58fee3ceull);
  EXPECT_EQ(hash(7), 0xab0200f58b01d137ull);
  EXPECT_EQ(hash(8), 0x93f5f5799a932462ull);
  EXPECT_EQ(hash(15), 0xa129ca6149be45e5ull);
  EXPECT_EQ(hash(63), 0x958a324ceb064572ull);
}

TEST(SipHash, PiecesGiveTheSameAsTheWhole) {
  const std::vector<std::byte> all = counting(50);
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    SipHash h(kKey0, kKey1);
    h.update(std::span(all).first(cut));
    h.update(std::span(all).subspan(cut));
    EXPECT_EQ(h.finish(), hash(50)) << cut;
  }
}

TEST(SipHash, KeyAndLengthMatter) {
  SipHash other(kKey0 ^ 1, kKey1);
  other.update(counting(8));
  EXPECT_NE(other.finish(), hash(8));
  SipHash zeros(kKey0, kKey1), longer(kKey0, kKey1);
  zeros.update(std::array<std::byte, 3>{});
  longer.update(std::array<std::byte, 4>{});
  EXPECT_NE(zeros.finish(), longer.finish());
}

}  // namespace
}  // namespace metaroce
