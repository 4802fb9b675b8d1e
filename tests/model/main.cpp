// mr_model: explicit-state model checker of the protocol core. See README.md beside this file.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

#include "tests/model/actions.h"
#include "tests/model/search.h"

namespace metaroce::model {
namespace {

constexpr int kExitClean = 0;
constexpr int kExitViolation = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNotAsExpected = 3;

struct Options {
  std::string config;
  std::string mutation;
  SearchLimits limits;
  bool list = false;
  bool trace = false;
  bool steps = false;
  bool expect = false;  // the search has to exhaust, or to find the mutation's violation
  int sends = 0;
};

void usage() {
  std::puts(
      "mr_model --config NAME | --mutation NAME [--config NAME] | --list\n"
      "  --max-states N  stop after N states\n"
      "  --sends N       allow N transmissions instead of the configuration's number\n"
      "  --trace         print the counterexample step by step\n"
      "  --steps         print how often each kind of step was taken\n"
      "  --quiet         no progress lines\n"
      "  --expect        exit 3 unless the search was exhausted (without --mutation) or found\n"
      "                  the violation the mutation is known for\n"
      "Exit: 0 no violation, 1 violation, 2 usage. With --expect: 0 as expected, 3 not.");
}

bool parse(int argc, char** argv, Options& o) {
  o.limits.progress = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--list") {
      o.list = true;
    } else if (arg == "--trace") {
      o.trace = true;
    } else if (arg == "--steps") {
      o.steps = true;
    } else if (arg == "--expect") {
      o.expect = true;
    } else if (arg == "--quiet") {
      o.limits.progress = false;
    } else if (arg == "--config" && more) {
      o.config = argv[++i];
    } else if (arg == "--mutation" && more) {
      o.mutation = argv[++i];
    } else if (arg == "--max-states" && more) {
      o.limits.max_states = std::strtoull(argv[++i], nullptr, 10);
    } else if (arg == "--sends" && more) {
      o.sends = std::atoi(argv[++i]);
    } else {
      return false;
    }
  }
  return o.list || !o.config.empty() || !o.mutation.empty();
}

void list() {
  std::puts("configurations:");
  for (const Config& c : all_configs()) {
    std::printf("  %-28s %s\n", std::string(c.name).c_str(), std::string(c.note).c_str());
  }
  std::puts("mutations (configuration, violation):");
  for (const MutationInfo& m : all_mutations()) {
    std::printf("  %-28s %s (%s, %s)\n", std::string(m.name).c_str(), std::string(m.text).c_str(),
                std::string(m.config).c_str(), std::string(m.expected).c_str());
  }
}

bool is_expected(std::string_view names, std::string_view found) {
  while (!names.empty()) {
    const std::size_t bar = names.find('|');
    if (names.substr(0, bar) == found) return true;
    if (bar == std::string_view::npos) break;
    names.remove_prefix(bar + 1);
  }
  return false;
}

int verdict(const Options& o, const MutationInfo* mutation, const SearchResult& r) {
  const bool violated = r.violation != Violation::kNone;
  if (!o.expect) return violated ? kExitViolation : kExitClean;
  const std::string_view expected = mutation == nullptr ? "none" : mutation->expected;
  const bool as_expected =
      (violated || r.exhausted) && is_expected(expected, violation_name(r.violation));
  return as_expected ? kExitClean : kExitNotAsExpected;
}

int run(const Options& o) {
  const MutationInfo* mutation = nullptr;
  if (!o.mutation.empty()) {
    mutation = find_mutation(o.mutation);
    if (mutation == nullptr) {
      std::fprintf(stderr, "no such mutation: %s\n", o.mutation.c_str());
      return kExitUsage;
    }
  }
  const std::string name = !o.config.empty() ? o.config : std::string(mutation->config);
  const Config* known = find_config(name);
  if (known == nullptr) {
    std::fprintf(stderr, "no such configuration: %s\n", name.c_str());
    return kExitUsage;
  }
  Config cfg = *known;
  if (mutation != nullptr) cfg.mutation = mutation->mutation;
  if (o.sends > 0) cfg.sends = o.sends;
  const std::clock_t begin = std::clock();
  const SearchResult r = search(cfg, o.limits);
  const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%s%s%s: %llu states, %llu transitions, depth %d, %s, violation: %s (%.1f s cpu)\n",
              name.c_str(), mutation != nullptr ? " with " : "", o.mutation.c_str(),
              static_cast<unsigned long long>(r.states),
              static_cast<unsigned long long>(r.transitions), r.depth,
              r.exhausted ? "exhausted" : "not exhausted", violation_name(r.violation), cpu_s);
  for (int i = 0; o.steps && i < kSteps; ++i) {
    std::printf("  %-14s %llu\n", step_name(static_cast<Step>(i)),
                static_cast<unsigned long long>(r.steps[static_cast<std::size_t>(i)]));
  }
  if (o.trace && r.violation != Violation::kNone) {
    std::fputs(render_trace(cfg, r).c_str(), stdout);
  }
  return verdict(o, mutation, r);
}

}  // namespace
}  // namespace metaroce::model

int main(int argc, char** argv) {
  metaroce::model::Options options;
  if (!metaroce::model::parse(argc, argv, options)) {
    metaroce::model::usage();
    return metaroce::model::kExitUsage;
  }
  if (options.list) {
    metaroce::model::list();
    return 0;
  }
  return metaroce::model::run(options);
}
