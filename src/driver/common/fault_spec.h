// How faults are written down: a list of clauses separated by commas.
//
//   clause   = kind [ "@" from "-" [to] ] [ "=" [chance] ] { ":" detail }
//   kind     = drop | duplicate (dup) | delay | reorder | corrupt | mark | blackhole
//   chance   = "1%" | "0.01"              of each packet; left out: all packets
//   detail   = time | time "-" time       how long (delay, reorder, dup), uniform if a span
//            | "plane=" n | "path=" n | "dir=" ("rx" | "tx" | "both")
//   time     = number "ns" | "us" | "ms" | "s";  from and to count from the driver's start
//   also     = "seed=" n                  for the whole list (default 1)
//
//   drop=1%,dup=0.1%,corrupt=0.01%,reorder=1%:50us,delay=100us,mark=1%,blackhole@2s-5s:plane=1
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/time.h"
#include "driver/common/error.h"

namespace metaroce::driver {

enum class FaultKind : uint8_t {
  kDrop,
  kDuplicate,
  kDelay,
  kReorder,
  kCorrupt,
  kMark,
  kBlackhole,
  kCount
};
const char* to_string(FaultKind kind);

enum class Direction : uint8_t { kReceive = 1, kTransmit = 2, kBoth = 3 };

struct FaultRule {
  FaultKind kind = FaultKind::kDrop;
  Direction direction = Direction::kReceive;
  uint64_t chance = 1ull << 32;  ///< of 2^32
  Duration hold_min;
  Duration hold_max;
  int plane = -1;  ///< -1: every plane
  int path = -1;   ///< -1: every path id
  Duration from;
  Duration to = {kNever.ns};  ///< exclusive
};

struct FaultSpec {
  uint64_t seed = 1;
  std::vector<FaultRule> rules;
  bool empty() const { return rules.empty(); }
};

Expected<FaultSpec, Error> parse_faults(std::string_view text);

}  // namespace metaroce::driver
