// One AIMD congestion window, of a path or of a connection (MR-CC). Pure functions of their inputs.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace metaroce::congestion {

/// What all windows of a connection share.
struct Limits {
  uint64_t minimum = 4096;  ///< bytes: one packet
  uint64_t maximum = 1 << 20;
  uint32_t packet = 4096;   ///< bytes added per round in congestion avoidance
};

/// What an acknowledgement tells a window.
struct AckInfo {
  Time now;
  Duration srtt;
  uint32_t packets = 0;  ///< newly acknowledged
  uint64_t bytes = 0;
  uint32_t marked = 0;   ///< of them marked CE
  bool limited = false;  ///< the window, not the program, bounded what was in flight
};

class Window {
 public:
  /// Starts in slow start with `bytes`.
  void start(uint64_t bytes) { *this = Window{bytes}; }
  Window() = default;

  uint64_t bytes() const { return bytes_; }
  bool in_slow_start() const { return slow_start_; }
  /// Smoothed fraction of marked packets, 16-bit fixed point.
  uint32_t mark_fraction() const { return alpha_; }

  /// MR-CC: grows by what was acknowledged (slow start) or one packet a round; once a round the
  /// window is cut by half of the smoothed marked fraction.
  void on_ack(const AckInfo& ack, const Limits& limits);

  /// Loss is not congestion by itself: only with a rising RTT (MR-CC). At most one cut a round.
  void on_congestion_loss(Time now, Duration srtt, const Limits& limits);
  /// The loss that caused the last on_congestion_loss was none.
  void undo();

  /// Goes on where a window of this size stood, with a new round.
  void resume(uint64_t bytes, uint32_t mark_fraction, bool slow_start) {
    *this = Window{bytes};
    alpha_ = mark_fraction;
    slow_start_ = slow_start;
  }

  /// A path that was dead comes back with one packet.
  void restart(const Limits& limits) { start(limits.minimum); }

 private:
  explicit Window(uint64_t bytes) : bytes_(bytes) {}
  void end_round(const AckInfo& ack, const Limits& limits);

  uint64_t bytes_ = 65536;
  uint64_t before_cut_ = 0;
  Time round_start_{0};
  Time last_cut_{-(1ll << 60)};
  uint32_t alpha_ = 65536;  // the first mark after slow start halves
  uint32_t round_packets_ = 0;
  uint32_t round_marked_ = 0;
  bool round_limited_ = false;
  bool slow_start_ = true;
};

}  // namespace metaroce::congestion
