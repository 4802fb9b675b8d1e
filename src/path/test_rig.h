// What the tests of this folder share: one sending path with everything it tells written down.
#pragma once

#include <initializer_list>
#include <set>
#include <vector>

#include "path/path_sender.h"
#include "wire/minifloat.h"

namespace metaroce::path {

inline constexpr uint32_t kStart = 0xFFFFFFF0u;  // the sequence space wraps inside every test
inline constexpr Duration kRtt = microseconds(100);

struct Rig final : Listener {
  struct Told {
    uint32_t seq = 0;
    uint32_t cpsn = 0;
    bool refused = false;
    bool was_lost = false;
    bool operator==(const Told&) const = default;
  };

  Settings settings;
  Slab<SentWindow> windows{2};
  PathCounters counters;
  PathSender tx{settings, windows, counters};
  Time now{seconds(1).ns};
  std::vector<Told> delivered;
  std::vector<Told> lost;
  std::set<uint32_t> decided;
  uint32_t next_cpsn = 100;
  uint32_t counter = 0;

  Rig() {
    settings.timer_tick = 0;
    tx.open(3, 1, kStart, 40000, State::kGood, kRtt);
  }

  void on_delivered(uint8_t, uint32_t seq, const SentRecord& r, bool refused,
                    bool was_lost) override {
    delivered.push_back({seq, r.cpsn, refused, was_lost});
  }
  void on_lost(uint8_t, uint32_t seq, const SentRecord& r) override {
    lost.push_back({seq, r.cpsn});
  }
  bool is_decided(uint32_t cpsn) const override { return decided.contains(cpsn); }

  uint32_t send(uint16_t size = 1000) {
    if (!tx.can_send(now, *this)) return 0;
    return tx.on_sent(now, next_cpsn++, size, SentKind::kData);
  }
  void send_many(int n) {
    for (int i = 0; i < n; ++i) send();
  }
  /// An ACK with this base that shows these offsets above the start.
  wire::AckPacket ack_packet(uint32_t base, std::initializer_list<uint32_t> shown) {
    wire::AckPacket ack;
    ack.f.counter = ++counter;
    ack.f.base = kStart + base;
    ack.f.stamp = wire::stamp_of(now - kRtt);
    for (const uint32_t s : shown) ack.map.set(s - base);
    return ack;
  }
  AckOutcome ack(uint32_t base, std::initializer_list<uint32_t> shown = {}) {
    return tx.on_ack(now, ack_packet(base, shown), *this);
  }
  /// Runs the path's timers up to `until`; answers each wish to probe with a probe.
  int probes_until(Time until) {
    int n = 0;
    while (tx.deadline() <= until) {
      now = tx.deadline();
      tx.on_timer(now, *this);
      if (tx.wants_probe()) {
        tx.on_probe_sent(now, 0);
        ++n;
      }
    }
    now = until;
    return n;
  }
  /// Runs to the next wish to probe and sends the probe; returns its sequence.
  uint32_t next_probe(TimerOutcome* outcome = nullptr) {
    TimerOutcome out;
    while (!tx.wants_probe() && tx.deadline() != kNever) {
      now = tx.deadline();
      const TimerOutcome o = tx.on_timer(now, *this);
      out.suspect |= o.suspect;
      out.unanswered |= o.unanswered;
    }
    if (outcome != nullptr) *outcome = out;
    return tx.on_probe_sent(now, 0);
  }
};

}  // namespace metaroce::path
