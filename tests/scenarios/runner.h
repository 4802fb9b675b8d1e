// Runs a scenario with a seed and says what happened.
#pragma once

#include <string>
#include <vector>

#include "tests/pair/network.h"
#include "tests/scenarios/scenario.h"

namespace metaroce::scenarios {

struct RunOptions {
  bool twin = false;            ///< without troubles
  int watch_plane = -1;         ///< see pair::Network::watch_plane
  int64_t watch_from_ns = 0;    ///< after the work began
  bool sample_paths = false;    ///< look for dead paths every quarter of an RTT
};

struct Result {
  bool connected = false;
  bool completed = false;
  bool lost = false;
  int64_t duration_ns = 0;      ///< from posting to the last completion
  int64_t rtt_ns = 0;
  uint64_t bytes = 0;
  uint64_t useful_packets = 0;  ///< data packets the work needs
  pair::Tally tally;            ///< both directions, since the work began
  uint64_t port_changes = 0;
  uint64_t deaths = 0;          ///< paths of A declared dead since the work began
  int64_t longest_dead_ns = 0;  ///< needs sample_paths
  uint64_t packet_events = 0;
  uint64_t hash = 0;
  int64_t work_began_ns = 0;
  pair::Network::PlaneWatch watch;
  std::vector<engine::PathStatus> paths[2];  ///< of each side at the end
  std::vector<std::string> failures;  ///< empty: all checks hold

  double sent_per_useful() const;
  double gbps() const;
};

/// One run; `failures` holds what is wrong in any scenario (wrong bytes, failed completions ...).
Result run_once(const Scenario& scenario, uint64_t seed, const RunOptions& options = {});

/// A run, its twin where a check needs one, and the scenario's checks.
Result run_checked(const Scenario& scenario, uint64_t seed);

}  // namespace metaroce::scenarios
