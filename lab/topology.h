// A leaf-spine fabric of several planes as a file describes it, and the plan of what is to be
// built: namespaces, cables, addresses. Nothing here touches the system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/expected.h"
#include "lab/link_rules.h"

namespace metaroce::lab {

inline constexpr uint32_t kMostPlanes = 8;
inline constexpr uint32_t kMostHosts = 64;
inline constexpr uint32_t kMostSwitches = 16;  ///< leaves or spines of a plane

/// Rules for cables by name, as `lab link` gives them later: "p0s1:p0l0" in this direction,
/// "p0s1=p0l0" in both; "*" stands for any number of characters.
struct LinkLine {
  std::string between;
  std::string words;  ///< as parse_rules() takes them; later lines add to earlier ones
};

struct Topology {
  std::string name = "lab";
  uint32_t planes = 1;
  uint32_t hosts = 2;
  uint32_t leaves = 2;
  uint32_t spines = 4;
  bool ipv4 = true;
  bool ipv6 = true;
  uint32_t mtu = 9000;
  uint32_t seed = 1;             ///< of the hashes: every leaf gets one of its own
  bool linkdown = true;          ///< a leaf takes a dead uplink out of its groups
  bool neighbours = true;        ///< known from the start; false: asked for by ARP and ND
  bool gso = false;              ///< hosts may send super-packets, which share one fate
  bool checksum_offload = true;  ///< false: hosts compute UDP checksums
  std::vector<LinkLine> links;
};

inline constexpr const char* kLabNames = "letters, digits, '.', '_' and '-', at most 64";
bool is_lab_name(const std::string& name);

/// The error names the file, the line, the key and what may stand there.
Expected<Topology, std::string> parse_topology(const std::string& text, const std::string& file);
Expected<Topology, std::string> read_topology(const std::string& file);

enum class NodeKind : uint8_t { kHost, kLeaf, kSpine };

struct Node {
  std::string name;  ///< h3, p0l1, p2s0
  NodeKind kind = NodeKind::kHost;
  uint32_t plane = 0;  ///< of a switch
  uint32_t index = 0;
};

/// One end of a cable: the interface in a node, with its addresses.
struct End {
  uint32_t node = 0;
  std::string interface;  ///< e0 (host, by plane), h3, s1, l0 (by what is there)
  std::string v4, v6;     ///< without the length of the prefix; empty without that family
  uint8_t mac[6] = {};
};

struct Cable {
  std::string name;  ///< of its first end's direction: "h3:p0l1", "p0l1:p0s0"
  uint32_t plane = 0;
  End a, b;  ///< a is nearer to the hosts
};

struct Plan {
  Topology topology;
  std::vector<Node> nodes;
  std::vector<Cable> cables;

  uint32_t leaf_of(uint32_t host) const { return host % topology.leaves; }
  uint32_t leaf(uint32_t plane, uint32_t index) const;
  uint32_t spine(uint32_t plane, uint32_t index) const;
  /// Index, or the number of nodes when there is none of this name.
  uint32_t find_node(const std::string& name) const;
  uint32_t index_of(const Cable& cable) const {
    return static_cast<uint32_t>(&cable - cables.data());
  }
  const Cable& host_cable(uint32_t plane, uint32_t host) const;
  const Cable& fabric_cable(uint32_t plane, uint32_t leaf, uint32_t spine) const;
};

Plan make_plan(const Topology& topology);

/// One direction of a cable.
struct Direction {
  uint32_t cable = 0;
  bool from_a = true;
};
/// What a name of links stands for: a cable ("h0:p0l0" that direction, "h0=p0l0" both), a spine, a
/// leaf or a host (all its cables, both directions), "plane2" (all of it), with "*" as a wildcard.
/// The error says what names there are.
Expected<std::vector<Direction>, std::string> select_links(const Plan& plan,
                                                           const std::string& name);

/// The fabric as text for a terminal, and as a picture.
std::string draw_text(const Plan& plan);
std::string draw_svg(const Plan& plan);

}  // namespace metaroce::lab
