// One path of a connection, both directions, and where the slots of all connections lie.
#pragma once

#include <array>

#include "base/lazy_slab.h"
#include "connection/io.h"
#include "connection/send_window.h"
#include "path/path_receiver.h"
#include "path/path_sender.h"
#include "wire/probe_packet.h"

namespace metaroce::connection {

struct PathSlot {
  PathSlot(const Settings& settings, Slab<path::SentWindow>& windows, PathCounters& counters)
      : tx(settings, windows, counters) {
    rx.counters = &counters;
  }
  path::PathSender tx;
  path::PathReceiver rx;
  RepairList repair;
  PathState told = PathState::kOpening;  ///< what the last PathEvent said
  uint16_t pmtu_goal = 0;                ///< IP size under test
  uint8_t pmtu_tries = 0;
  uint8_t big_losses = 0;  ///< full packets lost in a row
  bool pmtu_search = false;
  bool pmtu_verify = false;   ///< the size in use is in doubt
  bool pmtu_due = false;      ///< send a padded probe now
  uint32_t last_padding = 0;  ///< of the last probe, which may have to be repeated
  std::array<std::byte, wire::kProbeBytes> last_probe{};
  Time pmtu_at = kNever;
  path::State noted = path::State::kClosed;  ///< state that note_change() knows
  PathChange change = PathChange::kNone;
  Time changed_at{0};
};

using PathPool = LazySlab<PathSlot>;

}  // namespace metaroce::connection
