// Planes that go dark and return, paths that are wrongly declared dead.
#include <fmt/format.h>

#include <algorithm>

#include "tests/scenarios/bench.h"

namespace metaroce::scenarios {

namespace {

using Kind = BenchRow::Kind;

uint64_t seeds_of(const BenchOptions& o, uint64_t own) { return o.seeds > 0 ? o.seeds : own; }

}  // namespace

BenchReport bench_plane_dark(const BenchOptions& options) {
  BenchReport report;
  const uint64_t seeds = seeds_of(options, 1000);
  for (const char* direction : {"forward", "backward", "both"}) {
    Scenario s = bench_scenario("plane_dark", 8 << 20);
    s.topology.planes = 8;
    s.topology.paths = 1;
    const auto twins = run_seeds(s, options, seeds, {.twin = true}, report);
    std::vector<double> later(seeds);
    std::vector<Result> runs(seeds);
    for_seeds(seeds, options.jobs, [&](uint64_t i) {
      const uint64_t seed = options.first_seed + i;
      Rng rng = Rng(seed).fork("plane_dark");
      Trouble t;
      t.kind = "dark";
      t.direction = direction;
      t.plane = static_cast<int64_t>(rng.below(8));
      t.at_ns = static_cast<int64_t>(rng.below(static_cast<uint64_t>(twins[i].duration_ns) + 1));
      Scenario mine = s;
      mine.troubles = {t};
      runs[i] = run_once(mine, seed);
      later[i] = static_cast<double>(runs[i].duration_ns - twins[i].duration_ns) /
                 static_cast<double>(runs[i].rtt_ns);
    });
    double incomplete = 0;
    for (uint64_t i = 0; i < seeds; ++i) {
      report.packet_events += runs[i].packet_events;
      if (!runs[i].completed || !runs[i].failures.empty()) {
        ++incomplete;
        if (report.failures.size() < 5)
          report.failures.push_back(fmt::format(
              "{} seed {}: {}", direction, options.first_seed + i,
              runs[i].failures.empty() ? "not complete" : runs[i].failures.front()));
      }
    }
    const std::string p = std::string(direction) + ": ";
    report.rows.push_back({p + "not complete", incomplete, "", 0, Kind::kAtMost});
    report.rows.push_back({p + "p50 later than without", percentile(later, 50), "RTT", 0,
                           Kind::kInformation});
    report.rows.push_back(
        {p + "p99 later than without", percentile(later, 99), "RTT", 8, Kind::kAtMost});
    report.rows.push_back({p + "latest", percentile(later, 100), "RTT", 0, Kind::kInformation});
  }
  return report;
}

BenchReport bench_dead_paths(const BenchOptions& options) {
  BenchReport report;
  const uint64_t seeds = seeds_of(options, 100);
  for (const int64_t ppm : {0, 10'000, 100'000}) {
    Scenario s = bench_scenario("dead_paths", 64 << 20);
    if (ppm > 0) s.troubles = {bench_loss(ppm)};
    const auto runs = run_seeds(s, options, seeds, {.sample_paths = true}, report);
    double deaths = 0, longest = 0;
    for (const Result& r : runs) {
      deaths += static_cast<double>(r.deaths);
      longest = std::max(longest, static_cast<double>(r.longest_dead_ns) /
                                      static_cast<double>(r.rtt_ns));
    }
    const std::string p = fmt::format("{} %: ", ppm / 10'000);
    report.rows.push_back({p + "healthy paths declared dead", deaths, "", 0,
                           ppm == 0 ? Kind::kAtMost : Kind::kInformation});
    if (ppm > 0)
      report.rows.push_back({p + "longest until back", longest, "RTT", 5, Kind::kAtMost});
  }
  return report;
}

BenchReport bench_plane_return(const BenchOptions& options) {
  BenchReport report;
  const uint64_t seeds = seeds_of(options, 50);
  Scenario s = bench_scenario("plane_return", 96 << 20);
  // Slow links: the plane is away for many probe intervals while data flows.
  s.topology.planes = 4;
  s.topology.paths = 2;
  s.topology.rate_mbps = 5'000;
  s.topology.delay_ns = 20'000;
  s.topology.queue_bytes = 100'000;
  s.topology.mark_bytes = 25'000;
  std::vector<double> over(seeds), after(seeds);
  std::vector<Result> runs(seeds);
  for_seeds(seeds, options.jobs, [&](uint64_t i) {
    const uint64_t seed = options.first_seed + i;
    Rng rng = Rng(seed).fork("plane_return");
    Trouble t;
    t.kind = "dark";
    t.plane = static_cast<int64_t>(rng.below(4));
    t.at_ns = 200'000;
    t.for_ns = 2'000'000 + static_cast<int64_t>(rng.below(5'000'000));
    Scenario mine = s;
    mine.troubles = {t};
    runs[i] = run_once(mine, seed,
                       {.watch_plane = static_cast<int>(t.plane),
                        .watch_from_ns = t.at_ns + t.for_ns});
    const auto& watch = runs[i].watch;
    const int64_t back = runs[i].work_began_ns + t.at_ns + t.for_ns;
    const bool used = watch.first_data_arrived.ns >= 0 && watch.first_probe_after.ns >= 0;
    // Never used again counts as the rest of the run.
    const int64_t in_use = used ? watch.first_data_arrived.ns - back : runs[i].duration_ns;
    const int64_t interval =
        used && watch.last_probe_before.ns >= 0
            ? (watch.first_probe_after - watch.last_probe_before).ns
            : 0;
    after[i] = static_cast<double>(in_use) / 1e3;
    over[i] = static_cast<double>(in_use - interval) / static_cast<double>(runs[i].rtt_ns);
  });
  double incomplete = 0;
  for (const Result& r : runs) {
    report.packet_events += r.packet_events;
    if (!r.completed || !r.failures.empty()) ++incomplete;
  }
  report.rows.push_back({"not complete", incomplete, "", 0, Kind::kAtMost});
  report.rows.push_back({"in use after its return, p50", percentile(after, 50), "us", 0,
                         Kind::kInformation});
  report.rows.push_back({"in use after its return, latest", percentile(after, 100), "us", 0,
                         Kind::kInformation});
  report.rows.push_back({"that less one probe interval, latest", percentile(over, 100), "RTT", 3,
                         Kind::kAtMost});
  return report;
}

}  // namespace metaroce::scenarios
