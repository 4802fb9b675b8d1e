#include "driver/common/interfaces.h"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "driver/common/socket_address.h"

namespace metaroce::driver {
namespace {

constexpr uint32_t kLargestMtu = 65535;

uint16_t mtu_of(int fd, const char* name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (fd < 0 || ioctl(fd, SIOCGIFMTU, &request) != 0 || request.ifr_mtu <= 0) return 1500;
  return static_cast<uint16_t>(std::min(static_cast<uint32_t>(request.ifr_mtu), kLargestMtu));
}

// Every address of the loopback net is local although only one is configured.
bool in_loopback_net(const ifaddrs& entry, const SocketAddress& wanted) {
  if ((entry.ifa_flags & IFF_LOOPBACK) == 0 || wanted.family != 4) return false;
  if (entry.ifa_addr->sa_family != AF_INET || entry.ifa_netmask == nullptr) return false;
  sockaddr_in address;
  sockaddr_in mask;
  std::memcpy(&address, entry.ifa_addr, sizeof address);
  std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
  uint32_t host = 0;
  std::memcpy(&host, wanted.bytes.data(), 4);
  return ((host ^ address.sin_addr.s_addr) & mask.sin_addr.s_addr) == 0;
}

bool usable(const ifaddrs& entry) {
  return (entry.ifa_flags & IFF_UP) != 0 && (entry.ifa_flags & IFF_RUNNING) != 0;
}

void take(InterfaceState& state, const ifaddrs& entry, uint16_t mtu) {
  if (state.found && state.up) return;
  state.found = true;
  state.up = usable(entry);
  state.mtu = mtu;
  state.name = entry.ifa_name;
}

void take_wildcard(InterfaceState& state, const ifaddrs& entry, uint16_t mtu) {
  if (!usable(entry) || entry.ifa_addr == nullptr) return;
  if (entry.ifa_addr->sa_family != AF_INET && entry.ifa_addr->sa_family != AF_INET6) return;
  // The largest: padded probes find out what a path really carries, too small a start would never
  // be looked beyond.
  if (state.up && mtu <= state.mtu) return;
  state.up = true;
  state.mtu = mtu;
  state.name = entry.ifa_name;
}

}  // namespace

std::vector<InterfaceState> look_up_interfaces(const std::vector<SocketAddress>& addresses) {
  std::vector<InterfaceState> out(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) out[i].found = is_wildcard(addresses[i]);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return out;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const SocketAddress has = from_sockaddr(at->ifa_addr);
    if (has.family == 0) continue;
    const uint16_t mtu = mtu_of(fd, at->ifa_name);
    for (size_t i = 0; i < addresses.size(); ++i) {
      const SocketAddress& want = addresses[i];
      const bool scoped = want.scope == 0 || want.scope == if_nametoindex(at->ifa_name);
      if (is_wildcard(want)) {
        take_wildcard(out[i], *at, mtu);
      } else if ((has.same_host(want) && scoped) || in_loopback_net(*at, want)) {
        take(out[i], *at, mtu);
      }
    }
  }
  if (fd >= 0) close(fd);
  freeifaddrs(list);
  return out;
}

int open_link_monitor() {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return -1;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

bool drain_link_monitor(int fd) {
  bool any = false;
  char buffer[8192];
  for (;;) {
    const ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    // ENOBUFS says that reports were lost: something changed all the same.
    if (n > 0 || (n < 0 && errno == ENOBUFS)) {
      any = true;
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    return any;
  }
}

}  // namespace metaroce::driver
