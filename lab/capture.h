// Packets of one interface into a file that Wireshark and tcpdump read.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/expected.h"

namespace metaroce::lab {

struct CaptureOptions {
  std::string interface;
  std::FILE* out = nullptr;
  uint32_t snap = 0;     ///< bytes kept of a packet, 0: all
  uint64_t packets = 0;  ///< then it ends; 0: when it is interrupted
};

struct Captured {
  uint64_t packets = 0;
  uint64_t missed = 0;  ///< there was no room for them
};

/// In the network namespace of this process, both directions, until SIGINT or SIGTERM. An interface
/// that is replaced by another of its name is followed. The error names the interface or says why
/// nothing can be written.
Expected<Captured, std::string> capture(const CaptureOptions& options);

}  // namespace metaroce::lab
