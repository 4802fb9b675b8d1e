#include "tests/scenarios/fuzzing.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/rng.h"
#include "tests/scenarios/runner.h"

namespace metaroce::scenarios {

namespace {

constexpr unsigned kChildSeconds = 120;  // a run of virtual milliseconds that takes longer hangs

int64_t between(Rng& rng, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low) + 1));
}

template <size_t N>
const char* one_of(Rng& rng, const char* const (&words)[N]) {
  return words[rng.below(N)];
}

/// Small values often, large ones sometimes.
int64_t skewed(Rng& rng, int64_t high) {
  int64_t limit = high;
  for (uint64_t halvings = rng.below(12); halvings > 0 && limit > 1; --halvings) limit /= 2;
  return between(rng, 0, limit);
}

void random_topology(Rng& rng, Topology& t) {
  t.planes = between(rng, 1, 4);
  t.paths = between(rng, 1, 4);
  t.rate_mbps = int64_t{1'000} << rng.below(7);
  t.shared_rate = rng.below(4) == 0;
  t.delay_ns = int64_t{1'000} << rng.below(6);
  t.delay_spread_ns = rng.below(3) == 0 ? t.delay_ns : 0;
  const int64_t bdp = std::max<int64_t>(2 * t.delay_ns * t.rate_mbps / 8'000, 10'000);
  t.queue_bytes = bdp * between(rng, 1, 6) + 10'000;
  t.mark_bytes = rng.below(4) == 0 ? 0 : bdp;
  t.mtu = rng.below(2) == 0 ? 4'500 : between(rng, 1'500, 9'000);
}

Trouble random_trouble(Rng& rng, const Topology& topology) {
  static constexpr const char* kKinds[] = {"loss",    "loss",        "burst", "duplicate",
                                           "reorder", "corrupt",     "mark",  "dark",
                                           "rehash",  "port_change", "delay"};
  static constexpr const char* kDirections[] = {"both", "forward", "backward"};
  Trouble t;
  t.kind = one_of(rng, kKinds);
  t.direction = one_of(rng, kDirections);
  t.data = rng.below(6) != 0;
  t.acks = !t.data || rng.below(3) != 0;
  t.plane = rng.below(2) == 0 ? between(rng, 0, topology.planes - 1) : -1;
  if (rng.below(4) == 0) {
    t.plane = -1;
    t.path = between(rng, 0, topology.planes * topology.paths - 1);
  }
  t.at_ns = between(rng, -1, 1'000'000);
  t.for_ns = between(rng, 10'000, 2'000'000);
  t.ppm = skewed(rng, 400'000);
  t.exit_ppm = between(rng, 50'000, 1'000'000);
  t.min_ns = between(rng, 0, topology.delay_ns);
  t.max_ns = t.min_ns + skewed(rng, 4 * topology.delay_ns);
  t.every_ns = between(rng, 4 * topology.delay_ns, 200 * topology.delay_ns);
  return t;
}

Work random_work(Rng& rng) {
  static constexpr const char* kOperations[] = {"write", "write", "write_imm", "send", "send_imm"};
  static constexpr const char* kSides[] = {"a", "a", "b"};
  Work w;
  w.operation = one_of(rng, kOperations);
  w.from = one_of(rng, kSides);
  w.bytes = skewed(rng, 300'000);
  w.bytes_max = rng.below(2) == 0 ? w.bytes + skewed(rng, 300'000) : 0;
  const int64_t budget = 8'000'000 / std::max<int64_t>(4'096, std::max(w.bytes, w.bytes_max));
  w.count = between(rng, 1, std::clamp<int64_t>(budget, 1, 400));
  w.streams = between(rng, 1, 8);
  w.depth = between(rng, 1, 64);
  w.at_ns = skewed(rng, 500'000);
  w.receives = between(rng, 1, 16);
  w.receives_late_ns = rng.below(3) == 0 ? skewed(rng, 500'000) : 0;
  return w;
}

}  // namespace

Scenario random_scenario(uint64_t seed) {
  Rng rng = Rng(seed).fork("fuzz");
  Scenario s;
  s.name = fmt::format("fuzz:{}", seed);
  s.about = "drawn from a seed";
  random_topology(rng, s.topology);
  for (uint64_t n = rng.below(6); n > 0; --n) s.troubles.push_back(random_trouble(rng, s.topology));
  for (uint64_t n = 1 + rng.below(3); n > 0; --n) s.works.push_back(random_work(rng));
  s.run.memory = "real";
  // Troubles end after 3 ms; then the longest probe intervals may pass before all is well.
  s.run.limit_us = 2'000'000;
  s.run.first_seed = static_cast<int64_t>(seed);
  s.run.seeds = 1;
  s.settings.emplace_back("death_timeout", 1'000'000'000);
  // Some fold their paths at every opportunity.
  const int64_t rests[] = {0, 50'000, 1'000'000};
  s.settings.emplace_back("rest_after", rests[seed % 3]);
  // A fabric without marks speaks through the RTT: half a full queue must be more than noise.
  const int64_t queue_ns = s.topology.queue_bytes * 8'000 / s.topology.rate_mbps;
  s.settings.emplace_back("rtt_noise", std::min<int64_t>(queue_ns / 2, 100'000'000));
  return s;
}

ChildResult run_in_child(const Scenario& scenario, uint64_t seed) {
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) return {true, fmt::format("pipe: {}", std::strerror(errno))};
  const pid_t child = fork();
  if (child < 0) return {true, fmt::format("fork: {}", std::strerror(errno))};
  if (child == 0) {
    close(pipe_fds[0]);
    alarm(kChildSeconds);
    const Result result = run_checked(scenario, seed);
    if (!result.failures.empty()) {
      const std::string& text = result.failures.front();
      if (write(pipe_fds[1], text.data(), text.size()) < 0) _exit(3);
    }
    _exit(result.failures.empty() ? 0 : 1);
  }
  close(pipe_fds[1]);
  ChildResult result;
  char buffer[512];
  for (ssize_t n = 0; (n = read(pipe_fds[0], buffer, sizeof buffer)) > 0;)
    result.what.append(buffer, static_cast<size_t>(n));
  close(pipe_fds[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  if (WIFSIGNALED(status))
    result.what = WTERMSIG(status) == SIGALRM ? fmt::format("no end after {} s", kChildSeconds)
                                              : fmt::format("ended by signal {}", WTERMSIG(status));
  return result;
}

// ---- Shrinking ---------------------------------------------------------------------------------

namespace {

/// Simpler neighbours of a scenario, the boldest first.
std::vector<std::pair<std::string, Scenario>> neighbours(const Scenario& s) {
  std::vector<std::pair<std::string, Scenario>> out;
  auto offer = [&](const std::string& what, const std::function<void(Scenario&)>& change) {
    Scenario n = s;
    change(n);
    if (write_scenario(n) != write_scenario(s)) out.emplace_back(what, std::move(n));
  };
  for (size_t i = 0; i < s.troubles.size(); ++i)
    offer(fmt::format("without trouble {} ({})", i, s.troubles[i].kind), [i](Scenario& n) {
      n.troubles.erase(n.troubles.begin() + static_cast<std::ptrdiff_t>(i));
    });
  for (size_t i = 0; i < s.works.size() && s.works.size() > 1; ++i)
    offer(fmt::format("without work {}", i),
          [i](Scenario& n) { n.works.erase(n.works.begin() + static_cast<std::ptrdiff_t>(i)); });
  offer("one plane", [](Scenario& n) { n.topology.planes = 1; });
  offer("half the planes", [](Scenario& n) { n.topology.planes = (n.topology.planes + 1) / 2; });
  offer("one path", [](Scenario& n) { n.topology.paths = 1; });
  offer("half the paths", [](Scenario& n) { n.topology.paths = (n.topology.paths + 1) / 2; });
  offer("no spread of delays", [](Scenario& n) { n.topology.delay_spread_ns = 0; });
  for (size_t i = 0; i < s.works.size(); ++i) {
    const std::string of = fmt::format(" of work {}", i);
    offer("half the count" + of,
          [i](Scenario& n) { n.works[i].count = (n.works[i].count + 1) / 2; });
    offer("one less" + of,
          [i](Scenario& n) { n.works[i].count = std::max<int64_t>(1, n.works[i].count - 1); });
    offer("half the bytes" + of, [i](Scenario& n) {
      n.works[i].bytes /= 2;
      n.works[i].bytes_max /= 2;
    });
    offer("one length" + of, [i](Scenario& n) { n.works[i].bytes_max = 0; });
    offer("one stream" + of, [i](Scenario& n) { n.works[i].streams = 1; });
    offer("depth 1" + of, [i](Scenario& n) { n.works[i].depth = 1; });
    offer("at once" + of, [i](Scenario& n) { n.works[i].at_ns = 0; });
    offer("receives in time" + of, [i](Scenario& n) { n.works[i].receives_late_ns = 0; });
    offer("plain write" + of, [i](Scenario& n) { n.works[i].operation = "write"; });
  }
  for (size_t i = 0; i < s.troubles.size(); ++i) {
    const std::string of = fmt::format(" of trouble {}", i);
    offer("half the time" + of, [i](Scenario& n) { n.troubles[i].for_ns /= 2; });
    offer("half the rate" + of, [i](Scenario& n) { n.troubles[i].ppm /= 2; });
    offer("from the start" + of, [i](Scenario& n) { n.troubles[i].at_ns = 0; });
    offer("one direction" + of, [i](Scenario& n) {
      if (n.troubles[i].direction == "both") n.troubles[i].direction = "forward";
    });
  }
  return out;
}

}  // namespace

Scenario shrink(const Scenario& scenario, uint64_t seed,
                const std::function<void(const std::string&)>& note) {
  constexpr int kMaxRuns = 400;
  Scenario best = scenario;
  int runs = 0;
  for (bool smaller = true; smaller && runs < kMaxRuns;) {
    smaller = false;
    for (auto& [what, candidate] : neighbours(best)) {
      if (++runs > kMaxRuns) break;
      const ChildResult result = run_in_child(candidate, seed);
      if (!result.failed) continue;
      note(fmt::format("{}: still fails ({})", what, result.what));
      best = std::move(candidate);
      smaller = true;
      break;
    }
  }
  best.run.first_seed = static_cast<int64_t>(seed);
  best.run.seeds = 1;
  return best;
}

}  // namespace metaroce::scenarios
