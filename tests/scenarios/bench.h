// The figures the transport must show, each with its bar.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/scenarios/runner.h"

namespace metaroce::scenarios {

struct BenchOptions {
  uint64_t first_seed = 1;
  uint64_t seeds = 0;  ///< 0: the bench's own number
  unsigned jobs = 0;   ///< threads; 0: as many as the machine has
};

struct BenchRow {
  std::string what;
  double value = 0;
  std::string unit;
  double bar = 0;
  enum class Kind : uint8_t { kAtLeast, kAtMost, kInformation } kind = Kind::kInformation;

  bool holds() const {
    return kind == Kind::kInformation || (kind == Kind::kAtLeast ? value >= bar : value <= bar);
  }
};

struct BenchReport {
  std::vector<BenchRow> rows;
  std::vector<std::string> failures;  ///< runs that went wrong, the first few
  uint64_t packet_events = 0;
};

struct Bench {
  const char* name;
  const char* about;
  uint64_t seeds;
  BenchReport (*run)(const BenchOptions& options);
};

const std::vector<Bench>& benches();

/// Calls body(seed index) for 0 to count - 1 on several threads. Results belong into a slot of the
/// index, so that their order does not depend on the threads.
void for_seeds(uint64_t count, unsigned jobs, const std::function<void(uint64_t)>& body);

/// The network of the figures: 8 paths x 50 Gb/s, RTT 10 us, queues of 4 BDP, marks at 1 BDP.
Scenario bench_scenario(const char* name, int64_t write_bytes);
Trouble bench_loss(int64_t ppm);

/// The smallest value that at least `percent` of the values do not exceed.
double percentile(std::vector<double> values, int percent);
double mean(const std::vector<double>& values);
/// Results of `scenario` for each seed; failures and events go into the report.
std::vector<Result> run_seeds(const Scenario& scenario, const BenchOptions& options,
                              uint64_t seeds, const RunOptions& run, BenchReport& report);

BenchReport bench_loss_figures(const BenchOptions& options);
BenchReport bench_tail(const BenchOptions& options);
BenchReport bench_port_change(const BenchOptions& options);
BenchReport bench_rehash(const BenchOptions& options);
BenchReport bench_plane_dark(const BenchOptions& options);
BenchReport bench_dead_paths(const BenchOptions& options);
BenchReport bench_plane_return(const BenchOptions& options);

}  // namespace metaroce::scenarios
