#include "tests/oracle/command.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/oracle/adds.h"

namespace metaroce::oracle {

namespace {

/// What a process tells its parent; it lies in memory that both see.
struct Report {
  uint64_t seed = 0;  ///< that runs, or failed
  bool failed = false;
  char what[400] = {};
  uint64_t runs = 0;
  uint64_t operations = 0;
  uint64_t fewest = ~0ull;  ///< operations of one program
  uint64_t packets = 0;
  Table table;
};

struct Total {
  Report sum;
  std::vector<std::pair<uint64_t, std::string>> failures;
};

constexpr uint64_t kBatch = 250;   // seeds of one process
constexpr unsigned kSeconds = 60;  // for one seed
constexpr size_t kMostFailures = 3;

Program program_of(const OpsOptions& options, uint64_t seed) {
  return options.last_receive ? last_receive_program(seed) : random_program(seed);
}

void work(const OpsOptions& options, Report& report, uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    report.seed = seed;
    alarm(kSeconds);
    const Outcome out = run_program(program_of(options, seed));
    ++report.runs;
    report.operations += out.operations;
    report.fewest = std::min(report.fewest, out.operations);
    report.packets += out.packets;
    report.table.add(out.table);
    if (out.differences.empty()) continue;
    report.failed = true;
    std::strncpy(report.what, out.differences.front().c_str(), sizeof report.what - 1);
    return;
  }
}

/// A pool of processes, each with a range of seeds.
class Swarm {
 public:
  Swarm(const OpsOptions& options, unsigned jobs)
      : options_(options),
        next_(options.first),
        end_(options.first + options.count),
        workers_(jobs) {
    void* memory = mmap(nullptr, sizeof(Report) * jobs, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    reports_ = static_cast<Report*>(memory);
  }
  ~Swarm() { munmap(reports_, sizeof(Report) * workers_.size()); }

  Total run() {
    for (;;) {
      for (size_t i = 0; i < workers_.size(); ++i) {
        const bool more = next_ < end_ || !left_.empty();
        const bool on = total_.failures.size() < kMostFailures;
        if (workers_[i].pid == 0 && more && on) start(i);
      }
      int status = 0;
      const pid_t pid = waitpid(-1, &status, 0);
      if (pid < 0) return std::move(total_);
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i].pid == pid) finish(i, status);
      }
    }
  }

 private:
  struct Worker {
    pid_t pid = 0;
    uint64_t end = 0;
  };

  void start(size_t i) {
    uint64_t first = next_;
    uint64_t end = std::min(next_ + kBatch, end_);
    if (!left_.empty()) {
      first = left_.back().first;
      end = left_.back().second;
      left_.pop_back();
    } else {
      next_ = end;
    }
    reports_[i] = Report{};
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      work(options_, reports_[i], first, end - first);
      _exit(0);
    }
    workers_[i] = {pid, end};
  }

  void finish(size_t i, int status) {
    const Report& r = reports_[i];
    Report& sum = total_.sum;
    sum.runs += r.runs;
    sum.operations += r.operations;
    sum.fewest = std::min(sum.fewest, r.fewest);
    sum.packets += r.packets;
    sum.table.add(r.table);
    std::string what = r.failed ? r.what : "";
    if (WIFSIGNALED(status)) what = fmt::format("ended by signal {}", WTERMSIG(status));
    if (!what.empty()) {
      total_.failures.emplace_back(r.seed, what);
      if (r.seed + 1 < workers_[i].end) left_.emplace_back(r.seed + 1, workers_[i].end);
    }
    workers_[i].pid = 0;
  }

  const OpsOptions& options_;
  uint64_t next_;
  uint64_t end_;
  std::vector<std::pair<uint64_t, uint64_t>> left_;  ///< of processes that ended early
  std::vector<Worker> workers_;
  Report* reports_;
  Total total_;
};

/// Makes it small and writes it down; returns the file.
std::string keep_small(const Program& program, const std::string& directory) {
  const ChildOutcome before = run_in_child(program);
  if (!before.failed) return "";
  const Program small = shrink(program, 1'500);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::string file = fmt::format("{}/seed_{}.ops", directory, program.seed);
  std::ofstream out(file);
  out << "# " << run_in_child(small).what.substr(0, 200) << "\n" << write_program(small);
  return out.good() ? fmt::format("{} ({} steps)", file, small.steps.size()) : "";
}

int run_one(const Program& program, const OpsOptions& options) {
  const Outcome out = run_program(program, options.verbose);
  if (options.verbose) fmt::print("{}", out.trace);
  for (const std::string& d : out.differences) fmt::print("{}\n", d);
  fmt::print("{} operations, {} packets, {} us, hash {:016x}: {}\n", out.operations, out.packets,
             out.virtual_ns / 1'000, out.hash, out.differences.empty() ? "ok" : "DIFFERENT");
  return out.differences.empty() ? 0 : 1;
}

bool write_json(const std::string& file, const Total& total, double ms) {
  nlohmann::ordered_json json = {{"seeds", total.sum.runs},
                                 {"operations", total.sum.operations},
                                 {"fewest_operations", total.sum.fewest},
                                 {"packets", total.sum.packets},
                                 {"ms_per_seed", ms}};
  for (const auto& [seed, what] : total.failures) {
    json["failures"].push_back({{"seed", seed}, {"what", what}});
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCauses; ++c) {
      for (int s = 0; s < kStatuses; ++s) {
        const uint64_t n = total.sum.table.cell[r][c][s];
        if (n == 0) continue;
        json["table"].push_back(
            {r < kRequestKinds ? to_string(static_cast<StepKind>(r)) : "receive",
             to_string(static_cast<Cause>(c)), metaroce::to_string(static_cast<Status>(s)), n});
      }
    }
  }
  std::ofstream out(file);
  out << json.dump(1) << "\n";
  return out.good();
}

}  // namespace

int command_ops(const OpsOptions& options) {
  if (!options.program.empty()) {
    const auto program = read_program(options.program);
    if (!program) {
      fmt::print(stderr, "mr_sim: {}\n", program.error());
      return 2;
    }
    return run_one(*program, options);
  }
  if (options.adds > 0) {
    const AddsOutcome out = run_adds(options.adds, options.first);
    fmt::print("{} fetch-and-adds, {} packets, {} lost, {} paths died, {} us: {}\n", options.adds,
               out.packets, out.lost, out.deaths, out.virtual_ns / 1'000,
               out.wrong.empty() ? "sum exact, each old value once" : out.wrong);
    return out.wrong.empty() ? 0 : 1;
  }
  if (options.verbose) return run_one(program_of(options, options.first), options);
  const auto cores = std::max(1u, std::thread::hardware_concurrency());
  const auto jobs = static_cast<unsigned>(
      std::min<uint64_t>(options.jobs > 0 ? options.jobs : cores, options.count));
  const auto begin = std::chrono::steady_clock::now();
  const Total total = Swarm(options, jobs).run();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const double ms =
      took.count() * jobs / static_cast<double>(std::max<uint64_t>(1, total.sum.runs));
  for (const auto& [seed, what] : total.failures) {
    fmt::print("FAIL ops seed {}: {}\n", seed, what);
    std::fflush(stdout);
    if (!options.keep) continue;
    const std::string file = keep_small(program_of(options, seed), options.directory);
    if (!file.empty()) fmt::print("     small: {}\n", file);
  }
  if (!options.json.empty() && !write_json(options.json, total, ms)) return 2;
  bool good = total.failures.empty();
  if (options.table) {
    const std::string wrong = wrong_cells(total.sum.table);
    fmt::print("{}{}", print_table(total.sum.table), wrong);
    good = good && wrong.empty();
  }
  fmt::print("{} seeds, {} operations (fewest {}), {} packets, {:.2f} ms a seed and process: {}\n",
             total.sum.runs, total.sum.operations, total.sum.fewest, total.sum.packets, ms,
             total.failures.empty() ? "no difference"
                                    : fmt::format("{} seeds differ", total.failures.size()));
  return good ? 0 : 1;
}

}  // namespace metaroce::oracle
