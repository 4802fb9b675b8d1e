#include "tests/scenarios/commands.h"

#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tests/scenarios/bench.h"
#include "tests/scenarios/fuzzing.h"
#include "tests/scenarios/runner.h"

namespace metaroce::scenarios {

namespace {

using Clock = std::chrono::steady_clock;

/// Seconds of processor time of all threads: speed figures do not depend on who else computes.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
using Json = nlohmann::ordered_json;
constexpr const char* kDirectory = "tests/scenarios";

/// A line on the terminal that is drawn over, only once a command takes longer than 2 s.
class Progress {
 public:
  void show(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (now - begin_ < std::chrono::seconds(2) || now - last_ < std::chrono::milliseconds(500))
      return;
    last_ = now;
    shown_ = true;
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
  }
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::mutex mutex_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  bool shown_ = false;
};

std::vector<std::string> all_files() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kDirectory, error))
    if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

/// A file, or "fuzz:SEED".
Expected<Scenario, std::string> load(const std::string& name) {
  if (name.rfind("fuzz:", 0) == 0) {
    char* end = nullptr;
    const uint64_t seed = std::strtoull(name.c_str() + 5, &end, 10);
    if (end == name.c_str() + 5 || *end != '\0') return unexpected(name + ": not a seed");
    return random_scenario(seed);
  }
  return read_scenario(name);
}

bool write_json(const std::string& path, const Json& json) {
  if (path.empty()) return true;
  std::ofstream out(path);
  out << json.dump(2) << "\n";
  if (out.good()) return true;
  fmt::print(stderr, "mr_sim: {} cannot be written\n", path);
  return false;
}

Json to_json(const Scenario& scenario, uint64_t seed, const Result& r) {
  const pair::Tally& t = r.tally;
  return {{"scenario", scenario.name},
          {"seed", seed},
          {"hash", fmt::format("{:016x}", r.hash)},
          {"duration_ns", r.duration_ns},
          {"gbps", r.gbps()},
          {"sent_per_useful", r.sent_per_useful()},
          {"packets", t.sent},
          {"drops", t.drops()},
          {"data_new", t.data_new},
          {"data_repairs", t.data_repairs},
          {"data_copies", t.data_copies},
          {"spurious_repairs", t.spurious_repairs},
          {"probes", t.probes},
          {"acks", t.acks},
          {"marks", t.queue_marks + t.random_marks},
          {"deaths", r.deaths},
          {"failures", r.failures}};
}

volatile std::sig_atomic_t in_assert = 0;
char replay_hint[256];

/// An assertion of the engine aborts: say how to come back here.
void on_abort(int) {
  if (in_assert == 0 && replay_hint[0] != 0) {
    in_assert = 1;
    if (write(2, replay_hint, std::strlen(replay_hint)) < 0) _exit(3);
  }
  std::signal(SIGABRT, SIG_DFL);
}

void print_details(const Result& r) {
  const pair::Tally& t = r.tally;
  fmt::print(
      "       sent {} delivered {} lost {} queue {} dark {} mtu {} crc {} dup {} marks {}+{} "
      "reordered {} late {} rehashes {}\n",
      t.sent, t.delivered, t.lost, t.queue_drops, t.dark_drops, t.mtu_drops, t.crc_errors,
      t.duplicates, t.queue_marks, t.random_marks, t.reordered, t.late, t.rehashes);
  fmt::print(
      "       new {} repairs {} copies {} probes {} acks {} control {} handshake {} "
      "port changes {} deaths {}\n",
      t.data_new, t.data_repairs, t.data_copies, t.probes, t.acks, t.controls, t.handshakes,
      r.port_changes, r.deaths);
  for (int side = 0; side < 2; ++side)
    for (const engine::PathStatus& p : r.paths[side])
      fmt::print(
          "       {} path {:3} plane {:2} {:10} pmtu {} window {:8} srtt {:6} us tx {} "
          "repair {} copies {} probes {} lost {} spurious {} suspects {} deaths {} rx {}\n",
          side == 0 ? 'A' : 'B', p.id, p.plane, engine::to_string(p.state), p.pmtu, p.window,
          static_cast<double>(p.srtt.ns) / 1e3, p.counters.tx_packets, p.counters.tx_repair,
          p.counters.tx_copies, p.counters.tx_probes, p.counters.lost, p.counters.spurious,
          p.counters.suspects, p.counters.deaths, p.counters.rx_packets);
}

struct Ran {
  uint64_t seed = 0;
  Result result;
};

}  // namespace

int command_run(const std::vector<std::string>& given, SeedRange seeds,
                const CommonOptions& options) {
  const std::vector<std::string> files = given.empty() ? all_files() : given;
  if (files.empty()) {
    fmt::print(stderr, "mr_sim: no scenario in {}; run it from the top of the tree\n", kDirectory);
    return 2;
  }
  std::signal(SIGABRT, on_abort);
  Progress progress;
  Json json = Json::array();
  uint64_t failed = 0, total = 0, events = 0;
  const double begin = cpu_seconds();
  for (const std::string& file : files) {
    const auto scenario = load(file);
    if (!scenario) {
      fmt::print(stderr, "mr_sim: {}\n", scenario.error());
      return 2;
    }
    SeedRange range = seeds;
    if (range.count == 0)
      range = {static_cast<uint64_t>(scenario->run.first_seed),
               static_cast<uint64_t>(scenario->run.seeds)};
    std::snprintf(
        replay_hint, sizeof replay_hint,
        "mr_sim: an assertion failed; replay with the seed it names: mr_sim run %s --seed N\n",
        file.c_str());
    std::vector<Ran> ran(range.count);
    for_seeds(range.count, options.jobs, [&](uint64_t i) {
      progress.show(fmt::format("{} seed {}", scenario->name, range.first + i));
      ran[i] = {range.first + i, run_checked(*scenario, range.first + i)};
    });
    for (const Ran& r : ran) {
      ++total;
      events += r.result.packet_events;
      json.push_back(to_json(*scenario, r.seed, r.result));
      const bool ok = r.result.failures.empty();
      failed += !ok;
      fmt::print(
          "{:4} {:24} seed {:<6} {:9.1f} us {:7.2f} Gb/s  sent/useful {:6.4f}  "
          "spurious {:<4} hash {:016x}\n",
          ok ? "ok" : "FAIL", scenario->name, r.seed,
          static_cast<double>(r.result.duration_ns) / 1e3, r.result.gbps(),
          r.result.sent_per_useful(), r.result.tally.spurious_repairs, r.result.hash);
      if (options.verbose) print_details(r.result);
      for (const std::string& f : r.result.failures) fmt::print("       {}\n", f);
      if (!ok) fmt::print("       replay: mr_sim run {} --seed {}\n", file, r.seed);
    }
  }
  fmt::print("{} runs, {} failed, {:.2f} M packet events per core and second\n", total, failed,
             static_cast<double>(events) / (cpu_seconds() - begin) / 1e6);
  if (!write_json(options.json, json)) return 2;
  return failed == 0 ? 0 : 1;
}

int command_list() {
  fmt::print("Scenarios (mr_sim run FILE):\n");
  for (const std::string& file : all_files()) {
    const auto scenario = read_scenario(file);
    fmt::print("  {:44} {}\n", file, scenario ? scenario->about : "! " + scenario.error());
  }
  fmt::print("\nBenches (mr_sim bench NAME):\n");
  for (const Bench& b : benches()) fmt::print("  {:44} {} ({} seeds)\n", b.name, b.about, b.seeds);
  return 0;
}

int command_show(const std::string& file) {
  const auto scenario = load(file);
  if (!scenario) {
    fmt::print(stderr, "mr_sim: {}\n", scenario.error());
    return 2;
  }
  fmt::print("{}", write_scenario(*scenario));
  return 0;
}

int command_shrink(const std::string& file, bool has_seed, uint64_t seed,
                   const std::string& directory) {
  const auto scenario = load(file);
  if (!scenario) {
    fmt::print(stderr, "mr_sim: {}\n", scenario.error());
    return 2;
  }
  if (!has_seed) seed = static_cast<uint64_t>(scenario->run.first_seed);
  const ChildResult first = run_in_child(*scenario, seed);
  if (!first.failed) {
    fmt::print(stderr, "mr_sim: {} holds with seed {}: nothing to shrink\n", file, seed);
    return 2;
  }
  fmt::print("fails: {}\n", first.what);
  Scenario small =
      shrink(*scenario, seed, [](const std::string& line) { fmt::print("  {}\n", line); });
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::string path;
  for (int n = 1; n < 1000; ++n) {
    path = fmt::format("{}/{:03}.toml", directory, n);
    if (!std::filesystem::exists(path)) break;
  }
  small.name = fmt::format("regress-{}", std::filesystem::path(path).stem().string());
  small.about = fmt::format("shrunk from {} seed {}: {}", scenario->name, seed, first.what);
  std::replace(small.about.begin(), small.about.end(), '"', '\'');
  std::ofstream out(path);
  out << write_scenario(small);
  if (!out.good()) {
    fmt::print(stderr, "mr_sim: {} cannot be written\n", path);
    return 2;
  }
  fmt::print("written: {}\nreplay: mr_sim run {}\n", path, path);
  return 0;
}

int command_fuzz(int64_t seconds, uint64_t first_seed, const CommonOptions& options) {
  Progress progress;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  uint64_t seed = first_seed;
  for (; Clock::now() < end; ++seed) {
    progress.show(fmt::format("fuzz: {} scenarios", seed - first_seed));
    const ChildResult result = run_in_child(random_scenario(seed), seed);
    if (!result.failed) continue;
    fmt::print(
        "\nFAIL seed {}: {}\n  replay: mr_sim run fuzz:{}\n  shrink: mr_sim shrink fuzz:{}\n", seed,
        result.what, seed, seed);
    write_json(options.json, {{"scenarios", seed - first_seed + 1}, {"failed_seed", seed}});
    return 1;
  }
  fmt::print("{} random scenarios, seeds {} to {}, none failed\n", seed - first_seed, first_seed,
             seed - 1);
  return write_json(options.json, {{"scenarios", seed - first_seed}, {"failed_seed", nullptr}}) ? 0
                                                                                                : 2;
}

namespace {

bool print_report(const Bench& bench, const BenchReport& report, double seconds, double cpu,
                  Json& json) {
  bool holds = report.failures.empty();
  fmt::print("{}: {}\n", bench.name, bench.about);
  for (const BenchRow& row : report.rows) {
    const char* sign = row.kind == BenchRow::Kind::kAtLeast ? ">=" : "<=";
    const bool judged = row.kind != BenchRow::Kind::kInformation;
    fmt::print("  {:44} {:>12.4f} {:5} {:>14}  {}\n", row.what, row.value, row.unit,
               judged ? fmt::format("{} {:.4g}", sign, row.bar) : "",
               judged ? (row.holds() ? "holds" : "MISSED") : "");
    holds = holds && row.holds();
    Json entry = {
        {"bench", bench.name}, {"what", row.what}, {"value", row.value}, {"unit", row.unit}};
    if (judged) {
      entry["bar"] = fmt::format("{} {:.4g}", sign, row.bar);
      entry["holds"] = row.holds();
    }
    json.push_back(entry);
  }
  for (const std::string& f : report.failures) fmt::print("  FAIL {}\n", f);
  fmt::print("  {:.1f} s, {:.2f} M packet events per core and second\n", seconds,
             static_cast<double>(report.packet_events) / cpu / 1e6);
  return holds;
}

}  // namespace

int command_bench(const std::string& name, uint64_t seeds, const CommonOptions& options) {
  Json json = Json::array();
  bool known = false, holds = true;
  for (const Bench& bench : benches()) {
    if (name != "all" && name != bench.name) continue;
    known = true;
    const auto begin = Clock::now();
    const double cpu = cpu_seconds();
    const BenchReport report =
        bench.run({.first_seed = options.first_seed, .seeds = seeds, .jobs = options.jobs});
    const std::chrono::duration<double> took = Clock::now() - begin;
    holds = print_report(bench, report, took.count(), cpu_seconds() - cpu, json) && holds;
    std::fflush(stdout);
  }
  if (!known) {
    fmt::print(stderr, "mr_sim: no bench '{}'; see mr_sim list\n", name);
    return 2;
  }
  if (!write_json(options.json, json)) return 2;
  return holds ? 0 : 1;
}

}  // namespace metaroce::scenarios
