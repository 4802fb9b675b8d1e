// The short version of the program `forged`.
#include <gtest/gtest.h>

#include "base/covers.h"
#include "tests/pair/forged.h"

namespace metaroce::pair {
namespace {

TEST(LifecycleForged, NothingIsAcceptedAndNothingChanges) {
  MR_COVERS("MR-SEC-001");
  MR_COVERS("MR-CONN-021");
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const ForgedResult r = send_forged(100'000, seed);
    EXPECT_EQ(r.sent, 100'000u);
    EXPECT_EQ(r.dropped, r.sent);
    EXPECT_EQ(r.placements, 0u);
    EXPECT_EQ(r.events, 0u);
    EXPECT_TRUE(r.state_unchanged);
    EXPECT_TRUE(r.still_alive);
    EXPECT_LE(r.answers, 4u);  // at most a hundred a second, and 30 ms have passed
  }
}

}  // namespace
}  // namespace metaroce::pair
