// What is left of a path while its connection rests (MR-CONN-040): what it has learned, and where
// its sequences stand. Everything else is as in a path that was just opened.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace metaroce::path {

/// Times in units of 2^20 ns, modulo 2^32 (52 days).
using CoarseTime = uint32_t;

constexpr CoarseTime coarse(Time t) { return static_cast<CoarseTime>(t.ns >> 20); }
/// The start of the unit; `now` is not earlier than the time meant.
constexpr Time from_coarse(Time now, CoarseTime t) {
  return Time{((now.ns >> 20) - static_cast<int64_t>(coarse(now) - t)) * (int64_t{1} << 20)};
}

struct RestingPath {
  uint32_t start = 0;
  uint32_t next_seq = 0;
  uint32_t peer_base = 0;
  uint32_t ack_counter = 0;
  uint32_t loss_q16 = 0;
  uint32_t srtt = 0;  ///< ns, as those that follow
  uint32_t rttvar = 0;
  uint32_t min_rtt = 0;
  uint32_t max_rtt = 0;
  uint32_t window = 0;  ///< bytes
  uint32_t mark_fraction = 0;
  CoarseTime min_rtt_at = 0;
  CoarseTime used_at = 0;
  CoarseTime answered_at = 0;
  CoarseTime changed_at = 0;
  uint32_t rx_base = 0;
  uint16_t port = 0;
  uint16_t generation = 0;
  uint16_t pmtu = 0;
  uint16_t ce_count = 0;
  uint16_t rx_generation = 0;
  uint16_t rx_ce_count = 0;
  uint8_t plane = 0;
  uint8_t state = 0;  ///< State
  uint8_t epoch = 0;
  uint8_t rx_plane = 0;
  uint8_t late = 0;  ///< low half: as reported to us; high half: as seen by us
  uint8_t big_losses = 0;
  uint8_t told = 0;    ///< of the slot, as those that follow
  uint8_t noted = 0;
  uint8_t change = 0;
  bool rtt_known : 1 = false;
  bool ack_seen : 1 = false;
  bool marks_seen : 1 = false;
  bool slow_start : 1 = false;
  bool rx_open : 1 = false;
  bool rx_last_was_ce : 1 = false;

  bool operator==(const RestingPath&) const = default;
};

static_assert(sizeof(RestingPath) <= 88);

}  // namespace metaroce::path
