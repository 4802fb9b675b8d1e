// What the host's interfaces say about a local address, and changes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/address.h"

namespace metaroce::driver {

struct InterfaceState {
  bool found = false;   ///< some interface carries the address (always true for a wildcard)
  bool up = false;      ///< and it is up and has a carrier
  uint16_t mtu = 1500;  ///< IP MTU, at most 65535; of a wildcard the largest of all usable ones
  std::string name;
};

/// One look at the interfaces for all the addresses.
std::vector<InterfaceState> look_up_interfaces(const std::vector<SocketAddress>& addresses);

/// A non-blocking netlink socket that becomes readable when links or addresses change; -1 if the
/// system gives none (then look at intervals). The caller closes it.
int open_link_monitor();

/// Empties the socket; true if anything was reported.
bool drain_link_monitor(int fd);

}  // namespace metaroce::driver
