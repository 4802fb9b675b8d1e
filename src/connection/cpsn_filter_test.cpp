#include "connection/cpsn_filter.h"

#include <gtest/gtest.h>

#include <map>

#include "base/covers.h"
#include "base/rng.h"

namespace metaroce::connection {
namespace {

constexpr uint32_t kWindow = 1024;
constexpr uint32_t kStart = 0xFFFFFF00u;

TEST(CpsnFilter, RemembersAcceptedRefusedAndVoidedApart) {
  MR_COVERS("MR-CPSN-002");
  CpsnFilter f(kWindow, kStart);
  EXPECT_EQ(f.highest(), kStart - 1);
  EXPECT_EQ(f.lookup(kStart), Fate::kUnseen);
  f.decide(kStart, Fate::kAccepted);
  f.decide(kStart + 1, Fate::kRefused);
  f.decide(kStart + 5, Fate::kVoided);
  EXPECT_EQ(f.lookup(kStart), Fate::kAccepted);
  EXPECT_EQ(f.lookup(kStart + 1), Fate::kRefused);
  EXPECT_EQ(f.lookup(kStart + 2), Fate::kUnseen);
  EXPECT_EQ(f.lookup(kStart + 5), Fate::kVoided);
  EXPECT_EQ(f.lookup(kStart + 6), Fate::kUnseen);
}

TEST(CpsnFilter, OnlyANewHighestMovesIt) {
  MR_COVERS("MR-CPSN-003");
  CpsnFilter f(kWindow, kStart);
  // Everything but the lowest is decided: the window does not wait for it.
  for (uint32_t i = 1; i < kWindow; ++i) f.decide(kStart + i, Fate::kAccepted);
  EXPECT_TRUE(f.in_range(kStart));
  EXPECT_EQ(f.lookup(kStart), Fate::kUnseen);
  f.decide(kStart + kWindow, Fate::kAccepted);
  EXPECT_FALSE(f.in_range(kStart));
  // Deciding below the highest moves nothing.
  CpsnFilter g(kWindow, kStart);
  g.decide(kStart + 10, Fate::kAccepted);
  g.decide(kStart + 3, Fate::kAccepted);
  EXPECT_EQ(g.highest(), kStart + 10);
}

TEST(CpsnFilter, OneWindowBelowAndOneAboveTheHighest) {
  MR_COVERS("MR-CPSN-004");
  CpsnFilter f(kWindow, kStart);
  f.decide(kStart + 99, Fate::kAccepted);
  EXPECT_TRUE(f.in_range(kStart + 99 + kWindow));
  EXPECT_FALSE(f.in_range(kStart + 99 + kWindow + 1));
  EXPECT_TRUE(f.in_range(kStart + 99 - kWindow + 1));
  EXPECT_FALSE(f.in_range(kStart + 99 - kWindow));
  EXPECT_FALSE(f.in_range(kStart + 99 + 0x80000000u));
}

TEST(CpsnFilter, DecidedThroughIsTheLowestOpenOne) {
  MR_COVERS("MR-ACK-017");
  CpsnFilter f(kWindow, kStart);
  EXPECT_EQ(f.decided_through(), kStart);
  f.decide(kStart + 1, Fate::kAccepted);
  EXPECT_EQ(f.decided_through(), kStart);
  f.decide(kStart, Fate::kRefused);
  EXPECT_EQ(f.decided_through(), kStart + 2);
  f.decide(kStart + 2, Fate::kVoided);
  EXPECT_EQ(f.decided_through(), kStart + 3);
}

TEST(CpsnFilter, OldSlotsAreForgottenWhenTheyAreUsedAgain) {
  CpsnFilter f(kWindow, kStart);
  for (uint32_t i = 0; i < kWindow; ++i) f.decide(kStart + i, Fate::kAccepted);
  // A jump over half a window leaves unseen CPSNs behind, not the fates of their predecessors.
  f.decide(kStart + kWindow + kWindow / 2, Fate::kAccepted);
  for (uint32_t i = 0; i < kWindow / 2; ++i)
    ASSERT_EQ(f.lookup(kStart + kWindow + i), Fate::kUnseen) << i;
  EXPECT_EQ(f.decided_through(), kStart + kWindow);
}

TEST(CpsnFilter, AgreesWithAMap) {
  MR_COVERS("MR-CPSN-005");
  CpsnFilter f(kWindow, kStart);
  std::map<uint32_t, Fate> model;
  Rng rng(5);
  uint32_t near = kStart;
  for (int i = 0; i < 50'000; ++i) {
    const uint32_t cpsn = near + static_cast<uint32_t>(rng.below(400)) - 200;
    if (rng.below(3) == 0) ++near;
    if (!f.in_range(cpsn) || seq_lt(cpsn, kStart)) continue;
    const auto known = model.find(cpsn);
    ASSERT_EQ(f.lookup(cpsn), known == model.end() ? Fate::kUnseen : known->second);
    if (known != model.end()) continue;
    const auto fate = static_cast<Fate>(1 + rng.below(3));
    f.decide(cpsn, fate);
    model[cpsn] = fate;
  }
  EXPECT_GT(model.size(), 10'000u);
}

}  // namespace
}  // namespace metaroce::connection
