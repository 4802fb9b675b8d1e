// The fields of a scenario, once: reading and writing both walk these lists.
#pragma once

#include <initializer_list>

#include "tests/scenarios/scenario.h"

namespace metaroce::scenarios {

inline constexpr int64_t kMaxTime = 3'600'000'000'000;
inline constexpr int64_t kMillion = 1'000'000;

template <class V>
void visit(V& v, Topology& t) {
  v.integer("planes", t.planes, 1, 16);
  v.integer("paths", t.paths, 1, 64);
  v.integer("rate_mbps", t.rate_mbps, 1, 3'200'000);
  v.boolean("shared_rate", t.shared_rate);
  v.integer("delay_ns", t.delay_ns, 100, kMaxTime);
  v.integer("delay_spread_ns", t.delay_spread_ns, 0, kMaxTime);
  v.integer("queue_bytes", t.queue_bytes, 10'000, 1 << 30);
  v.integer("mark_bytes", t.mark_bytes, 0, 1 << 30);
  v.integer("mtu", t.mtu, 1'280, 9'216);
}

template <class V>
void visit(V& v, Trouble& t) {
  v.word("kind", t.kind,
         {"loss", "burst", "duplicate", "reorder", "corrupt", "mark", "dark", "rehash", "delay",
          "port_change", "mtu"});
  v.word("direction", t.direction, {"both", "forward", "backward"});
  v.boolean("data", t.data);
  v.boolean("acks", t.acks);
  v.integer("plane", t.plane, -1, 15);
  v.integer("path", t.path, -1, 255);
  v.integer("at_ns", t.at_ns, -1, kMaxTime);
  v.integer("for_ns", t.for_ns, 0, kMaxTime);
  v.integer("at_spread_ns", t.at_spread_ns, 0, kMaxTime);
  v.integer("ppm", t.ppm, 0, kMillion);
  v.integer("exit_ppm", t.exit_ppm, 0, kMillion);
  v.integer("min_ns", t.min_ns, 0, kMaxTime);
  v.integer("max_ns", t.max_ns, 0, kMaxTime);
  v.integer("every_ns", t.every_ns, 0, kMaxTime);
  v.integer("value", t.value, 0, 65'535);
}

template <class V>
void visit(V& v, Work& w) {
  v.word("operation", w.operation, {"write", "write_imm", "send", "send_imm"});
  v.word("from", w.from, {"a", "b"});
  v.integer("bytes", w.bytes, 0, 1ll << 31);
  v.integer("bytes_max", w.bytes_max, 0, 1ll << 31);
  v.integer("count", w.count, 1, kMillion);
  v.integer("streams", w.streams, 1, 64);
  v.integer("depth", w.depth, 1, 512);
  v.integer("at_ns", w.at_ns, 0, kMaxTime);
  v.integer("receives", w.receives, 1, 64);
  v.integer("receives_late_ns", w.receives_late_ns, 0, kMaxTime);
}

template <class V>
void visit(V& v, Checks& c) {
  v.boolean("complete", c.complete);
  v.boolean("lost", c.lost);
  v.number("goodput_ratio_min", c.goodput_ratio_min);
  v.number("extra_rtt_max", c.extra_rtt_max);
  v.number("duration_rtt_max", c.duration_rtt_max);
  v.number("sent_per_useful_max", c.sent_per_useful_max);
  v.number("spurious_per_event_max", c.spurious_per_event_max);
  v.integer("spurious_max", c.spurious_max, -1, 1 << 30);
  v.integer("deaths_max", c.deaths_max, -1, 1 << 30);
  v.number("dead_rtt_max", c.dead_rtt_max);
  v.integer("min_drops", c.min_drops, -1, 1 << 30);
}

template <class V>
void visit(V& v, Run& r) {
  v.word("memory", r.memory, {"real", "virtual"});
  v.integer("limit_us", r.limit_us, 1, kMaxTime);
  v.integer("warm_bytes", r.warm_bytes, 0, 1ll << 31);
  v.integer("first_seed", r.first_seed, 0, INT64_MAX);
  v.integer("seeds", r.seeds, 1, kMillion);
}

}  // namespace metaroce::scenarios
