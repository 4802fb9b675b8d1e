// Bulk and tail under random loss, port changes, silent rehashes.
#include <fmt/format.h>

#include "tests/scenarios/bench.h"

namespace metaroce::scenarios {

namespace {

using Kind = BenchRow::Kind;

/// Twin duration / duration, for the seeds where both ended.
std::vector<double> ratios(const std::vector<Result>& runs, const std::vector<Result>& twins) {
  std::vector<double> out;
  for (size_t i = 0; i < runs.size(); ++i)
    out.push_back(runs[i].completed && twins[i].completed
                      ? static_cast<double>(twins[i].duration_ns) /
                            static_cast<double>(runs[i].duration_ns)
                      : 0);
  return out;
}

/// How much later than the twin, in RTT; a run that did not end counts as its whole time limit.
std::vector<double> delays(const std::vector<Result>& runs, const std::vector<Result>& twins) {
  std::vector<double> out;
  for (size_t i = 0; i < runs.size(); ++i)
    out.push_back(static_cast<double>(runs[i].duration_ns - twins[i].duration_ns) /
                  static_cast<double>(runs[i].rtt_ns));
  return out;
}

uint64_t seeds_of(const BenchOptions& o, uint64_t own) { return o.seeds > 0 ? o.seeds : own; }

}  // namespace

BenchReport bench_loss_figures(const BenchOptions& options) {
  BenchReport report;
  const uint64_t seeds = seeds_of(options, 100);
  Scenario s = bench_scenario("loss", 64 << 20);
  const auto twins = run_seeds(s, options, seeds, {.twin = true}, report);
  std::vector<double> gbps;
  for (const Result& r : twins) gbps.push_back(r.gbps());
  report.rows.push_back({"0 %: goodput", mean(gbps), "Gb/s", 0, Kind::kInformation});
  report.rows.push_back(
      {"0 %: sent / useful", twins[0].sent_per_useful(), "", 0, Kind::kInformation});
  const struct {
    int64_t ppm;
    double goodput;
    double sent;
  } bars[] = {{10'000, 0.98, 1.02}, {100'000, 0.87, 1.13}, {300'000, 0.60, 1.46}};
  for (const auto& bar : bars) {
    s.troubles = {bench_loss(bar.ppm)};
    const auto runs = run_seeds(s, options, seeds, {}, report);
    std::vector<double> sent, spurious;
    for (const Result& r : runs) {
      sent.push_back(r.sent_per_useful());
      spurious.push_back(static_cast<double>(r.tally.spurious_repairs));
    }
    const std::string p = fmt::format("{} %: ", bar.ppm / 10'000);
    report.rows.push_back({p + "goodput / lossless, mean", mean(ratios(runs, twins)), "",
                           bar.goodput, Kind::kAtLeast});
    report.rows.push_back({p + "sent / useful, mean", mean(sent), "", bar.sent, Kind::kAtMost});
    report.rows.push_back(
        {p + "spurious repairs, mean", mean(spurious), "", 0, Kind::kInformation});
  }
  return report;
}

BenchReport bench_tail(const BenchOptions& options) {
  BenchReport report;
  const uint64_t seeds = seeds_of(options, 2000);
  for (const bool warm : {true, false}) {
    Scenario s = bench_scenario("tail", 1 << 20);
    s.run.warm_bytes = warm ? 4 << 20 : 0;
    s.troubles = {bench_loss(10'000)};
    // A warm connection has met the loss before; a cold one starts into it.
    s.troubles[0].at_ns = warm ? -1 : 0;
    const auto twins = run_seeds(s, options, seeds, {.twin = true}, report);
    const auto runs = run_seeds(s, options, seeds, {}, report);
    const auto later = delays(runs, twins);
    const std::string p = warm ? "open windows: " : "first Write: ";
    std::vector<double> base;
    for (const Result& r : twins)
      base.push_back(static_cast<double>(r.duration_ns) / static_cast<double>(r.rtt_ns));
    report.rows.push_back({p + "lossless, mean", mean(base), "RTT", 0, Kind::kInformation});
    report.rows.push_back({p + "p50 above lossless", percentile(later, 50), "RTT", 1.2,
                           Kind::kAtMost});
    report.rows.push_back({p + "p99 above lossless", percentile(later, 99), "RTT", 3,
                           Kind::kAtMost});
  }
  return report;
}

BenchReport bench_port_change(const BenchOptions& options) {
  BenchReport report;
  const uint64_t seeds = seeds_of(options, 100);
  Scenario s = bench_scenario("port_change", 64 << 20);
  s.topology.delay_ns = 3'000;
  s.topology.delay_spread_ns = 5'000;
  s.settings.emplace_back("initial_rtt", 10'000);
  Trouble t;
  t.kind = "port_change";
  t.at_ns = 50'000;
  t.every_ns = 100'000;
  s.troubles = {t};
  const auto twins = run_seeds(s, options, seeds, {.twin = true}, report);
  const auto runs = run_seeds(s, options, seeds, {}, report);
  uint64_t changes = 0, spurious = 0, repairs = 0, late = 0;
  for (const Result& r : runs) {
    changes += r.port_changes;
    spurious += r.tally.spurious_repairs;
    repairs += r.tally.data_repairs;
    late += r.tally.late;
  }
  report.rows.push_back(
      {"port changes", static_cast<double>(changes), "", static_cast<double>(seeds) * 8,
       Kind::kAtLeast});
  report.rows.push_back({"packets that came late", static_cast<double>(late), "", 0,
                         Kind::kInformation});
  report.rows.push_back({"repairs", static_cast<double>(repairs), "", 0, Kind::kInformation});
  report.rows.push_back(
      {"spurious repairs", static_cast<double>(spurious), "", 0, Kind::kAtMost});
  report.rows.push_back({"goodput / without, mean", mean(ratios(runs, twins)), "", 0,
                         Kind::kInformation});
  return report;
}

BenchReport bench_rehash(const BenchOptions& options) {
  BenchReport report;
  const uint64_t seeds = seeds_of(options, 100);
  Scenario s = bench_scenario("rehash", 64 << 20);
  s.troubles = {bench_loss(1'000)};
  const auto without = run_seeds(s, options, seeds, {}, report);
  Trouble t;
  t.kind = "rehash";
  t.direction = "forward";
  t.every_ns = 100'000;
  t.min_ns = 3'000;
  t.max_ns = 8'000;
  s.troubles.push_back(t);
  const auto runs = run_seeds(s, options, seeds, {}, report);
  uint64_t rehashes = 0, spurious = 0, base = 0;
  for (const Result& r : runs) {
    rehashes += r.tally.rehashes;
    spurious += r.tally.spurious_repairs;
  }
  for (const Result& r : without) base += r.tally.spurious_repairs;
  report.rows.push_back(
      {"rehashes", static_cast<double>(rehashes), "", static_cast<double>(seeds) * 8,
       Kind::kAtLeast});
  report.rows.push_back({"spurious repairs each",
                         static_cast<double>(spurious) / static_cast<double>(rehashes + !rehashes),
                         "", 0.7, Kind::kAtMost});
  report.rows.push_back({"spurious repairs without rehash", static_cast<double>(base), "", 0,
                         Kind::kInformation});
  report.rows.push_back({"goodput / without rehash, mean", mean(ratios(runs, without)), "", 0.97,
                         Kind::kAtLeast});
  return report;
}

}  // namespace metaroce::scenarios
