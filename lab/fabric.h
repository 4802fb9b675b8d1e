// Builds a plan out of network namespaces and veth cables, in the namespaces of this process: who
// calls it has made a mount and a network namespace of its own (sandbox.h), so that everything
// goes with it.
#pragma once

#include <string>
#include <vector>

#include "base/expected.h"
#include "lab/netlink.h"
#include "lab/topology.h"

namespace metaroce::lab {

class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric();

  /// The error says what could not be made. Each node's namespace stands under /run/netns by its
  /// name, as `ip netns` wants it, if that folder can be written.
  Expected<bool, std::string> build(const Plan& plan);

  const Plan& plan() const { return plan_; }
  int netns(uint32_t node) const { return netns_[node]; }
  /// rtnetlink in the node; made when it is first asked for.
  Expected<Netlink*, std::string> netlink(uint32_t node);
  /// Index of an end's interface in its node.
  uint32_t interface(const End& end) const;

  /// Routes of the leaf's uplinks again: those of an interface that was down are gone.
  Expected<bool, std::string> add_routes(uint32_t node);

 private:
  Expected<bool, std::string> add_namespace(uint32_t node);
  Expected<bool, std::string> add_cables();
  Expected<bool, std::string> add_addresses(uint32_t node);
  void add_host_routes(Netlink& link, uint32_t host);

  Plan plan_;
  std::vector<int> netns_;
  std::vector<Netlink> netlinks_;
  std::vector<int> netlink_of_;                 ///< index into netlinks_, -1: none yet
  std::vector<std::vector<uint32_t>> ends_of_;  ///< cables of a node
};

}  // namespace metaroce::lab
