// What a path keeps while its connection is at rest: nothing is outstanding, owed or in doubt. The
// full state of a path (PathSender, PathReceiver) is needed only while packets are on their way.
#pragma once

#include <cstdint>

namespace metaroce::path {

/// Times in units of 2^20 ns modulo 2^32 (52 days), durations in ns up to 4.29 s.
struct RestedPath {
  // sending
  uint32_t start = 0;
  uint32_t next_seq = 0;
  uint32_t peer_base = 0;
  uint32_t ack_counter = 0;
  uint32_t loss_q16 = 0;
  uint32_t srtt = 0;
  uint32_t rttvar = 0;
  uint32_t latest_rtt = 0;
  uint32_t min_rtt = 0;
  uint32_t max_rtt = 0;
  uint32_t min_rtt_at = 0;
  uint32_t used_at = 0;
  uint32_t answered_at = 0;
  uint32_t window = 0;  ///< bytes
  uint32_t mark_fraction = 0;
  // receiving
  uint32_t base = 0;
  uint16_t rx_generation = 0;
  uint16_t rx_ce_count = 0;
  uint16_t credit_stream = 0;

  uint16_t port = 0;
  uint16_t generation = 0;
  uint16_t pmtu = 0;
  uint16_t ce_count = 0;
  uint8_t plane = 0;
  uint8_t rx_plane = 0;
  uint8_t state = 0;
  uint8_t epoch = 0;
  uint8_t late_count = 0;
  uint8_t rx_late = 0;
  bool rtt_known : 1 = false;
  bool ack_seen : 1 = false;
  bool marks_seen : 1 = false;
  bool slow_start : 1 = false;
  bool rx_open : 1 = false;
  bool rx_last_was_ce : 1 = false;
};
static_assert(sizeof(RestedPath) <= 88);

}  // namespace metaroce::path
