#include "lab/fabric.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lab/netns.h"

namespace metaroce::lab {

namespace {

constexpr uint8_t kHost4 = 24, kHost6 = 64;
constexpr uint32_t kLoopback = 1;
constexpr unsigned kBetweenLooks = 1000;  // us
constexpr uint32_t kMostLooks = 5000;

std::string own_namespace(int error) {
  return fmt::format("own namespace: {}", std::strerror(error));
}

/// In the namespace this thread is in.
Expected<bool, std::string> set_sysctl(const std::string& key, const std::string& value) {
  const std::string file = "/proc/sys/net/" + key;
  const driver::Descriptor fd(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (fd.valid() &&
      write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size())) {
    return true;
  }
  return unexpected(fmt::format("{} = {}: {}", file, value, std::strerror(errno)));
}

/// How a switch forwards. Policy 1 would be a trap: it takes the hash that a connected socket
/// stamped on its packets, so the socket and not the port would decide the path. Policy 3 over the
/// five fields is a hash of what stands in the packet.
Expected<bool, std::string> set_forwarding(const Topology& t) {
  const std::string down = t.linkdown ? "1" : "0";
  std::vector<std::pair<std::string, std::string>> all;
  if (t.ipv4) {
    all.insert(all.end(), {{"ipv4/ip_forward", "1"},
                           {"ipv4/fib_multipath_hash_policy", "3"},
                           {"ipv4/fib_multipath_hash_fields", "55"},
                           {"ipv4/conf/all/ignore_routes_with_linkdown", down},
                           {"ipv4/conf/default/ignore_routes_with_linkdown", down}});
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

/// Of both families. Each leaf its own, or those of one seed send the same flows to the same spine.
Expected<bool, std::string> set_seed(const Topology& t, const Node& node) {
  const uint32_t seed = t.seed * 1000 + node.plane * 100 + node.index + 1;
  return set_sysctl("ipv4/fib_multipath_hash_seed", std::to_string(seed));
}

}  // namespace

/// This thread is in it afterwards.
Expected<driver::Descriptor, std::string> Fabric::add_namespace(const std::string& name) {
  if (unshare(CLONE_NEWNET) != 0) {
    return unexpected(fmt::format("no network namespace for {}: {}", name, std::strerror(errno)));
  }
  driver::Descriptor netns(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!netns.valid()) {
    return unexpected(fmt::format("{}: its namespace: {}", name, std::strerror(errno)));
  }
  const std::string place = "/run/netns/" + name;
  if (driver::Descriptor(open(place.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0444)).valid()) {
    // A convenience (`ip netns exec`): the lab itself knows the namespace by its descriptor.
    (void)mount("/proc/thread-self/ns/net", place.c_str(), "none", MS_BIND, nullptr);
  }
  return netns;
}

Expected<bool, std::string> Fabric::add_namespaces() {
  const NetnsReturn back;
  if (back.error() != 0) return unexpected(own_namespace(back.error()));
  for (uint32_t n = 0; n < plan_.nodes.size(); ++n) {
    const Node& node = plan_.nodes[n];
    auto netns = add_namespace(node.name);
    if (!netns) return unexpected(netns.error());
    netns_.push_back(std::move(*netns));
    for (const char* which : {"all", "default"}) {
      if (!plan_.topology.ipv6) break;
      const auto set = set_sysctl(fmt::format("ipv6/conf/{}/accept_dad", which), "0");
      if (!set) return set;
    }
    if (node.kind == NodeKind::kHost) continue;
    const auto set = set_forwarding(plan_.topology);
    if (!set) return set;
    // Since Linux 6.11. Without it flows are spread as well, but differently in each lab.
    if (!set_seed(plan_.topology, node) && notes_.empty()) {
      notes_.emplace_back("this kernel has no seed for ECMP: paths do not follow `seed`");
    }
  }
  return true;
}

Expected<Netlink*, std::string> Fabric::netlink(uint32_t node) {
  std::optional<Netlink>& link = netlinks_[node];
  if (!link) {
    auto opened = Netlink::open(netns(node));
    if (!opened) return unexpected(opened.error());
    link.emplace(std::move(*opened));
  }
  return &*link;
}

Netlink::VethEnd Fabric::veth_end(const End& end, bool a, uint32_t cable) const {
  const bool host = plan_.nodes[end.node].kind == NodeKind::kHost;
  return {end.interface, end.mac, interface_of(cable, a), host && !plan_.topology.gso};
}

/// A host that computes its UDP checksums itself finds what was corrupted on the way; one that
/// leaves them to its interface does not, as there is none here that ever would.
Expected<bool, std::string> Fabric::set_offload(uint32_t node) {
  if (plan_.topology.checksum_offload || plan_.nodes[node].kind != NodeKind::kHost) return true;
  const InNetns inside(netns(node));
  if (inside.error() != 0) {
    return unexpected(fmt::format("{}: {}", plan_.nodes[node].name, std::strerror(inside.error())));
  }
  const driver::Descriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const uint32_t i : ends_of_[node]) {
    ethtool_value off{};
    off.cmd = ETHTOOL_STXCSUM;
    ifreq request{};
    plan_.cables[i].a.interface.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&off);
    if (ioctl(any.get(), SIOCETHTOOL, &request) != 0) {
      return unexpected(fmt::format("{}: checksums of {}: {}", plan_.nodes[node].name,
                                    request.ifr_name, std::strerror(errno)));
    }
  }
  return true;
}

Expected<bool, std::string> Fabric::add_cables() {
  for (uint32_t i = 0; i < plan_.cables.size(); ++i) {
    const Cable& c = plan_.cables[i];
    const auto link = netlink(c.a.node);
    if (!link) return unexpected(link.error());
    (*link)->add_veth(veth_end(c.a, true, i), veth_end(c.b, false, i), netns(c.b.node),
                      plan_.topology.mtu);
  }
  // A cable is there when both its ends are: all of them first, then they come up.
  for (const bool up : {false, true}) {
    for (uint32_t n = 0; n < plan_.nodes.size(); ++n) {
      const auto link = netlink(n);
      if (!link) return unexpected(link.error());
      if (up) (*link)->set_up(kLoopback);
      for (const uint32_t i : ends_of_[n]) {
        if (up) (*link)->set_up(interface_of(i, plan_.cables[i].a.node == n));
      }
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
    if (down_[i]) continue;  // a local route over it is refused
    const Cable& c = plan_.cables[i];
    const End& mine = c.a.node == node ? c.a : c.b;
    const End& other = c.a.node == node ? c.b : c.a;
    const uint32_t index = interface_of(i, c.a.node == node);
    for (const auto& [own, theirs, prefix] :
         {std::tuple{&mine.v4, &other.v4, kHost4}, std::tuple{&mine.v6, &other.v6, kHost6}}) {
      if (own->empty()) continue;
      (*link)->add_address(index, net_address(*own), prefix);
      // The kernel does it itself, some time later.
      if (prefix == kHost6) (*link)->add_local_route(index, net_address(*own));
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
    if (down_[plan_.index_of(c)]) continue;
    const uint32_t index = interface_of(plan_.index_of(c), true);
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
        if (down_[plan_.index_of(*c)]) continue;  // the kernel takes no route over it
        const End& other = c->a.node == node ? c->b : c->a;
        hops.push_back({net_address(v6 ? other.v6 : other.v4),
                        interface_of(plan_.index_of(*c), c->a.node == node)});
      }
      if (hops.empty()) continue;
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
  netlinks_.resize(plan_.nodes.size());
  ends_of_.assign(plan_.nodes.size(), {});
  down_.assign(plan_.cables.size(), false);
  for (uint32_t i = 0; i < plan_.cables.size(); ++i) {
    ends_of_[plan_.cables[i].a.node].push_back(i);
    ends_of_[plan_.cables[i].b.node].push_back(i);
  }
  if (plan.topology.ipv6 && access("/proc/sys/net/ipv6", F_OK) != 0) {
    return unexpected(
        std::string("this kernel has no IPv6; a topology with ipv6 = false does without"));
  }
  auto done = add_namespaces();
  if (done) done = add_cables();
  for (uint32_t n = 0; n < plan_.nodes.size() && done; ++n) done = set_offload(n);
  for (uint32_t n = 0; n < plan_.nodes.size() && done; ++n) done = add_addresses(n);
  for (uint32_t n = 0; n < plan_.nodes.size() && done; ++n) done = add_routes(n);
  std::set<uint32_t> all;
  for (uint32_t i = 0; i < plan_.cables.size(); ++i) all.insert(all.end(), i);
  return done ? wait_until_running(all) : done;
}

Expected<bool, std::string> Fabric::set_up(const std::set<uint32_t>& cables, bool up) {
  Expected<bool, std::string> first = true;
  std::set<uint32_t> done;
  for (const uint32_t cable : cables) {
    const Cable& c = plan_.cables[cable];
    Expected<bool, std::string> set = true;
    for (const bool a : {true, false}) {
      const auto link = netlink(a ? c.a.node : c.b.node);
      if (!link) return unexpected(link.error());
      (*link)->set_up(interface_of(cable, a), up);
      const auto now = (*link)->flush();
      if (set && !now) set = unexpected(fmt::format("{}: {}", c.name, now.error()));
    }
    if (set) {
      down_[cable] = !up;
      done.insert(cable);
    } else if (first) {
      first = set;  // the others are not made to wait for it
    }
  }
  const auto restored = up ? restore(done) : true;
  return first ? restored : first;
}

/// Addresses first, of all: a route needs its gateway.
Expected<bool, std::string> Fabric::restore(const std::set<uint32_t>& cables) {
  std::set<uint32_t> nodes;
  for (const uint32_t cable : cables) {
    nodes.insert({plan_.cables[cable].a.node, plan_.cables[cable].b.node});
  }
  for (const bool routes : {false, true}) {
    for (const uint32_t node : nodes) {
      const auto done = routes ? add_routes(node) : add_addresses(node);
      if (!done) return unexpected(fmt::format("{}: {}", plan_.nodes[node].name, done.error()));
    }
  }
  return wait_until_running(cables);
}

/// An interface whose other end came up later drops what it is given until a work queue of the
/// kernel has seen to it. One that somebody has set down meanwhile is not waited for.
Expected<bool, std::string> Fabric::wait_until_running(const std::set<uint32_t>& cables) {
  std::set<uint32_t> nodes;
  for (const uint32_t cable : cables) {
    nodes.insert({plan_.cables[cable].a.node, plan_.cables[cable].b.node});
  }
  for (uint32_t tries = 0;; ++tries) {
    std::set<uint32_t> up, running;  // by index, which is of one end of one cable
    for (const uint32_t node : nodes) {
      const auto link = netlink(node);
      if (!link) return unexpected(link.error());
      const auto all = (*link)->interfaces();
      if (!all) return unexpected(all.error());
      for (const Netlink::Interface& i : *all) {
        if (i.up) up.insert(i.index);
        if (i.running) running.insert(i.index);
      }
    }
    const auto late = std::find_if(cables.begin(), cables.end(), [&](uint32_t cable) {
      const uint32_t a = interface_of(cable, true), b = interface_of(cable, false);
      return up.contains(a) && up.contains(b) && !(running.contains(a) && running.contains(b));
    });
    if (late == cables.end()) return true;
    if (tries == kMostLooks) {
      return unexpected(fmt::format("{} does not come up", plan_.cables[*late].name));
    }
    ::usleep(kBetweenLooks);
  }
}

std::string Fabric::wire_name(uint32_t cable, bool a) {
  return fmt::format("w{}{}", cable, a ? 'a' : 'b');
}

Expected<bool, std::string> Fabric::add_wire_namespace() {
  if (wire_netlink_) return true;
  const NetnsReturn back;
  if (back.error() != 0) return unexpected(own_namespace(back.error()));
  auto netns = add_namespace("wires");
  if (!netns) return unexpected(netns.error());
  // What goes over a wire are the packets of the cable and nothing else.
  if (access("/proc/sys/net/ipv6", F_OK) == 0) {
    const auto set = set_sysctl("ipv6/conf/default/disable_ipv6", "1");
    if (!set) return set;
  }
  auto opened = Netlink::open(netns->get());
  if (!opened) return unexpected(opened.error());
  wire_netns_ = std::move(*netns);
  wire_netlink_.emplace(std::move(*opened));
  return true;
}

/// Whatever of them is there: both when a cut broke off, none when somebody else removed it.
Expected<bool, std::string> Fabric::remove_ends(uint32_t cable) {
  const Cable& c = plan_.cables[cable];
  for (const bool a : {true, false}) {
    const auto link = netlink(a ? c.a.node : c.b.node);
    if (!link) return unexpected(link.error());
    const auto all = (*link)->interfaces();
    if (!all) return unexpected(all.error());
    const uint32_t index = interface_of(cable, a);
    if (std::none_of(all->begin(), all->end(), [&](const auto& i) { return i.index == index; })) {
      continue;
    }
    (*link)->remove(index);  // and with it the other end
    const auto done = (*link)->flush();
    if (!done) return done;
  }
  return true;
}

Expected<bool, std::string> Fabric::cut(uint32_t cable) {
  auto done = add_wire_namespace();
  if (done) done = remove_ends(cable);
  const Cable& c = plan_.cables[cable];
  for (const bool a : {true, false}) {
    if (!done) return done;
    const End& end = a ? c.a : c.b;
    const auto link = netlink(end.node);
    if (!link) return unexpected(link.error());
    // The wire's side has the number of the end it leads to: they are in different namespaces.
    (*link)->add_veth(veth_end(end, a, cable),
                      {wire_name(cable, a), nullptr, interface_of(cable, a), false}, wire_netns(),
                      plan_.topology.mtu);
    done = (*link)->flush();
    wire_netlink_->set_up(interface_of(cable, a));
  }
  if (done) done = wire_netlink_->flush();
  for (const uint32_t node : {c.a.node, c.b.node}) {
    if (done) done = set_offload(node);
  }
  return done && !down_[cable] ? set_up({cable}, true) : done;
}

}  // namespace metaroce::lab
