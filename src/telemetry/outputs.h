// One order in which outputs of an engine enter the rolling hash, for recorder and replay alike.
#pragma once

#include <bit>

#include "engine/engine.h"
#include "telemetry/bytes.h"

namespace metaroce::telemetry {

inline void mix_outputs(RollingHash& hash, std::span<const engine::Placement> list) {
  hash.mix(list.size());
  for (const engine::Placement& p : list) {
    hash.mix(uint64_t{p.packet} << 32 | p.payload_begin);
    hash.mix(uint64_t{p.length} << 32 | p.region);
    hash.mix(p.offset);
    hash.mix(std::bit_cast<uint64_t>(p.address));
  }
}

inline void mix_outputs(RollingHash& hash, const engine::TxRun& run) {
  hash.mix(run.from);
  hash.mix(run.to);
  hash.mix(uint64_t{run.connection} << 32 | uint64_t{run.plane} << 24 | uint64_t{run.path} << 16 |
           uint64_t{run.count} << 8 | run.trailer);
  hash.mix(static_cast<uint64_t>(run.ecn) << 8 | uint64_t{run.is_data} << 1 | run.needs_df);
  size_t at = 0;
  for (uint32_t i = 0; i < run.count; ++i) {
    hash.mix(uint64_t{run.header_length[i]} << 32 | run.payload_length[i]);
    hash.mix(run.payload[i] != nullptr);  // it may lie in the engine's own memory
    hash.mix_bytes(run.headers + at, run.header_length[i]);
    at += run.header_length[i] + run.trailer;  // the trailer is the driver's to fill
  }
}

inline void mix_outputs(RollingHash& hash, std::span<const engine::TxRun> runs) {
  hash.mix(runs.size());
  for (const engine::TxRun& run : runs) mix_outputs(hash, run);
}

inline void mix_outputs(RollingHash& hash, std::span<const engine::Completion> list) {
  hash.mix(list.size());
  for (const engine::Completion& c : list) {
    hash.mix(c.id);
    hash.mix(uint64_t{c.connection} << 32 | uint64_t{c.stream} << 16 |
             static_cast<uint64_t>(c.operation) << 8 | static_cast<uint64_t>(c.status));
    hash.mix(uint64_t{c.immediate} << 1 | c.has_immediate);
    if (c.solicited) hash.mix(1);
    if (c.invalidated) hash.mix(2);
    hash.mix(c.bytes);
  }
}

inline void mix_outputs(RollingHash& hash, std::span<const engine::ConnectionEvent> list) {
  hash.mix(list.size());
  for (const engine::ConnectionEvent& e : list) {
    hash.mix(uint64_t{e.connection} << 32 | static_cast<uint64_t>(e.kind) << 8 |
             static_cast<uint64_t>(e.status));
    hash.mix(e.peer);
  }
}

}  // namespace metaroce::telemetry
