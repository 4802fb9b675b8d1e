// Packets of one interface into a file that Wireshark and tcpdump read.
#pragma once

#include <cstdint>
#include <string>

#include "base/expected.h"

namespace metaroce::lab {

struct CaptureOptions {
  std::string interface;
  std::string file;      ///< "-": standard output
  uint32_t snap = 0;     ///< bytes kept of a packet, 0: all
  uint64_t packets = 0;  ///< then it ends; 0: when it is interrupted
};

/// In the network namespace of this process, both directions, until SIGINT or SIGTERM. Returns the
/// number of packets; the error names the interface or the file, and the cause.
Expected<uint64_t, std::string> capture(const CaptureOptions& options);

}  // namespace metaroce::lab
