// The calls of an engine that set something and have nothing to do with the way of a packet: one
// struct and one function for those who record them and those who make them again.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "engine/api.h"

namespace metaroce::telemetry {

struct Tune {
  enum class What : uint8_t {
    kStreamOptions,  ///< a: retries, b: in order, c: shared queue
    kResetStream,
    kDrainStream,
    kReopenStream,
    kDomain,         ///< a: domain
    kCreateQueue,
    kDestroyQueue,   ///< a: queue
    kArmQueue,       ///< a: queue, b: count
    kWindow,         ///< a: region, b: offset, c: length, d: rights, e: domain
    kCount
  };
  What what = What::kCount;
  engine::ConnectionHandle connection = 0;
  uint16_t stream = 0;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  uint64_t d = 0;
  uint64_t e = 0;
};

/// What came of it: a status in the low 32 bits, or (bit 63 set) index or id << 32 | key.
inline constexpr uint64_t kTuneValue = uint64_t{1} << 63;
constexpr Status status_of(uint64_t result) {
  return (result & kTuneValue) != 0 ? Status::kOk : static_cast<Status>(result);
}

template <class AnyEngine>
uint64_t apply(AnyEngine& engine, Time now, const Tune& t) {
  Status status = Status::kInvalid;
  switch (t.what) {
    case Tune::What::kStreamOptions:
      status = engine.set_stream_options(
          t.connection, t.stream,
          {static_cast<uint8_t>(t.a), t.b != 0, static_cast<uint32_t>(t.c)});
      break;
    case Tune::What::kResetStream:
      status = engine.reset_stream(now, t.connection, t.stream);
      break;
    case Tune::What::kDrainStream:
      status = engine.drain_stream(now, t.connection, t.stream);
      break;
    case Tune::What::kReopenStream:
      status = engine.reopen_stream(t.connection, t.stream);
      break;
    case Tune::What::kDomain:
      status = engine.set_domain(t.connection, static_cast<uint32_t>(t.a));
      break;
    case Tune::What::kCreateQueue: {
      const auto id = engine.create_shared_queue();
      if (id) return kTuneValue | uint64_t{*id} << 32;
      status = id.error();
      break;
    }
    case Tune::What::kDestroyQueue:
      status = engine.destroy_shared_queue(static_cast<uint32_t>(t.a));
      break;
    case Tune::What::kArmQueue:
      status = engine.arm_shared_queue(static_cast<uint32_t>(t.a), static_cast<uint32_t>(t.b));
      break;
    case Tune::What::kWindow: {
      const auto w = engine.regions().add_window(static_cast<uint32_t>(t.a), t.b, t.c,
                                                 static_cast<uint8_t>(t.d),
                                                 static_cast<uint32_t>(t.e));
      if (w) return kTuneValue | uint64_t{w->index} << 32 | w->key;
      status = w.error();
      break;
    }
    case Tune::What::kCount:
      break;
  }
  return static_cast<uint64_t>(status);
}

}  // namespace metaroce::telemetry
