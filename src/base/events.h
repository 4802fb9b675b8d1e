// Events of the engine, declared once: kinds, fields, meaning. The engine hands them to a sink that
// is injected; what a sink makes of them (counters, traces) is telemetry's.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace metaroce {

// name, names of the three numbers ("" = unused), meaning. The names are those of traces.
#define MR_EVENTS(X)                                                                              \
  X(connection_state, "from", "to", "status", "a connection changed its state")                  \
  X(path_state, "from", "to", "reason", "a path changed its state")                              \
  X(packet_sent, "seq", "cpsn", "bytes", "a packet with a CPSN went out")                        \
  X(probe_sent, "seq", "ip_size", "stream", "a probe went out; ip_size 0: not padded")           \
  X(ack_sent, "counter", "base", "refused", "an acknowledgement went out")                       \
  X(packet_received, "seq", "cpsn", "fate", "a sequenced packet came in")                        \
  X(ack_received, "counter", "base", "acked", "an acknowledgement came in; acked: sequences new") \
  X(packet_lost, "seq", "cpsn", "by_gap", "a sequence was judged lost")                          \
  X(packet_late, "seq", "cpsn", "", "a sequence judged lost arrived after all")                  \
  X(packet_dropped, "reason", "", "", "a packet changed nothing (spec/10, drop reasons)")        \
  X(packet_refused, "seq", "cpsn", "reason", "we refused a packet (spec/10, refusal reasons)")   \
  X(refusal_heard, "seq", "cpsn", "reason", "the peer refused a packet")                         \
  X(window_cut, "before", "after", "marks", "a path's window shrank; marks 0: for loss")         \
  X(network_hint, "hint", "value", "", "the driver told what the network said")                  \
  X(pmtu_changed, "before", "after", "", "another packet size is in use on a path")              \
  X(port_changed, "before", "after", "epoch", "a path got another source port")                  \
  X(backstop, "cpsn", "", "", "the backstop timer sent the oldest packet again")                 \
  X(stall_begin, "reason", "", "", "work waits and nothing may be sent")                         \
  X(stall_end, "reason", "ns", "", "what was stalled goes on")                                    \
  X(key_updated, "generation", "packets", "", "what is sent is sealed under the next key")

enum class EventKind : uint8_t {
#define X(name, a, b, c, meaning) name,
  MR_EVENTS(X)
#undef X
  kCount
};

struct Event {
  Time time;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  uint32_t connection = 0;  ///< handle, 0: none
  EventKind kind = EventKind::kCount;
  uint8_t path = 0xFF;      ///< 0xFF: none
};

/// Hears every event, on the engine's thread, inside its calls: it must not call the engine.
class EventSink {
 public:
  virtual void on_event(const Event& event) = 0;

 protected:
  ~EventSink() = default;
};

struct EventInfo {
  const char* name;
  const char* field[3];  ///< "" where the kind has none
  const char* meaning;
};

inline constexpr EventInfo kEventInfo[] = {
#define X(name, a, b, c, meaning) {#name, {a, b, c}, meaning},
    MR_EVENTS(X)
#undef X
};

inline constexpr const EventInfo& info_of(EventKind kind) {
  return kEventInfo[static_cast<size_t>(kind)];
}

/// Where the engine's folders throw their events. Without a sink it costs a branch.
class EventSource {
 public:
  void set_sink(EventSink* sink) { sink_ = sink; }
  bool heard() const { return sink_ != nullptr; }
  void set_time(Time now) { now_ = now; }
  Time now() const { return now_; }
  void emit(EventKind kind, uint32_t connection, uint8_t path, uint64_t a, uint64_t b = 0,
            uint64_t c = 0) {
    if (sink_ != nullptr) [[unlikely]] {
      send(kind, connection, path, a, b, c);
    }
  }

 private:
  [[gnu::noinline]] void send(EventKind kind, uint32_t connection, uint8_t path, uint64_t a,
                              uint64_t b, uint64_t c) {
    Event e;
    e.time = now_;
    e.a = a;
    e.b = b;
    e.c = c;
    e.connection = connection;
    e.kind = kind;
    e.path = path;
    sink_->on_event(e);
  }
  EventSink* sink_ = nullptr;
  Time now_{0};
};

}  // namespace metaroce
