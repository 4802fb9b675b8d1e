// Names and addresses: host h is 10.P.H.1 and fd00:P:H::1 in plane P behind leaf H % leaves, its
// gateway .254 and ::fe; a cable between leaf L and spine S is 172.(16+P).(16L+S).0/24 and
// fd01:P:L:S::/64, the leaf 1 and the spine 2.
#include <fmt/format.h>

#include <algorithm>

#include "lab/topology.h"

namespace metaroce::lab {

namespace {

/// Locally administered, and the same in every run: neighbours can be known from the start.
void set_mac(End& end, uint32_t plane, uint32_t kind, uint32_t index, uint32_t port) {
  const uint32_t bytes[6] = {0x02, plane, kind, index, port >> 8, port & 0xFF};
  std::copy_n(bytes, 6, end.mac);
}

Cable host_cable_of(const Plan& plan, uint32_t plane, uint32_t host) {
  const Topology& t = plan.topology;
  const uint32_t leaf = plan.leaf_of(host);
  Cable c;
  c.plane = plane;
  c.a.node = host;  // hosts are the first nodes
  c.b.node = plan.leaf(plane, leaf);
  c.a.interface = fmt::format("e{}", plane);
  c.b.interface = fmt::format("h{}", host);
  if (t.ipv4) c.a.v4 = fmt::format("10.{}.{}.1", plane, host);
  if (t.ipv4) c.b.v4 = fmt::format("10.{}.{}.254", plane, host);
  if (t.ipv6) c.a.v6 = fmt::format("fd00:{:x}:{:x}::1", plane, host);
  if (t.ipv6) c.b.v6 = fmt::format("fd00:{:x}:{:x}::fe", plane, host);
  set_mac(c.a, plane, 0, host, 0);
  set_mac(c.b, plane, 1, leaf, host);
  return c;
}

Cable fabric_cable_of(const Plan& plan, uint32_t plane, uint32_t leaf, uint32_t spine) {
  const Topology& t = plan.topology;
  Cable c;
  c.plane = plane;
  c.a.node = plan.leaf(plane, leaf);
  c.b.node = plan.spine(plane, spine);
  c.a.interface = fmt::format("s{}", spine);
  c.b.interface = fmt::format("l{}", leaf);
  const std::string v4 = fmt::format("172.{}.{}.", 16 + plane, 16 * leaf + spine);
  const std::string v6 = fmt::format("fd01:{:x}:{:x}:{:x}::", plane, leaf, spine);
  if (t.ipv4) c.a.v4 = v4 + "1";
  if (t.ipv4) c.b.v4 = v4 + "2";
  if (t.ipv6) c.a.v6 = v6 + "1";
  if (t.ipv6) c.b.v6 = v6 + "2";
  set_mac(c.a, plane, 1, leaf, 256 + spine);
  set_mac(c.b, plane, 2, spine, leaf);
  return c;
}

/// `pattern` may have "*" for any characters.
bool matches(const std::string& pattern, const std::string& name, size_t p = 0, size_t n = 0) {
  for (; p < pattern.size(); ++p, ++n) {
    if (pattern[p] == '*') {
      for (size_t rest = n; rest <= name.size(); ++rest) {
        if (matches(pattern, name, p + 1, rest)) return true;
      }
      return false;
    }
    if (n >= name.size() || pattern[p] != name[n]) return false;
  }
  return n == name.size();
}

}  // namespace

uint32_t Plan::leaf(uint32_t plane, uint32_t index) const {
  return topology.hosts + plane * (topology.leaves + topology.spines) + index;
}

uint32_t Plan::spine(uint32_t plane, uint32_t index) const {
  return leaf(plane, topology.leaves) + index;
}

uint32_t Plan::find_node(const std::string& name) const {
  const auto at =
      std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.name == name; });
  return static_cast<uint32_t>(at - nodes.begin());
}

const Cable& Plan::host_cable(uint32_t plane, uint32_t host) const {
  return cables[plane * (topology.hosts + topology.leaves * topology.spines) + host];
}

const Cable& Plan::fabric_cable(uint32_t plane, uint32_t leaf, uint32_t spine) const {
  return (&host_cable(plane, 0))[topology.hosts + leaf * topology.spines + spine];
}

Plan make_plan(const Topology& t) {
  Plan plan;
  plan.topology = t;
  for (uint32_t h = 0; h < t.hosts; ++h) {
    plan.nodes.push_back({fmt::format("h{}", h), NodeKind::kHost, 0, h});
  }
  for (uint32_t p = 0; p < t.planes; ++p) {
    for (uint32_t l = 0; l < t.leaves; ++l) {
      plan.nodes.push_back({fmt::format("p{}l{}", p, l), NodeKind::kLeaf, p, l});
    }
    for (uint32_t s = 0; s < t.spines; ++s) {
      plan.nodes.push_back({fmt::format("p{}s{}", p, s), NodeKind::kSpine, p, s});
    }
  }
  for (uint32_t p = 0; p < t.planes; ++p) {
    for (uint32_t h = 0; h < t.hosts; ++h) plan.cables.push_back(host_cable_of(plan, p, h));
    for (uint32_t l = 0; l < t.leaves; ++l) {
      for (uint32_t s = 0; s < t.spines; ++s) {
        plan.cables.push_back(fabric_cable_of(plan, p, l, s));
      }
    }
  }
  for (Cable& c : plan.cables) {
    c.name = plan.nodes[c.a.node].name + ":" + plan.nodes[c.b.node].name;
  }
  return plan;
}

Expected<std::vector<Direction>, std::string> select_links(const Plan& plan,
                                                           const std::string& name) {
  std::vector<Direction> out;
  const size_t colon = name.find(':');
  const size_t both = name.find('=');
  for (uint32_t i = 0; i < plan.cables.size(); ++i) {
    const Cable& c = plan.cables[i];
    const std::string& a = plan.nodes[c.a.node].name;
    const std::string& b = plan.nodes[c.b.node].name;
    bool forward = false, backward = false;
    if (colon != std::string::npos) {
      const std::string from = name.substr(0, colon), to = name.substr(colon + 1);
      forward = matches(from, a) && matches(to, b);
      backward = matches(from, b) && matches(to, a);
    } else if (both != std::string::npos) {
      const std::string from = name.substr(0, both), to = name.substr(both + 1);
      forward = backward =
          (matches(from, a) && matches(to, b)) || (matches(from, b) && matches(to, a));
    } else {
      forward = backward =
          matches(name, a) || matches(name, b) || matches(name, fmt::format("plane{}", c.plane));
    }
    if (forward) out.push_back({i, true});
    if (backward) out.push_back({i, false});
  }
  if (!out.empty()) return out;
  const Topology& t = plan.topology;
  return unexpected(fmt::format(
      "'{}' is no link here; there are hosts h0 to h{}, leaves p0l0 to p{}l{}, spines p0s0 to "
      "p{}s{}, plane0 to plane{}; FROM:TO is one direction of a link, A=B both, * anything",
      name, t.hosts - 1, t.planes - 1, t.leaves - 1, t.planes - 1, t.spines - 1, t.planes - 1));
}

}  // namespace metaroce::lab
