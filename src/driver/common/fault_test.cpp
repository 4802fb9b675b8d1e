#include <gtest/gtest.h>

#include <vector>

#include "driver/common/fault_injector.h"
#include "driver/common/fault_spec.h"

namespace metaroce::driver {
namespace {

FaultSpec spec_of(const char* text) {
  const auto spec = parse_faults(text);
  if (!spec) ADD_FAILURE() << spec.error().text;
  return spec ? *spec : FaultSpec{};
}

TEST(FaultSpec, ReadsTheWholeLanguage) {
  const FaultSpec s = spec_of(
      "seed=7,drop=1%,dup=0.1%,corrupt=0.0001,reorder=1%:50us,delay=100us,mark=1%:path=3,"
      "blackhole@2s-5s:plane=1,delay=50%:1ms-2ms:dir=both,drop@1.5ms-=1:dir=tx");
  ASSERT_EQ(s.rules.size(), 9u);
  EXPECT_EQ(s.seed, 7u);
  EXPECT_NEAR(static_cast<double>(s.rules[0].chance), 0.01 * 4294967296.0, 1);
  EXPECT_EQ(s.rules[1].kind, FaultKind::kDuplicate);
  EXPECT_NEAR(static_cast<double>(s.rules[2].chance), 0.0001 * 4294967296.0, 1);
  EXPECT_EQ(s.rules[3].hold_max, microseconds(50));
  EXPECT_EQ(s.rules[4].chance, 1ull << 32);
  EXPECT_EQ(s.rules[4].hold_min, microseconds(100));
  EXPECT_EQ(s.rules[5].path, 3);
  EXPECT_EQ(s.rules[6].plane, 1);
  EXPECT_EQ(s.rules[6].from, seconds(2));
  EXPECT_EQ(s.rules[6].to, seconds(5));
  EXPECT_EQ(s.rules[7].hold_max, milliseconds(2));
  EXPECT_EQ(s.rules[7].direction, Direction::kBoth);
  EXPECT_EQ(s.rules[8].from, microseconds(1500));
  EXPECT_EQ(s.rules[8].to.ns, kNever.ns);
  EXPECT_EQ(s.rules[8].direction, Direction::kTransmit);
  EXPECT_TRUE(spec_of("").empty());
}

TEST(FaultSpec, SaysWhatIsWrongAndWhatToWrite) {
  for (const char* text : {"loose=1%",
                           "drop",
                           "drop=",
                           "drop=101%",
                           "drop=-1%",
                           "drop=x",
                           "drop=1%:5us",
                           "delay=1%",
                           "reorder=1%",
                           "delay=100",
                           "blackhole@2s",
                           "blackhole@5s-2s",
                           "mark=1%:plane=16",
                           "mark=1%:path=256",
                           "mark=1%:dir=up",
                           "mark=1%:colour=red",
                           "seed=x",
                           "drop=1%:",
                           "drop=nan",
                           "delay=1e300s",
                           "drop=1%;dup=1%"}) {
    const auto spec = parse_faults(text);
    if (std::string_view(text) == "drop=1%:") {
      EXPECT_TRUE(spec) << text;  // an empty detail is no detail
      continue;
    }
    ASSERT_FALSE(spec) << text;
    EXPECT_NE(spec.error().text.find('"'), std::string::npos) << spec.error().text;
    EXPECT_NE(spec.error().text.find("; "), std::string::npos) << spec.error().text;
  }
}

RawPacket packet_on(std::vector<std::byte>& bytes, uint8_t path, uint8_t plane = 0) {
  bytes.assign(64, std::byte{0x5A});
  bytes[2] = static_cast<std::byte>(path);
  RawPacket p;
  p.bytes = bytes;
  p.plane = plane;
  return p;
}

TEST(FaultInjector, DropsTheAskedShareOnTheAskedPathOnly) {
  FaultInjector injector(spec_of("drop=10%:path=3"), Direction::kReceive, {});
  std::vector<std::byte> bytes;
  uint64_t gone = 0;
  for (int i = 0; i < 20000; ++i) {
    RawPacket p = packet_on(bytes, static_cast<uint8_t>(2 + i % 2));
    gone += injector.apply({i}, p) == FaultInjector::Verdict::kGone;
  }
  EXPECT_EQ(injector.tally().of(FaultKind::kDrop), gone);
  EXPECT_EQ(injector.tally().lost(), gone);
  EXPECT_EQ(injector.tally().path[3][static_cast<size_t>(FaultKind::kDrop)], gone);
  EXPECT_EQ(injector.tally().path[2][static_cast<size_t>(FaultKind::kDrop)], 0u);
  EXPECT_EQ(injector.tally().seen, 20000u);
  EXPECT_GT(gone, 800u);  // 1000 expected, 30 is one standard deviation
  EXPECT_LT(gone, 1200u);
}

TEST(FaultInjector, SameSeedSameFate) {
  for (int other = 0; other < 2; ++other) {
    FaultInjector a(spec_of("seed=5,drop=30%,mark=10%"), Direction::kReceive, {});
    FaultInjector b(spec_of(other != 0 ? "seed=6,drop=30%,mark=10%" : "seed=5,drop=30%,mark=10%"),
                    Direction::kReceive, {});
    std::vector<std::byte> x;
    std::vector<std::byte> y;
    int different = 0;
    for (int i = 0; i < 1000; ++i) {
      RawPacket p = packet_on(x, 0);
      RawPacket q = packet_on(y, 0);
      different += a.apply({i}, p) != b.apply({i}, q) || p.ecn != q.ecn;
    }
    EXPECT_EQ(different != 0, other != 0);
  }
}

TEST(FaultInjector, OneDirectionDoesNotSeeRulesOfTheOther) {
  const FaultSpec spec = spec_of("drop=100%:dir=tx");
  EXPECT_FALSE(FaultInjector(spec, Direction::kReceive, {}).enabled());
  EXPECT_TRUE(FaultInjector(spec, Direction::kTransmit, {}).enabled());
}

TEST(FaultInjector, HeldPacketsComeBackWholeAndInOrderOfTime) {
  FaultInjector injector(spec_of("delay=100us:path=1,delay=10us:path=2,dup=1:path=3"),
                         Direction::kReceive, {});
  std::vector<std::byte> bytes;
  for (uint8_t path : {1, 2, 3}) {
    RawPacket p = packet_on(bytes, path);
    const auto verdict = injector.apply({0}, p);
    EXPECT_EQ(verdict == FaultInjector::Verdict::kPass, path == 3);
  }
  bytes.assign(64, std::byte{0});  // the driver's buffer is used again
  RawPacket out;
  ASSERT_TRUE(injector.release({0}, out));
  EXPECT_EQ(out.bytes[2], std::byte{3});
  EXPECT_FALSE(injector.release({9'999}, out));
  EXPECT_EQ(injector.next_release(), Time{10'000});
  ASSERT_TRUE(injector.release({200'000}, out));
  EXPECT_EQ(out.bytes[2], std::byte{2});
  EXPECT_EQ(out.bytes[63], std::byte{0x5A});
  ASSERT_TRUE(injector.release({200'000}, out));
  EXPECT_EQ(out.bytes[2], std::byte{1});
  EXPECT_FALSE(injector.release({200'000}, out));
  EXPECT_EQ(injector.next_release(), kNever);
  injector.recycle();
}

TEST(FaultInjector, BlackHoleOpensAndCloses) {
  FaultInjector injector(spec_of("blackhole@2us-5us:plane=1"), Direction::kReceive, {1000});
  std::vector<std::byte> bytes;
  const auto passes = [&](int64_t ns, uint8_t plane) {
    RawPacket p = packet_on(bytes, 0, plane);
    return injector.apply({ns}, p) == FaultInjector::Verdict::kPass;
  };
  EXPECT_TRUE(passes(2'999, 1));
  EXPECT_FALSE(passes(3'000, 1));
  EXPECT_TRUE(passes(3'000, 0));
  EXPECT_FALSE(passes(5'999, 1));
  EXPECT_TRUE(passes(6'000, 1));
  injector.set_plane_dark(0, true);
  EXPECT_FALSE(passes(7'000, 0));
  injector.set_plane_dark(0, false);
  EXPECT_TRUE(passes(7'000, 0));
  EXPECT_EQ(injector.tally().of(FaultKind::kBlackhole), 3u);
  EXPECT_EQ(injector.tally().plane[1][static_cast<size_t>(FaultKind::kBlackhole)], 2u);
  EXPECT_EQ(injector.tally().first_drop, Time{3'000});
}

TEST(FaultInjector, CorruptionFlipsOneBitAndCountsTheTruePath) {
  FaultInjector injector(spec_of("corrupt=100%"), Direction::kReceive, {});
  std::vector<std::byte> bytes;
  for (int i = 0; i < 2000; ++i) {
    RawPacket p = packet_on(bytes, 9);
    const std::vector<std::byte> before = bytes;
    ASSERT_EQ(injector.apply({0}, p), FaultInjector::Verdict::kPass);
    int bits = 0;
    for (size_t k = 0; k < bytes.size(); ++k) {
      bits += __builtin_popcount(static_cast<unsigned>(bytes[k] ^ before[k]));
    }
    ASSERT_EQ(bits, 1);
  }
  EXPECT_EQ(injector.tally().path[9][static_cast<size_t>(FaultKind::kCorrupt)], 2000u);
}

}  // namespace
}  // namespace metaroce::driver
