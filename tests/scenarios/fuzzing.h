// Random scenarios, and what makes a failing one small.
#pragma once

#include <functional>
#include <string>

#include "tests/scenarios/scenario.h"

namespace metaroce::scenarios {

/// A scenario drawn from a seed: random network, troubles that end, random work. It must complete.
Scenario random_scenario(uint64_t seed);

/// How a run in a process of its own ended.
struct ChildResult {
  bool failed = false;
  std::string what;  ///< first failure, or the signal (an assertion aborts)
};
/// Runs with all checks in a child process, so that an assertion or a hang is a result.
ChildResult run_in_child(const Scenario& scenario, uint64_t seed);

/// The smallest scenario found that still fails with the seed; `scenario` must fail. `note` is
/// called with a line for each step that was kept.
Scenario shrink(const Scenario& scenario, uint64_t seed,
                const std::function<void(const std::string&)>& note);

}  // namespace metaroce::scenarios
