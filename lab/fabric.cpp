#include "lab/fabric.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/assert.h"

namespace metaroce::lab {

namespace {

constexpr uint8_t kHost4 = 24, kHost6 = 64;

/// In the namespace this thread is in.
Expected<bool, std::string> set_sysctl(const std::string& key, const std::string& value) {
  const std::string file = "/proc/sys/net/" + key;
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written =
      fd >= 0 && write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  const int why = errno;
  if (fd >= 0) close(fd);
  if (written) return true;
  return unexpected(fmt::format("{} = {}: {}", file, value, std::strerror(why)));
}

/// How a switch forwards. Policy 1 would be a trap: it takes the hash that a connected socket
/// stamped on its packets, so the socket and not the port would decide the path. Policy 3 over the
/// five fields is a hash of what stands in the packet.
Expected<bool, std::string> set_forwarding(const Topology& t, const Node& node) {
  const std::string down = t.linkdown ? "1" : "0";
  std::vector<std::pair<std::string, std::string>> all;
  if (t.ipv4) {
    all.insert(all.end(), {{"ipv4/ip_forward", "1"},
                           {"ipv4/fib_multipath_hash_policy", "3"},
                           {"ipv4/fib_multipath_hash_fields", "55"},
                           {"ipv4/conf/all/ignore_routes_with_linkdown", down},
                           {"ipv4/conf/default/ignore_routes_with_linkdown", down}});
    // Each its own, or leaves of one seed send the same flows to the same spine.
    const uint32_t seed = t.seed * 1000 + node.plane * 100 + node.index + 1;
    all.emplace_back("ipv4/fib_multipath_hash_seed", std::to_string(seed));
  }
  if (t.ipv6) {
    all.insert(all.end(), {{"ipv6/conf/all/forwarding", "1"},
                           {"ipv6/fib_multipath_hash_policy", "3"},
                           {"ipv6/fib_multipath_hash_fields", "55"},
                           {"ipv6/conf/all/ignore_routes_with_linkdown", down},
                           {"ipv6/conf/default/ignore_routes_with_linkdown", down}});
  }
  for (const auto& [key, value] : all) {
    const auto set = set_sysctl(key, value);
    if (!set) return set;
  }
  return true;
}

}  // namespace

Fabric::~Fabric() {
  for (const int fd : netns_) {
    if (fd >= 0) close(fd);
  }
}

Expected<bool, std::string> Fabric::add_namespace(uint32_t node) {
  const Node& n = plan_.nodes[node];
  if (unshare(CLONE_NEWNET) != 0) {
    return unexpected(fmt::format("no network namespace for {}: {}", n.name, std::strerror(errno)));
  }
  netns_[node] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (netns_[node] < 0) {
    return unexpected(fmt::format("{}: its namespace: {}", n.name, std::strerror(errno)));
  }
  const std::string place = "/run/netns/" + n.name;
  const int fd = open(place.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0444);
  if (fd >= 0) {
    close(fd);
    // A convenience (`ip netns exec`): the lab itself knows the namespace by its descriptor.
    (void)mount("/proc/thread-self/ns/net", place.c_str(), "none", MS_BIND, nullptr);
  }
  if (plan_.topology.ipv6) {
    for (const char* which : {"all", "default"}) {
      const auto set = set_sysctl(fmt::format("ipv6/conf/{}/accept_dad", which), "0");
      if (!set) return set;
    }
  }
  return n.kind == NodeKind::kHost ? true : set_forwarding(plan_.topology, n);
}

uint32_t Fabric::interface(const End& end) const {
  // 1 is the loopback; ours follow in the order of the node's cables.
  const auto& mine = ends_of_[end.node];
  for (uint32_t i = 0; i < mine.size(); ++i) {
    const Cable& c = plan_.cables[mine[i]];
    const End& e = c.a.node == end.node ? c.a : c.b;
    if (e.interface == end.interface) return 2 + i;
  }
  MR_ASSERT(false);
  return 0;
}

Expected<Netlink*, std::string> Fabric::netlink(uint32_t node) {
  if (netlink_of_[node] < 0) {
    auto opened = Netlink::open(netns_[node]);
    if (!opened) return unexpected(opened.error());
    netlink_of_[node] = static_cast<int>(netlinks_.size());
    netlinks_.push_back(std::move(*opened));
  }
  return &netlinks_[static_cast<size_t>(netlink_of_[node])];
}

Expected<bool, std::string> Fabric::add_cables() {
  for (const Cable& c : plan_.cables) {
    const auto link = netlink(c.a.node);
    if (!link) return unexpected(link.error());
    (*link)->add_veth({c.a.interface, c.a.mac, interface(c.a)},
                      {c.b.interface, c.b.mac, interface(c.b)}, netns_[c.b.node],
                      plan_.topology.mtu);
  }
  // A cable is there when both its ends are: all of them first, then they come up.
  for (const bool up : {false, true}) {
    for (uint32_t n = 0; n < plan_.nodes.size(); ++n) {
      const auto link = netlink(n);
      if (!link) return unexpected(link.error());
      for (uint32_t i = 0; up && i <= ends_of_[n].size(); ++i) (*link)->set_up(1 + i);
      const auto done = (*link)->flush();
      if (!done) return unexpected(fmt::format("{}: {}", plan_.nodes[n].name, done.error()));
    }
  }
  return true;
}

Expected<bool, std::string> Fabric::add_addresses(uint32_t node) {
  const auto link = netlink(node);
  if (!link) return unexpected(link.error());
  for (const uint32_t i : ends_of_[node]) {
    const Cable& c = plan_.cables[i];
    const End& mine = c.a.node == node ? c.a : c.b;
    const End& other = c.a.node == node ? c.b : c.a;
    const uint32_t index = interface(mine);
    for (const auto& [own, theirs, prefix] :
         {std::tuple{&mine.v4, &other.v4, kHost4}, std::tuple{&mine.v6, &other.v6, kHost6}}) {
      if (own->empty()) continue;
      (*link)->add_address(index, net_address(*own), prefix);
      if (plan_.topology.neighbours) {
        (*link)->add_neighbour(index, net_address(*theirs), other.mac);
      }
    }
  }
  return (*link)->flush();
}

/// All of a plane is behind its gateway.
void Fabric::add_host_routes(Netlink& link, uint32_t host) {
  for (uint32_t p = 0; p < plan_.topology.planes; ++p) {
    const Cable& c = plan_.host_cable(p, host);
    const uint32_t index = interface(c.a);
    if (!c.a.v4.empty()) {
      link.add_route(net_address(fmt::format("10.{}.0.0", p)), 16, {{net_address(c.b.v4), index}},
                     net_address(c.a.v4));
    }
    if (!c.a.v6.empty()) {
      link.add_route(net_address(fmt::format("fd00:{:x}::", p)), 32, {{net_address(c.b.v6), index}},
                     net_address(c.a.v6));
    }
  }
}

Expected<bool, std::string> Fabric::add_routes(uint32_t node) {
  const auto link = netlink(node);
  if (!link) return unexpected(link.error());
  const Topology& t = plan_.topology;
  const Node& n = plan_.nodes[node];
  const auto add = [&](uint32_t plane, uint32_t host, const std::vector<const Cable*>& ways) {
    const End& target = plan_.host_cable(plane, host).a;
    for (const bool v6 : {false, true}) {
      const std::string& to = v6 ? target.v6 : target.v4;
      if (to.empty()) continue;
      std::vector<NextHop> hops;
      for (const Cable* c : ways) {
        const End& mine = c->a.node == node ? c->a : c->b;
        const End& other = c->a.node == node ? c->b : c->a;
        hops.push_back({net_address(v6 ? other.v6 : other.v4), interface(mine)});
      }
      NetAddress network = net_address(to);
      std::memset(network.bytes + (v6 ? 8 : 3), 0, v6 ? 8 : 1);
      (*link)->add_route(network, v6 ? kHost6 : kHost4, hops);
    }
  };
  if (n.kind == NodeKind::kHost) {
    add_host_routes(**link, n.index);
    return (*link)->flush();
  }
  for (uint32_t h = 0; h < t.hosts; ++h) {
    const uint32_t leaf = plan_.leaf_of(h);
    if (n.kind == NodeKind::kSpine) {
      add(n.plane, h, {&plan_.fabric_cable(n.plane, leaf, n.index)});
    } else if (leaf != n.index) {
      std::vector<const Cable*> ways;
      for (uint32_t s = 0; s < t.spines; ++s) {
        ways.push_back(&plan_.fabric_cable(n.plane, n.index, s));
      }
      add(n.plane, h, ways);
    }
  }
  return (*link)->flush();
}

Expected<bool, std::string> Fabric::build(const Plan& plan) {
  plan_ = plan;
  netns_.assign(plan_.nodes.size(), -1);
  netlink_of_.assign(plan_.nodes.size(), -1);
  netlinks_.reserve(plan_.nodes.size());
  ends_of_.assign(plan_.nodes.size(), {});
  for (uint32_t i = 0; i < plan_.cables.size(); ++i) {
    ends_of_[plan_.cables[i].a.node].push_back(i);
    ends_of_[plan_.cables[i].b.node].push_back(i);
  }
  const int back = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (back < 0) return unexpected(fmt::format("own namespace: {}", std::strerror(errno)));
  Expected<bool, std::string> done = true;
  for (uint32_t n = 0; n < plan_.nodes.size() && done; ++n) done = add_namespace(n);
  const bool returned = setns(back, CLONE_NEWNET) == 0;
  close(back);
  MR_ASSERT(returned);
  if (done) done = add_cables();
  for (uint32_t n = 0; n < plan_.nodes.size() && done; ++n) done = add_addresses(n);
  for (uint32_t n = 0; n < plan_.nodes.size() && done; ++n) done = add_routes(n);
  return done;
}

}  // namespace metaroce::lab
