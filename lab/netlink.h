// rtnetlink in one network namespace: interfaces, addresses, routes, neighbours. Requests are
// gathered and given to the kernel together, so that a fabric of hundreds of cables is a matter of
// milliseconds and not of as many processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/expected.h"

namespace metaroce::lab {

/// An address of either family, as rtnetlink wants it.
struct NetAddress {
  uint8_t family = 0;  ///< AF_INET or AF_INET6; 0: none
  uint8_t bytes[16] = {};
  uint8_t length() const;
};
/// Asserts that the text is one: all of them are of our own making.
NetAddress net_address(const std::string& text);

struct NextHop {
  NetAddress gateway;
  uint32_t interface = 0;  ///< index
};

class Netlink {
 public:
  /// A socket in the namespace that `netns` is open on; this thread is back where it was.
  static Expected<Netlink, std::string> open(int netns);
  Netlink(Netlink&& other) noexcept;
  Netlink& operator=(Netlink&&) = delete;
  ~Netlink();

  /// A cable from here to the namespace `peer_netns`.
  struct VethEnd {
    std::string name;
    const uint8_t* mac = nullptr;
    uint32_t index = 0;
    bool one_segment = false;  ///< GSO packets are cut into datagrams before they leave
  };
  void add_veth(const VethEnd& here, const VethEnd& there, int peer_netns, uint32_t mtu);
  void set_up(uint32_t interface, bool up = true);
  void remove(uint32_t interface);
  void add_address(uint32_t interface, const NetAddress& address, uint8_t prefix);
  /// What comes for this address is for this host, from now on. The kernel adds this route for
  /// every address; but with IPv6 it does so in a work queue (also without duplicate detection),
  /// which takes seconds on a busy machine, and drops what comes before.
  void add_local_route(uint32_t interface, const NetAddress& address);
  /// Through all of `hops`, weighed alike. `source`: the address a host sends from.
  void add_route(const NetAddress& to, uint8_t prefix, const std::vector<NextHop>& hops,
                 const NetAddress& source = {});
  /// A token bucket with a queue before it as the egress of an interface; replaces what is there.
  void set_tbf(uint32_t interface, uint64_t rate_bps, uint32_t queue_bytes, uint32_t burst_bytes);
  void remove_qdisc(uint32_t interface);
  /// For ever, so that nobody has to ask.
  void add_neighbour(uint32_t interface, const NetAddress& address, const uint8_t* mac);

  /// Gives the kernel what was gathered. The error says which request it did not take, and why.
  Expected<bool, std::string> flush();

  struct Counters {
    uint64_t rx_packets = 0, rx_bytes = 0, tx_packets = 0, tx_bytes = 0;
  };
  struct Interface {
    uint32_t index = 0;
    std::string name;
    bool up = false, carrier = false;
    bool running = false;  ///< it sends what it is given; a little later than the carrier
    Counters counters;
  };
  Expected<std::vector<Interface>, std::string> interfaces();

 private:
  explicit Netlink(void* socket) : socket_(socket) {}
  /// Room for the next request, and how to name it in an error.
  void* begin(uint16_t type, uint16_t flags, std::string what);
  void end(const void* header);

  void* socket_;  // mnl_socket
  std::vector<char> batch_;
  std::vector<std::string> what_;
  uint32_t sequence_ = 1;
};

}  // namespace metaroce::lab
