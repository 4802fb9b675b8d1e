// Runs an engine in virtual time on a recording and compares everything that comes out.
#pragma once

#include <memory>
#include <string>

#include "telemetry/pcapng.h"
#include "telemetry/recording.h"

namespace metaroce {
class EventSink;
}

namespace metaroce::telemetry {

struct ReplayResult {
  bool identical = false;  ///< every output up to the end of what is there
  bool complete = false;   ///< the end mark was reached and its totals agree
  bool damaged = false;    ///< `text` says how
  uint64_t calls = 0;      ///< compared
  Time first{0};
  Time last{0};
  /// One line: what was found.
  std::string text;
};

/// Builds the engine of the recording and repeats its calls. `pcap` (may be null) gets every
/// datagram, `events` every event of the engine.
ReplayResult replay(Recording& recording, PcapWriter* pcap = nullptr, EventSink* events = nullptr);

}  // namespace metaroce::telemetry
