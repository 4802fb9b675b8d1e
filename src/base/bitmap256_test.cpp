#include "base/bitmap256.h"

#include <gtest/gtest.h>
#ifdef MR_HAVE_RAPIDCHECK
#include <rapidcheck/gtest.h>
#endif

#include <bitset>
#include <vector>

#include "base/rng.h"

namespace metaroce {
namespace {

using Model = std::bitset<256>;

Model model_of(const Bitmap256& b) {
  Model m;
  for (uint32_t i = 0; i < 256; ++i) m[i] = b.test(i);
  return m;
}

Bitmap256 random_bitmap(uint64_t seed) {
  Rng rng(seed);
  Bitmap256 b;
  for (uint64_t n = rng.below(300); n > 0; --n) b.set(rng.next32());
  return b;
}

TEST(Bitmap256, IndicesAreModulo256) {
  Bitmap256 b;
  b.set(256 + 7);
  EXPECT_TRUE(b.test(7));
  EXPECT_TRUE(b.test(0xFFFFFF07));
  EXPECT_EQ(b.raw(0), 1ull << 7);
  b.clear(512 + 7);
  EXPECT_FALSE(b.any());
}

TEST(Bitmap256, RangeOfEveryLengthAndStart) {
  for (uint32_t length = 0; length <= 256; ++length) {
    for (const uint32_t first : {0u, 1u, 63u, 64u, 200u, 255u}) {
      const Bitmap256 b = Bitmap256::range(first, length);
      ASSERT_EQ(b.count(), static_cast<int>(length));
      for (uint32_t i = 0; i < 256; ++i) {
        ASSERT_EQ(b.test(i), ((i - first) & 255) < length) << first << " " << length;
      }
    }
  }
}

TEST(Bitmap256, FirstAndLastOfNothing) {
  const Bitmap256 b;
  EXPECT_EQ(b.first_from(9), 256u);
  EXPECT_EQ(b.last_from(9), -1);
}

#ifdef MR_HAVE_RAPIDCHECK

RC_GTEST_PROP(Bitmap256, RotationMovesEachBit, (uint64_t seed, uint32_t n)) {
  const Bitmap256 b = random_bitmap(seed);
  const Bitmap256 down = b.rotated_down(n);
  for (uint32_t i = 0; i < 256; ++i) RC_ASSERT(down.test(i) == b.test(i + n));
  RC_ASSERT(down.rotated_up(n) == b);
}

RC_GTEST_PROP(Bitmap256, SetAlgebraIsThatOfSets, (uint64_t s1, uint64_t s2)) {
  const Bitmap256 a = random_bitmap(s1);
  const Bitmap256 b = random_bitmap(s2);
  RC_ASSERT(model_of(a & b) == (model_of(a) & model_of(b)));
  RC_ASSERT(model_of(a | b) == (model_of(a) | model_of(b)));
  RC_ASSERT(model_of(a.minus(b)) == (model_of(a) & ~model_of(b)));
  RC_ASSERT(static_cast<size_t>(a.count()) == model_of(a).count());
}

RC_GTEST_PROP(Bitmap256, RingOrderFromAnyStart, (uint64_t seed, uint32_t first)) {
  const Bitmap256 b = random_bitmap(seed);
  std::vector<uint32_t> expected;
  for (uint32_t k = 0; k < 256; ++k) {
    if (b.test(first + k)) expected.push_back((first + k) & 255);
  }
  std::vector<uint32_t> seen;
  b.for_each_from(first, [&](uint32_t i) { seen.push_back(i); });
  RC_ASSERT(seen == expected);
  if (expected.empty()) return;
  RC_ASSERT(b.first_from(first) == ((expected.front() - first) & 255));
  RC_ASSERT(b.last_from(first) == static_cast<int>((expected.back() - first) & 255));
}

#endif

}  // namespace
}  // namespace metaroce
