#include "tests/oracle/adds.h"

#include <fmt/format.h>

#include <vector>

#include "tests/pair/pair.h"

namespace metaroce::oracle {

namespace {

constexpr uint32_t kStreams = 8;
constexpr uint32_t kDepth = 64;

pair::PairConfig config(uint64_t seed) {
  pair::PairConfig c;
  c.seed = seed;
  c.network.planes = 2;
  c.settings.dead_probe_max = 2'000'000;
  c.settings.max_active_paths = 40;
  c.region_bytes = 64;
  c.longest_message = 64;
  return c;
}

/// Every path in turn dies for a while, each at times of its own.
void add_troubles(pair::Pair& pair, int64_t until_ns) {
  pair::Impairment loss;
  loss.kind = pair::ImpairmentKind::kLoss;
  loss.probability = pair::per_million(100'000);
  pair.network().add(loss);
  const auto paths = pair.paths(0);
  uint32_t next = 0;
  for (int64_t at = pair.now().ns + 500'000; at < until_ns; at += 3'000'000) {
    pair::Impairment dark;
    dark.kind = pair::ImpairmentKind::kDark;
    dark.plane = paths[next % paths.size()].plane;
    dark.port = paths[next % paths.size()].source_port;
    dark.begin = Time{at};
    dark.end = Time{at + 4'000'000};
    pair.network().add(dark);
    ++next;
  }
}

}  // namespace

AddsOutcome run_adds(uint64_t count, uint64_t seed) {
  AddsOutcome out;
  pair::Pair pair(config(seed));
  alignas(8) std::byte memory[64] = {};
  const auto region =
      pair.engine(1).regions().add_at(memory, sizeof memory, memory::access::kRemoteAtomic, 0x1000);
  if (!region || !pair.connect()) {
    out.wrong = "no connection";
    return out;
  }
  add_troubles(pair, pair.now().ns + static_cast<int64_t>(count) * 3'000 + 20'000'000);
  std::vector<bool> seen(count, false);
  uint64_t posted = 0, done = 0;
  pair.on_completion = [&](int, const engine::Completion& c) {
    ++done;
    if (c.status != Status::kOk) {
      out.wrong = fmt::format("addition {} ended as {}", c.id, to_string(c.status));
    } else if (c.old_value >= count || seen[c.old_value]) {
      out.wrong = fmt::format("old value {} came twice", c.old_value);
    } else {
      seen[c.old_value] = true;
    }
  };
  while (done < count && out.wrong.empty() && !pair.lost(0)) {
    for (; posted < count && posted - done < kStreams * kDepth; ++posted) {
      engine::WorkRequest w;
      w.id = posted;
      w.connection = pair.connection(0);
      w.stream = static_cast<uint16_t>(1 + posted % kStreams);
      w.operation = engine::Operation::kFetchAdd;
      w.remote_address = 0x1000 + 8;
      w.remote_key = region->key;
      w.operand = 1;
      Status status = Status::kOk;
      if (pair.engine(0).post(pair.now(), {&w, 1}, status) != 1) break;
    }
    pair.poll(0);
    pair.run_for(microseconds(10));
  }
  uint64_t value = 0;
  std::memcpy(&value, memory + 8, 8);
  if (out.wrong.empty() && pair.lost(0)) out.wrong = "the connection ended";
  if (out.wrong.empty() && value != count) out.wrong = fmt::format("the sum is {}", value);
  out.packets = pair.packet_events();
  out.lost = pair.network().tally().drops();
  for (const engine::PathStatus& p : pair.paths(0)) out.deaths += p.counters.deaths;
  out.virtual_ns = pair.now().ns;
  return out;
}

}  // namespace metaroce::oracle
