// A scenario: a network, what goes wrong in it, the work to be done and what must hold. Plain data,
// read from and written to TOML; all numbers that steer a run are integers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "tests/pair/impairment.h"

namespace metaroce::scenarios {

struct Topology {
  int64_t planes = 1;
  int64_t paths = 8;  ///< of each plane
  int64_t rate_mbps = 50'000;
  bool shared_rate = false;      ///< false: the rate of each path; true: of each plane
  int64_t delay_ns = 5'000;      ///< one way
  int64_t delay_spread_ns = 0;   ///< each path adds a fixed U[0, spread]
  int64_t queue_bytes = 250'000;
  int64_t mark_bytes = 62'500;   ///< 0: never marks
  int64_t mtu = 4'500;           ///< IP bytes
};

struct Trouble {
  std::string kind = "loss";
  std::string direction = "both";  ///< forward (A to B), backward, both
  bool data = true;
  bool acks = true;
  int64_t plane = -1;
  int64_t path = -1;  ///< path id of A; -1: every path
  int64_t at_ns = 0;  ///< after the work began; -1: from the start of the connection
  int64_t for_ns = 0; ///< 0: for ever
  int64_t at_spread_ns = 0;  ///< the seed adds U[0, spread]
  int64_t ppm = 0;
  int64_t exit_ppm = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  int64_t every_ns = 0;
  int64_t value = 0;
};

struct Work {
  std::string operation = "write";  ///< write, write_imm, send, send_imm
  std::string from = "a";
  int64_t bytes = 4096;
  int64_t bytes_max = 0;   ///< above `bytes`: lengths are U[bytes, bytes_max]
  int64_t count = 1;
  int64_t streams = 1;
  int64_t depth = 16;      ///< messages outstanding
  int64_t at_ns = 0;
  int64_t receives = 16;   ///< receives kept posted on each stream
  int64_t receives_late_ns = 0;
};

/// Bounds are off while negative.
struct Checks {
  bool complete = true;
  bool lost = false;               ///< the connection must end as lost
  double goodput_ratio_min = -1;   ///< to the twin: same seed, no troubles
  double extra_rtt_max = -1;       ///< later than the twin, in RTT
  double duration_rtt_max = -1;
  double sent_per_useful_max = -1; ///< data packets sent / data packets needed
  double spurious_per_event_max = -1;  ///< repairs of what was not lost, by rehash or port change
  int64_t spurious_max = -1;
  int64_t deaths_max = -1;         ///< paths declared dead
  double dead_rtt_max = -1;        ///< longest time until a dead path is good again
  int64_t min_drops = -1;          ///< the troubles must have bitten this often
};

struct Run {
  std::string memory = "real";  ///< or "virtual"
  int64_t limit_us = 1'000'000; ///< of virtual time
  int64_t warm_bytes = 0;       ///< a Write before the work, to open the windows
  int64_t first_seed = 1;
  int64_t seeds = 2;            ///< that ./dev test and `mr_sim run` use by default
};

struct Scenario {
  std::string name;
  std::string about;
  Topology topology;
  std::vector<std::pair<std::string, int64_t>> settings;
  std::vector<Trouble> troubles;
  std::vector<Work> works;
  Checks checks;
  Run run;
};

/// Reads one; the error names the file and line of an unknown key or a value out of range.
Expected<Scenario, std::string> read_scenario(const std::string& path);
Expected<Scenario, std::string> parse_scenario(std::string_view text, const std::string& name);
/// As TOML; reading it gives an equal scenario.
std::string write_scenario(const Scenario& scenario);

/// The impairment kind of a trouble; false when the word is none.
bool trouble_kind(const std::string& word, pair::ImpairmentKind& out);

}  // namespace metaroce::scenarios
