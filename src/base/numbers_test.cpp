// Sequence numbers, times and random numbers.
#include <gtest/gtest.h>
#ifdef MR_HAVE_RAPIDCHECK
#include <rapidcheck/gtest.h>
#endif

#include <set>

#include "base/rng.h"
#include "base/seq.h"
#include "base/time.h"

namespace metaroce {
namespace {

TEST(Seq, OrdersAcrossTheWrap) {
  EXPECT_TRUE(seq_lt(0xFFFFFFFF, 0));
  EXPECT_TRUE(seq_gt(5, 0xFFFFFFF0));
  EXPECT_EQ(seq_diff(2, 0xFFFFFFFE), 4);
  EXPECT_EQ(seq_max(1, 0xFFFFFFFF), 1u);
  EXPECT_TRUE(seq_le(7, 7));
  EXPECT_FALSE(seq_lt(7, 7));
}

#ifdef MR_HAVE_RAPIDCHECK
RC_GTEST_PROP(Seq, StepsBelowHalfTheCircleKeepTheirSign, (uint32_t start)) {
  const auto step = *rc::gen::inRange<uint32_t>(1, 0x80000000u);
  RC_ASSERT(seq_lt(start, start + step));
  RC_ASSERT(seq_gt(start + step, start));
  RC_ASSERT(!seq_ge(start, start + step));
  RC_ASSERT(seq_diff(start + step, start) == static_cast<int32_t>(step));
  RC_ASSERT(seq_max(start, start + step) == start + step);
}

RC_GTEST_PROP(Rng, BelowStaysBelow, (uint64_t seed)) {
  const auto bound = *rc::gen::inRange<uint64_t>(1, 1'000'000);
  Rng rng(seed);
  for (int i = 0; i < 100; ++i) RC_ASSERT(rng.below(bound) < bound);
}
#endif

TEST(Time, UnitsAndArithmetic) {
  EXPECT_EQ(microseconds(3), nanoseconds(3'000));
  EXPECT_EQ(milliseconds(2), microseconds(2'000));
  EXPECT_EQ(seconds(1), milliseconds(1'000));
  const Time t{100};
  EXPECT_EQ((t + nanoseconds(5)) - t, nanoseconds(5));
  EXPECT_EQ(earlier(t, kNever), t);
  EXPECT_EQ(earlier(kNever, t), t);
  EXPECT_LT(seconds(1'000'000'000) + nanoseconds(0), Duration{kNever.ns});
}

TEST(Rng, SameSeedSameNumbers) {
  Rng a(42), b(42), c(43);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t v = a.next();
    EXPECT_EQ(v, b.next());
    differs = differs || v != c.next();
  }
  EXPECT_TRUE(differs);
}

TEST(Rng, ForkIsNamedAndDoesNotAdvanceItsParent) {
  Rng a(42);
  const Rng untouched = a;
  std::set<uint64_t> firsts;
  for (uint64_t i = 0; i < 100; ++i) {
    firsts.insert(a.fork("loss", i).next());
    firsts.insert(a.fork("delay", i).next());
  }
  EXPECT_EQ(firsts.size(), 200u);
  EXPECT_EQ(a.fork("loss", 3).next(), untouched.fork("loss", 3).next());
  EXPECT_EQ(a.next(), Rng(42).next());
}

TEST(Rng, ChanceMeetsItsShare) {
  Rng rng(1);
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) hits += rng.chance((1ull << 32) / 4) ? 1 : 0;
  EXPECT_NEAR(hits, 25'000, 700);  // five standard deviations of a binomial
  for (int i = 0; i < 1'000; ++i) {
    EXPECT_FALSE(rng.chance(0));
    EXPECT_TRUE(rng.chance(1ull << 32));
  }
}

}  // namespace
}  // namespace metaroce
