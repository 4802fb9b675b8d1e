// Handling the packets of a run as one must not change anything: the same seed gives the same
// bytes on the wire, placements and completions as handling each alone (setting whole_runs).
#include <gtest/gtest.h>

#include "tests/scenarios/fuzzing.h"
#include "tests/scenarios/runner.h"

namespace metaroce::scenarios {
namespace {

void set(Scenario& s, const std::string& name, int64_t value) {
  std::erase_if(s.settings, [&](const auto& pair) { return pair.first == name; });
  s.settings.emplace_back(name, value);
}

/// The hash of everything that happened; `events` says how much that was.
uint64_t hash_of(Scenario s, uint64_t seed, bool whole, uint64_t& events) {
  set(s, "whole_runs", whole ? 1 : 0);
  const Result r = run_once(s, seed);
  events = r.packet_events;
  return r.hash;
}

void expect_equal(const Scenario& s, uint64_t seed) {
  uint64_t events[2];
  const uint64_t alone = hash_of(s, seed, false, events[0]);
  const uint64_t whole = hash_of(s, seed, true, events[1]);
  EXPECT_EQ(alone, whole) << s.name << " seed " << seed << "\n" << write_scenario(s);
  EXPECT_EQ(events[0], events[1]);
  EXPECT_GT(events[0], 10u);
}

/// Runs of `max_run` packets; with `at_once` they arrive in one call, as GRO hands them over.
Scenario with_runs(Scenario s, int64_t max_run, bool at_once) {
  set(s, "max_run", max_run);
  if (at_once) s.topology.rate_mbps = 1'000'000'000;
  s.run.memory = "real";
  return s;
}

TEST(WholeRuns, RandomScenariosGiveTheSame) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Scenario s = random_scenario(seed);
    expect_equal(with_runs(s, 15, true), seed);
    expect_equal(with_runs(s, 1 + static_cast<int64_t>(seed % 15), false), seed);
  }
}

TEST(WholeRuns, ScenariosOfEveryKindGiveTheSame) {
  for (const char* name : {"messages", "duplicates", "reorder", "plane_dark", "port_change",
                           "mtu_shrink", "late_receives", "bursts", "marks", "setup_loss"}) {
    const auto read =
        read_scenario(std::string(MR_SOURCE_DIR) + "/tests/scenarios/" + name + ".toml");
    ASSERT_TRUE(read.has_value()) << read.error();
    expect_equal(with_runs(*read, 15, true), 1);
    expect_equal(with_runs(*read, 15, false), 2);
  }
}

}  // namespace
}  // namespace metaroce::scenarios
