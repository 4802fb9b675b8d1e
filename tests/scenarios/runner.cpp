#include "tests/scenarios/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/assert.h"
#include "base/settings.h"
#include "tests/pair/pair.h"
#include "tests/scenarios/workload.h"

namespace metaroce::scenarios {

using pair::Impairment;
using pair::ImpairmentKind;

namespace {

constexpr uint64_t kWarmId = ~0ull;
constexpr uint16_t kFirstNewPort = 20'000;  // for port changes: below what engines draw
constexpr int64_t kAfterwards = 40;         // RTTs that run on after the work: late copies arrive

class Runner {
 public:
  Runner(const Scenario& scenario, uint64_t seed, const RunOptions& options)
      : scenario_(scenario),
        options_(options),
        seed_(seed),
        workload_(scenario, seed),
        pair_(config()) {}

  Result run();

 private:
  pair::PairConfig config() const;
  void add_troubles(bool from_start);
  void add_trouble(const Trouble& t, uint64_t index);
  void change_ports(const Trouble& t, Time at, Time end);
  bool warm_up();
  void sample();
  void finish();

  const Scenario& scenario_;
  RunOptions options_;
  uint64_t seed_;
  Workload workload_;
  pair::Pair pair_;
  Result result_;
  Time start_{0};
  uint16_t next_port_ = kFirstNewPort;
  std::map<uint8_t, Time> dead_since_;
};

pair::PairConfig Runner::config() const {
  pair::PairConfig c;
  const Topology& t = scenario_.topology;
  c.seed = seed_;
  c.network.planes = static_cast<uint32_t>(t.planes);
  c.network.rate_bps = static_cast<uint64_t>(t.rate_mbps) * 1'000'000;
  c.network.shared_rate = t.shared_rate;
  c.network.delay = nanoseconds(t.delay_ns);
  c.network.delay_spread = nanoseconds(t.delay_spread_ns);
  c.network.queue_bytes = static_cast<uint64_t>(t.queue_bytes);
  c.network.mark_bytes = static_cast<uint64_t>(t.mark_bytes);
  c.network.mtu = static_cast<uint32_t>(t.mtu);
  c.settings.paths_per_plane = static_cast<uint32_t>(t.paths);
  c.settings.max_active_paths = static_cast<uint32_t>(t.planes * t.paths) + 8;
  c.settings.initial_rtt = std::max<int64_t>(2 * t.delay_ns, 1'000);
  for (const auto& [name, value] : scenario_.settings) {
    const auto set = set_setting(c.settings, name, std::to_string(value));
    MR_ASSERT(set.has_value());
  }
  c.real_memory = scenario_.run.memory == "real";
  workload_.size_memory(c);
  c.region_bytes = std::max(c.region_bytes, static_cast<uint64_t>(scenario_.run.warm_bytes) + 1);
  c.longest_message =
      std::max(c.longest_message, static_cast<uint64_t>(scenario_.run.warm_bytes));
  return c;
}

void Runner::add_troubles(bool from_start) {
  if (options_.twin) return;
  uint64_t index = 0;
  for (const Trouble& t : scenario_.troubles) {
    if ((t.at_ns < 0) == from_start) add_trouble(t, index);
    ++index;
  }
}

void Runner::add_trouble(const Trouble& t, uint64_t index) {
  Impairment i;
  const bool known = trouble_kind(t.kind, i.kind);
  MR_ASSERT(known);
  i.direction = t.direction == "both"      ? pair::Direction::kBoth
                : t.direction == "forward" ? pair::Direction::kForward
                                           : pair::Direction::kBackward;
  i.data = t.data;
  i.acks = t.acks;
  i.plane = static_cast<int>(t.plane);
  int64_t at = std::max<int64_t>(t.at_ns, 0);
  if (t.at_spread_ns > 0)
    at += static_cast<int64_t>(Rng(seed_).fork("trouble", index).below(
        static_cast<uint64_t>(t.at_spread_ns) + 1));
  i.begin = pair_.now() + nanoseconds(at);
  if (t.for_ns > 0) i.end = i.begin + nanoseconds(t.for_ns);
  i.probability = pair::per_million(static_cast<uint64_t>(t.ppm));
  i.exit = pair::per_million(static_cast<uint64_t>(t.exit_ppm));
  i.min = nanoseconds(t.min_ns);
  i.max = nanoseconds(t.max_ns);
  i.period = nanoseconds(t.every_ns);
  i.value = static_cast<uint32_t>(t.value);
  if (i.kind == ImpairmentKind::kPortChange) {
    change_ports(t, i.begin, i.end);
  } else if (t.path < 0) {
    pair_.network().add(i);
  } else {
    for (int side = 0; side < 2; ++side) {
      if (i.direction != pair::Direction::kBoth && static_cast<int>(i.direction) != side) continue;
      for (const engine::PathStatus& path : pair_.paths(side)) {
        if (path.id != t.path) continue;
        Impairment one = i;
        one.direction = static_cast<pair::Direction>(side);
        one.plane = path.plane;
        one.port = path.source_port;
        pair_.network().add(one);
      }
    }
  }
}

void Runner::change_ports(const Trouble& t, Time at, Time end) {
  pair_.at(at, [this, &t, at, end] {
    if (at >= end || workload_.done()) return;
    for (const engine::PathStatus& path : pair_.paths(0)) {
      if (t.path >= 0 && path.id != t.path) continue;
      if (t.plane >= 0 && path.plane != t.plane) continue;
      if (pair_.change_port(path.id, next_port_++)) ++result_.port_changes;
    }
    if (t.every_ns > 0) change_ports(t, at + nanoseconds(t.every_ns), end);
  });
}

bool Runner::warm_up() {
  if (scenario_.run.warm_bytes == 0) return true;
  bool done = false;
  pair_.on_completion = [&done](int, const engine::Completion& c) { done |= c.id == kWarmId; };
  // A stream of its own, with an even number: this side opens it or an agreement does.
  const Status status = pair_.write(0, 254, kWarmId, 1,
                                    static_cast<uint64_t>(scenario_.run.warm_bytes));
  if (status != Status::kOk) return false;
  const bool ok = pair_.run_until([&done] { return done; },
                                  microseconds(scenario_.run.limit_us));
  pair_.on_completion = nullptr;
  return ok;
}

void Runner::sample() {
  for (const engine::PathStatus& path : pair_.paths(0)) {
    const auto known = dead_since_.find(path.id);
    if (path.state == engine::PathState::kDead) {
      if (known == dead_since_.end()) dead_since_.emplace(path.id, pair_.now());
    } else if (path.state == engine::PathState::kGood && known != dead_since_.end()) {
      const int64_t dead = (pair_.now() - known->second).ns;
      result_.longest_dead_ns = std::max(result_.longest_dead_ns, dead);
      dead_since_.erase(known);
    }
  }
  if (!workload_.done())
    pair_.at(pair_.now() + nanoseconds(std::max<int64_t>(result_.rtt_ns / 4, 1)),
             [this] { sample(); });
}

uint64_t deaths_of(pair::Pair& pair) {
  uint64_t deaths = 0;
  for (const engine::PathStatus& path : pair.paths(0)) deaths += path.counters.deaths;
  return deaths;
}

Result Runner::run() {
  result_.rtt_ns = 2 * scenario_.topology.delay_ns;
  add_troubles(true);
  const Duration limit = microseconds(scenario_.run.limit_us);
  result_.connected = pair_.connect(std::max(limit, milliseconds(100)));
  if (!result_.connected || !warm_up()) {
    result_.failures.push_back(result_.connected ? "the warm-up did not end"
                                                 : "the connection was not set up");
    result_.hash = pair_.hash();
    return result_;
  }
  engine::ConnectionStatus status;
  if (pair_.engine(0).connection_status(pair_.connection(0), status) && status.payload > 0)
    result_.useful_packets = workload_.useful_packets(status.payload);
  start_ = pair_.now();
  result_.work_began_ns = start_.ns;
  const pair::Tally before = pair_.network().tally();
  const uint64_t deaths_before = deaths_of(pair_);
  add_troubles(false);
  if (options_.watch_plane >= 0)
    pair_.network().watch_plane(static_cast<uint32_t>(options_.watch_plane),
                                start_ + nanoseconds(options_.watch_from_ns));
  workload_.start(pair_);
  if (options_.sample_paths) sample();
  result_.completed = pair_.run_until(
      [this] { return workload_.done() || (pair_.lost(0) && pair_.lost(1)); }, limit);
  result_.completed =
      result_.completed && workload_.done() && pair_.counts(0).failed + pair_.counts(1).failed == 0;
  result_.duration_ns = (workload_.done() ? workload_.last() - start_ : pair_.now() - start_).ns;
  result_.tally = pair_.network().tally().since(before);
  result_.deaths = deaths_of(pair_) - deaths_before;
  finish();
  return result_;
}

void Runner::finish() {
  result_.bytes = workload_.bytes();
  for (int side = 0; side < 2; ++side) result_.paths[side] = pair_.paths(side);
  pair_.run_for(nanoseconds(kAfterwards * result_.rtt_ns));
  result_.lost = pair_.lost(0) || pair_.lost(1);
  result_.watch = pair_.network().watched();
  result_.packet_events = pair_.packet_events();
  result_.hash = pair_.hash();
  auto& failures = result_.failures;
  if (!scenario_.checks.lost)
    for (const std::string& f : workload_.failures()) failures.push_back(f);
  for (int side = 0; side < 2; ++side) {
    const pair::SideCounts& c = pair_.counts(side);
    if (c.wrong_bytes > 0)
      failures.push_back(fmt::format("side {}: {} wrong bytes placed", side, c.wrong_bytes));
    if (c.stray_placements > 0)
      failures.push_back(fmt::format("side {}: {} placements outside the memory given", side,
                                     c.stray_placements));
  }
  if (!pair_.guards_intact()) failures.push_back("memory around a buffer was written");
  if (pair_.stuck()) failures.push_back("deadlines without end at one instant");
  for (const std::string& wrong : pair_.take_wrong_books()) failures.push_back(wrong);
  for (int side = 0; side < 2; ++side) {  // MR-TEL-018: the network counts for itself
    const pair::Tally tally = pair_.network().tally(side);
    const uint64_t sent = pair_.engine(side).totals().endpoint.tx_datagrams;
    const uint64_t got = pair_.engine(1 - side).totals().endpoint.rx_datagrams;
    if (sent != tally.sent)
      failures.push_back(fmt::format("side {}: tx_datagrams = packets into the network: {} != {}",
                                     side, sent, tally.sent));
    if (got != tally.delivered)
      failures.push_back(fmt::format("side {}: rx_datagrams = packets out of the network: {} != {}",
                                     1 - side, got, tally.delivered));
  }
  if (result_.completed && scenario_.run.warm_bytes == 0) workload_.verify(pair_, failures);
}

}  // namespace

double Result::sent_per_useful() const {
  if (useful_packets == 0) return 0;
  const uint64_t sent = tally.data_new + tally.data_repairs + tally.data_copies + tally.probes;
  return static_cast<double>(sent) / static_cast<double>(useful_packets);
}

double Result::gbps() const {
  return duration_ns <= 0 ? 0
                          : static_cast<double>(bytes) * 8 / static_cast<double>(duration_ns);
}

Result run_once(const Scenario& scenario, uint64_t seed, const RunOptions& options) {
  return Runner(scenario, seed, options).run();
}

namespace {

void above(Result& r, const char* what, double value, double bound) {
  if (bound >= 0 && value > bound)
    r.failures.push_back(fmt::format("{}: {:.4g}, at most {:.4g}", what, value, bound));
}

void compare_with_twin(const Scenario& scenario, uint64_t seed, Result& r) {
  const Checks& c = scenario.checks;
  if (!r.completed || (c.goodput_ratio_min < 0 && c.extra_rtt_max < 0)) return;
  const Result twin = run_once(scenario, seed, {.twin = true});
  if (!twin.completed) {
    r.failures.push_back("the twin without troubles did not complete");
    return;
  }
  const double ratio =
      static_cast<double>(twin.duration_ns) / static_cast<double>(r.duration_ns);
  if (c.goodput_ratio_min >= 0 && ratio < c.goodput_ratio_min)
    r.failures.push_back(fmt::format("goodput / twin: {:.4f}, at least {:.4f}", ratio,
                                     c.goodput_ratio_min));
  above(r, "later than the twin, RTT",
        static_cast<double>(r.duration_ns - twin.duration_ns) / static_cast<double>(r.rtt_ns),
        c.extra_rtt_max);
}

}  // namespace

Result run_checked(const Scenario& scenario, uint64_t seed) {
  const Checks& c = scenario.checks;
  Result r = run_once(scenario, seed, {.sample_paths = c.dead_rtt_max >= 0});
  if (!r.connected) return r;
  if (c.complete && !r.completed)
    r.failures.push_back(fmt::format("not complete after {} us", scenario.run.limit_us));
  if (r.lost != c.lost)
    r.failures.push_back(c.lost ? "the connection should have been lost"
                                : "the connection was lost");
  const double rtt = static_cast<double>(r.rtt_ns);
  above(r, "duration, RTT", static_cast<double>(r.duration_ns) / rtt, c.duration_rtt_max);
  above(r, "packets sent / useful", r.sent_per_useful(), c.sent_per_useful_max);
  above(r, "spurious repairs", static_cast<double>(r.tally.spurious_repairs),
        static_cast<double>(c.spurious_max));
  const uint64_t events = std::max<uint64_t>(1, r.tally.rehashes + r.port_changes);
  above(r, "spurious repairs per event",
        static_cast<double>(r.tally.spurious_repairs) / static_cast<double>(events),
        c.spurious_per_event_max);
  above(r, "paths declared dead", static_cast<double>(r.deaths),
        static_cast<double>(c.deaths_max));
  above(r, "longest time dead, RTT", static_cast<double>(r.longest_dead_ns) / rtt,
        c.dead_rtt_max);
  const uint64_t drops = r.tally.drops();
  if (c.min_drops >= 0 && drops < static_cast<uint64_t>(c.min_drops))
    r.failures.push_back(fmt::format("only {} packets dropped: the trouble did not bite", drops));
  compare_with_twin(scenario, seed, r);
  return r;
}

}  // namespace metaroce::scenarios
