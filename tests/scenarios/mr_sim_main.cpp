// mr_sim: runs seeded scenarios on a simulated network in virtual time.
// Exit codes: 0 everything holds, 1 a check failed, 2 wrong usage.
#include <fmt/format.h>

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "tests/oracle/command.h"
#include "tests/scenarios/commands.h"

namespace {

using namespace metaroce::scenarios;

bool parse_seeds(const std::string& text, SeedRange& out) {
  const size_t dots = text.find("..");
  try {
    size_t used = 0;
    if (dots == std::string::npos) return false;
    const std::string low = text.substr(0, dots), high = text.substr(dots + 2);
    out.first = std::stoull(low, &used);
    if (used != low.size()) return false;
    const uint64_t last = std::stoull(high, &used);
    if (used != high.size() || last < out.first) return false;
    out.count = last - out.first + 1;
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

int usage_error(const std::string& what) {
  fmt::print(stderr, "mr_sim: {}\n", what);
  return 2;
}

/// --seed N or --seeds A..B; neither leaves the range as it is.
bool take_seeds(bool one, uint64_t seed, const std::string& text, SeedRange& range) {
  if (one) range = {seed, 1};
  return text.empty() || parse_seeds(text, range);
}

void add_ops(CLI::App* ops, metaroce::oracle::OpsOptions& o) {
  ops->add_option("--program", o.program, "run this file");
  ops->add_option("--out", o.directory, "where small programs go");
  ops->add_flag("--table", o.table, "operation x fault x status; no cell may be empty");
  ops->add_flag("--verbose", o.verbose, "what was posted and how it ended");
  ops->add_flag("--last-receive", o.last_receive, "one receive at a time for all streams");
  ops->add_option("--adds", o.adds, "so many fetch-and-adds at 10 % loss, dying paths");
  ops->add_flag("!--no-small", o.keep, "do not make failing programs small");
}

void add_bench(CLI::App* bench, std::string& name, uint64_t& seeds, CommonOptions& common) {
  bench->add_option("NAME", name, "see list; 'all' runs every one")->required();
  bench->add_option("--seeds", seeds, "number of seeds (default: the bench's own)");
  bench->add_option("--seed", common.first_seed, "first seed");
}

int run_ops(metaroce::oracle::OpsOptions& options, const SeedRange& range,
            const CommonOptions& common) {
  options.first = range.first;
  options.count = range.count;
  options.jobs = common.jobs;
  options.json = common.json;
  return metaroce::oracle::command_ops(options);
}

}  // namespace

int main(int argc, char** argv) {
  // Thousands of pairs are made one after the other: their memory stays with the process.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  CLI::App app{"mr_sim: seeded scenarios on a simulated network in virtual time"};
  CommonOptions common;
  std::vector<std::string> files;
  std::string seeds_text, bench_name, out_directory = "tests/scenarios/regress";
  uint64_t seed = 0, bench_seeds = 0;
  int64_t fuzz_seconds = 60;
  auto add_common = [&](CLI::App* c) {
    c->add_option("--json", common.json, "write the figures to this file");
    c->add_option("--jobs", common.jobs, "threads (default: all cores)");
  };

  CLI::App* run = app.add_subcommand("run", "run scenario files (default: all), check them");
  run->add_option("FILE", files, "scenario files, or fuzz:SEED");
  CLI::Option* one = run->add_option("--seed", seed, "one seed");
  run->add_option("--seeds", seeds_text, "a range A..B")->excludes(one);
  run->add_flag("--verbose", common.verbose, "tally of the network and state of each path");
  add_common(run);
  CLI::App* list = app.add_subcommand("list", "the scenarios and benches there are");
  CLI::App* show = app.add_subcommand("show", "a scenario as it is read");
  show->add_option("FILE", files, "scenario file, or fuzz:SEED")->required()->expected(1);
  CLI::App* small = app.add_subcommand("shrink", "make a failing scenario small and keep it");
  small->add_option("FILE", files, "scenario file, or fuzz:SEED")->required()->expected(1);
  CLI::Option* shrink_seed = small->add_option("--seed", seed, "the seed that fails");
  small->add_option("--out", out_directory, "where NNN.toml goes");
  CLI::App* fuzz = app.add_subcommand("fuzz", "random scenarios until time is up or one fails");
  fuzz->add_option("--seconds", fuzz_seconds, "how long")->check(CLI::Range(1, 1'000'000));
  CLI::Option* fuzz_seed = fuzz->add_option("--seed", seed, "first seed (default 1)");
  add_common(fuzz);
  CLI::App* ops = app.add_subcommand("ops", "random programs of all operations against an oracle");
  metaroce::oracle::OpsOptions ops_options;
  CLI::Option* ops_seed = ops->add_option("--seed", seed, "one seed");
  ops->add_option("--seeds", seeds_text, "a range A..B (default 1..300)")->excludes(ops_seed);
  add_ops(ops, ops_options);
  add_common(ops);
  CLI::App* bench = app.add_subcommand("bench", "figures with their bars");
  add_bench(bench, bench_name, bench_seeds, common);
  add_common(bench);
  if (argc == 1) {
    fmt::print("{}", app.help());
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (run->parsed()) {
    SeedRange range;
    if (!take_seeds(one->count() > 0, seed, seeds_text, range)) {
      return usage_error("--seeds wants A..B");
    }
    return command_run(files, range, common);
  }
  if (ops->parsed()) {
    SeedRange range{1, 300};
    if (!take_seeds(ops_seed->count() > 0, seed, seeds_text, range)) {
      return usage_error("--seeds wants A..B");
    }
    return run_ops(ops_options, range, common);
  }
  if (list->parsed()) return command_list();
  if (show->parsed()) return command_show(files[0]);
  if (small->parsed())
    return command_shrink(files[0], shrink_seed->count() > 0, seed, out_directory);
  if (fuzz->parsed()) return command_fuzz(fuzz_seconds, fuzz_seed->count() > 0 ? seed : 1, common);
  if (bench->parsed()) return command_bench(bench_name, bench_seeds, common);
  return usage_error("a word is missing: run, list, show, shrink, fuzz or bench");
}
