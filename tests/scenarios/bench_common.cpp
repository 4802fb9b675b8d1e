#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/scenarios/bench.h"

namespace metaroce::scenarios {

namespace {
constexpr size_t kMaxFailures = 5;
}

const std::vector<Bench>& benches() {
  static const std::vector<Bench> table = {
      {"loss", "64 MiB Write at 0, 1, 10 and 30 % loss of data and ACKs", 100,
       bench_loss_figures},
      {"tail", "1 MiB Write at 1 % loss: delay against the same seed without loss", 2000,
       bench_tail},
      {"port_change", "planned port changes under load: no spurious repair", 100,
       bench_port_change},
      {"rehash", "every path silently moves every 100 us, 0.1 % loss", 100, bench_rehash},
      {"plane_dark", "8 MiB Write, 1 of 8 planes goes dark at a random instant", 1000,
       bench_plane_dark},
      {"dead_paths", "healthy paths declared dead at 0, 1 and 10 % loss", 100, bench_dead_paths},
      {"plane_return", "a plane comes back: when it carries data again", 50, bench_plane_return},
  };
  return table;
}

void for_seeds(uint64_t count, unsigned jobs, const std::function<void(uint64_t)>& body) {
  if (jobs == 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<uint64_t> next{0};
  auto worker = [&] {
    for (uint64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> threads;
  for (unsigned j = 1; j < jobs && j < count; ++j) threads.emplace_back(worker);
  worker();
  for (std::thread& t : threads) t.join();
}

Scenario bench_scenario(const char* name, int64_t write_bytes) {
  Scenario s;
  s.name = name;
  Work w;
  w.bytes = write_bytes;
  s.works.push_back(w);
  s.run.memory = "virtual";
  s.run.limit_us = 200'000;
  return s;
}

Trouble bench_loss(int64_t ppm) {
  Trouble t;
  t.ppm = ppm;
  return t;
}

double percentile(std::vector<double> values, int percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t rank = (values.size() * static_cast<size_t>(percent) + 99) / 100;
  return values[std::min(values.size(), std::max<size_t>(rank, 1)) - 1];
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::vector<Result> run_seeds(const Scenario& scenario, const BenchOptions& options,
                              uint64_t seeds, const RunOptions& run, BenchReport& report) {
  std::vector<Result> results(seeds);
  for_seeds(seeds, options.jobs,
            [&](uint64_t i) { results[i] = run_once(scenario, options.first_seed + i, run); });
  for (uint64_t i = 0; i < seeds; ++i) {
    Result& r = results[i];
    report.packet_events += r.packet_events;
    if (!r.completed && r.connected) r.failures.push_back("not complete");
    if (!r.failures.empty() && report.failures.size() < kMaxFailures)
      report.failures.push_back(fmt::format("{} seed {}: {}", scenario.name,
                                            options.first_seed + i, r.failures.front()));
  }
  return results;
}

}  // namespace metaroce::scenarios
