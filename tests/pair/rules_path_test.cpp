// Health of paths and packet size over the simulated network (spec/05-loss.md, spec/02).
#include <gtest/gtest.h>

#include <algorithm>

#include "base/covers.h"
#include "tests/pair/pair.h"

namespace metaroce::pair {
namespace {

using engine::PathState;

PairConfig config(uint32_t planes, uint32_t paths) {
  PairConfig c;
  c.network.planes = planes;
  c.network.mtu = 4500;
  c.settings.paths_per_plane = paths;
  c.real_memory = false;
  c.region_bytes = 64 << 20;
  return c;
}

Impairment dark_from(Time begin, int plane) {
  Impairment i;
  i.kind = ImpairmentKind::kDark;
  i.plane = plane;
  i.begin = begin;
  return i;
}

TEST(RulesPath, APlaneThatFallsSilentIsDeadSoonWhenAnotherAnswers) {
  MR_COVERS("MR-HEALTH-006");
  Pair pair(config(2, 2));
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.write(0, 0, 1, 0, 32 << 20), Status::kOk);
  pair.run_for(microseconds(300));
  const Time begin = pair.now();
  pair.network().add(dark_from(begin, 1));
  const auto dead = [&] {
    size_t n = 0;
    for (const auto& p : pair.paths(0)) n += p.plane == 1 && p.state == PathState::kDead;
    return n == 2;
  };
  // Without another plane k probes would be needed, 4 T apart; two and the third's time do.
  ASSERT_TRUE(pair.run_until(dead, milliseconds(1)));
  for (const auto& p : pair.paths(0)) {
    if (p.plane == 0) {
      EXPECT_EQ(p.counters.deaths, 0u) << int{p.id};
    }
  }
  ASSERT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, milliseconds(100)));
  EXPECT_EQ(pair.counts(0).failed, 0u);
}

TEST(RulesPath, TheLastPathsAreNeverGivenUp) {
  MR_COVERS("MR-HEALTH-007");
  Pair pair(config(1, 4));
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.write(0, 0, 1, 0, 16 << 20), Status::kOk);
  pair.run_for(microseconds(300));
  pair.network().add(dark_from(pair.now(), -1));
  pair.run_for(milliseconds(100));
  size_t alive = 0;
  uint64_t probes = 0;
  for (const auto& p : pair.paths(0)) {
    alive += p.state == PathState::kSuspect || p.state == PathState::kGood;
    probes += p.counters.tx_probes;
  }
  EXPECT_GE(alive, 1u);
  EXPECT_FALSE(pair.lost(0));
  pair.run_for(milliseconds(10));
  uint64_t later = 0;
  for (const auto& p : pair.paths(0)) later += p.counters.tx_probes;
  EXPECT_GT(later, probes);
  pair.network().clear(pair.now());
  EXPECT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, milliseconds(200)));
}

TEST(RulesPath, WhenFullPacketsVanishASmallerSizeIsFound) {
  MR_COVERS("MR-PMTU-006");
  MR_COVERS("MR-PMTU-007");
  MR_COVERS("MR-CPSN-023");
  Pair pair(config(1, 2));
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.write(0, 0, 1, 0, 32 << 20), Status::kOk);
  pair.run_for(microseconds(300));
  Impairment small;
  small.kind = ImpairmentKind::kMtu;
  small.value = 1500;
  small.begin = pair.now();
  pair.network().add(small);
  ASSERT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, seconds(1)));
  uint64_t fallbacks = 0;
  uint16_t smallest = 0xFFFF;
  for (const auto& p : pair.paths(0)) {
    fallbacks += p.counters.mtu_fallback;
    smallest = std::min(smallest, p.pmtu);
  }
  EXPECT_GE(fallbacks, 1u);
  EXPECT_LE(smallest, 1500);
  engine::ConnectionStatus status;
  ASSERT_TRUE(pair.engine(0).connection_status(pair.connection(0), status));
  EXPECT_GT(status.counters.voids, 0u);
  // What was accepted was never cut and placed again.
  EXPECT_EQ(pair.counts(1).placed_bytes, 32u << 20);
}

}  // namespace
}  // namespace metaroce::pair
