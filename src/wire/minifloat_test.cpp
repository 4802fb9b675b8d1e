#include "wire/minifloat.h"

#include <gtest/gtest.h>

#include "base/covers.h"

namespace metaroce::wire {
namespace {

MR_COVERS("MR-WIRE-021");
MR_COVERS("MR-WIRE-045");

constexpr int64_t kUnit = 64;

TEST(Minifloat, HandComputedValues) {
  EXPECT_EQ(decode_delay(0).ns, 0);
  EXPECT_EQ(decode_delay(1).ns, kUnit);
  EXPECT_EQ(decode_delay(15).ns, 15 * kUnit);
  EXPECT_EQ(decode_delay(16).ns, 16 * kUnit);            // e = 1, m = 0
  EXPECT_EQ(decode_delay(0x1F).ns, 31 * kUnit);          // e = 1, m = 15
  EXPECT_EQ(decode_delay(0x20).ns, 32 * kUnit);          // e = 2, m = 0
  EXPECT_EQ(decode_delay(0xFF).ns, (31 << 14) * kUnit);  // 32.5 ms
}

TEST(Minifloat, StrictlyMonotoneAndExactOnItsOwnValues) {
  for (int v = 0; v < 256; ++v) {
    const auto code = static_cast<uint8_t>(v);
    EXPECT_EQ(encode_delay(decode_delay(code)), code) << v;
    if (v == 0) continue;
    EXPECT_GT(decode_delay(code), decode_delay(static_cast<uint8_t>(v - 1))) << v;
  }
}

TEST(Minifloat, RoundsDownByLessThanASixteenth) {
  for (int64_t ns = 0; ns < 32'000'000; ns += 1 + ns / 997) {
    const int64_t back = decode_delay(encode_delay(nanoseconds(ns))).ns;
    EXPECT_LE(back, ns);
    EXPECT_LE(ns - back, kUnit + ns / 16) << ns;
  }
}

TEST(Minifloat, ValueJustBelowACodeEncodesAsTheOneBefore) {
  for (int v = 1; v < 256; ++v) {
    const Duration d = decode_delay(static_cast<uint8_t>(v)) - nanoseconds(1);
    EXPECT_EQ(encode_delay(d), v - 1);
  }
}

TEST(Minifloat, Saturates) {
  EXPECT_EQ(encode_delay(nanoseconds(-1)), 0);
  EXPECT_EQ(encode_delay(seconds(-1)), 0);
  EXPECT_EQ(encode_delay(milliseconds(33)), kDelaySaturated);
  EXPECT_EQ(encode_delay(seconds(3600)), kDelaySaturated);
  EXPECT_EQ(encode_delay({std::numeric_limits<int64_t>::max()}), kDelaySaturated);
  EXPECT_EQ(encode_delay({std::numeric_limits<int64_t>::min()}), 0);
}

TEST(Stamp, CountsUnitsOf64NanosecondsAndWraps) {
  EXPECT_EQ(stamp_of({0}), 0u);
  EXPECT_EQ(stamp_of({63}), 0u);
  EXPECT_EQ(stamp_of({64}), 1u);
  EXPECT_EQ(stamp_of({int64_t{64} << 24}), 0u);
  EXPECT_EQ(stamp_of({(int64_t{64} << 24) - 1}), 0xFFFFFFu);
}

TEST(Stamp, AgeIsExactToOneUnitAcrossTheWrap) {
  for (const int64_t start : {int64_t{0}, int64_t{12'345}, (int64_t{64} << 24) - 100}) {
    for (const int64_t age : {0, 1, 63, 64, 1'000, 999'999'999}) {
      const Duration seen = since_stamp({start + age}, stamp_of({start}));
      EXPECT_LT(seen.ns, age + kUnit);
      EXPECT_GT(seen.ns, age - kUnit);
    }
  }
}

}  // namespace
}  // namespace metaroce::wire
