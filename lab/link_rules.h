// What a link of the lab does to the packets of one direction, and the words for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/expected.h"

namespace metaroce::lab {

/// All zero: it carries what comes.
struct LinkRules {
  uint32_t loss_ppm = 0;       ///< each packet alone
  uint32_t burst_in_ppm = 0;   ///< Gilbert-Elliott: a packet begins a burst, in which all are lost
  uint32_t burst_out_ppm = 0;  ///< ... and a packet ends it
  uint32_t corrupt_ppm = 0;    ///< one bit of the payload
  uint32_t duplicate_ppm = 0;
  uint32_t reorder_ppm = 0;  ///< so many come late, by `late_us`
  uint32_t late_us = 0;
  uint32_t delay_us = 0;
  uint32_t jitter_us = 0;
  uint64_t rate_bps = 0;     ///< of a real queue
  uint32_t queue_bytes = 0;  ///< of it; beyond that packets are dropped
  uint32_t mark_bytes = 0;   ///< from here on ECT packets are marked
  bool dark = false;         ///< nothing comes through
  bool bleach = false;       ///< marks and ECT are taken off
  bool trim = false;         ///< what the queue would drop is cut to its headers instead
  uint32_t flap_ms = 0;      ///< dark and not dark in turn, so long each

  bool operator==(const LinkRules&) const = default;
};

/// What happened to the packets of one direction. A packet with one fate is counted once; marked,
/// bleached, corrupted, late and duplicated ones have passed as well.
struct LinkCounts {
  uint64_t seen = 0;    ///< came in
  uint64_t passed = 0;  ///< went on, trimmed ones too, copies not
  uint64_t dark = 0;    ///< dropped because the link was dark (or in a dark phase of `flap`)
  uint64_t lost = 0;    ///< dropped by `loss` or `ge`
  uint64_t full = 0;    ///< dropped by the queue
  uint64_t marked = 0;  ///< got CE from us
  uint64_t trimmed = 0;
  uint64_t corrupted = 0;
  uint64_t duplicated = 0;
  uint64_t late = 0;  ///< held back by `reorder`
  uint64_t bleached = 0;

  bool operator==(const LinkCounts&) const = default;
};

/// `words`: KEY=VALUE separated by commas or blanks, or "none". Keys that are not named keep what
/// they have. The error names the word, and what it could have been.
Expected<LinkRules, std::string> parse_rules(std::string_view words, LinkRules rules = {});
/// One word of it.
Expected<bool, std::string> set_rule(LinkRules& rules, std::string_view key,
                                     std::string_view value);
/// As parse_rules() takes it; "none" when there is nothing.
std::string print_rules(const LinkRules& rules);
/// Bytes in the queue of a link with a rate: what the rules say, or 100 ms of the rate within
/// 64 KiB and 4 MiB, about what a switch with shared memory has for one port.
uint32_t queue_of(const LinkRules& rules);
/// Constant delay and late packets are in no queue discipline of every kernel, and timers of BPF
/// cannot hold packets: a process has to carry them (wire.h).
bool needs_wire(const LinkRules& rules);

}  // namespace metaroce::lab
