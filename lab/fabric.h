// Builds a plan out of network namespaces and veth cables, in the namespaces of this process: who
// calls it has made a mount and a network namespace of its own (sandbox.h), so that everything
// goes with it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/expected.h"
#include "driver/common/descriptor.h"
#include "lab/netlink.h"
#include "lab/topology.h"

namespace metaroce::lab {

/// Interfaces are numbered over the whole fabric, by the direction they are the sending end of: the
/// BPF program knows the link by it.
inline constexpr uint32_t kFirstInterface = 100;
inline uint32_t interface_of(uint32_t cable, bool a) {
  return kFirstInterface + 2 * cable + (a ? 0 : 1);
}

class Fabric {
 public:
  /// The error says what could not be made. Each node's namespace stands under /run/netns by its
  /// name, as `ip netns` wants it, if that folder can be written.
  Expected<bool, std::string> build(const Plan& plan);

  const Plan& plan() const { return plan_; }
  /// What this kernel does not have and the fabric does without.
  const std::vector<std::string>& notes() const { return notes_; }
  int netns(uint32_t node) const { return netns_[node].get(); }
  /// Of the wires; -1 while there is none.
  int wire_netns() const { return wire_netns_.get(); }
  /// rtnetlink in the node; made when it is first asked for.
  Expected<Netlink*, std::string> netlink(uint32_t node);

  /// Takes cables out, or back in with all that goes with them: an interface that was down has lost
  /// its routes, and its IPv6 addresses.
  Expected<bool, std::string> set_up(const std::set<uint32_t>& cables, bool up);
  bool is_down(uint32_t cable) const { return down_[cable]; }
  /// Cuts the cable: each end now leads into the wire's namespace, where a process has to carry the
  /// packets between wire_name(cable, true) and wire_name(cable, false). Of a cable that is down
  /// the ends stay down. After an error it can be tried again.
  Expected<bool, std::string> cut(uint32_t cable);
  static std::string wire_name(uint32_t cable, bool a);

 private:
  Expected<driver::Descriptor, std::string> add_namespace(const std::string& name);
  Expected<bool, std::string> add_namespaces();
  Expected<bool, std::string> add_wire_namespace();
  Expected<bool, std::string> add_cables();
  Expected<bool, std::string> set_offload(uint32_t node);
  Expected<bool, std::string> add_addresses(uint32_t node);
  Expected<bool, std::string> add_routes(uint32_t node);
  Expected<bool, std::string> restore(const std::set<uint32_t>& cables);
  Expected<bool, std::string> wait_until_running(const std::set<uint32_t>& cables);
  Expected<bool, std::string> remove_ends(uint32_t cable);
  void add_host_routes(Netlink& link, uint32_t host);
  Netlink::VethEnd veth_end(const End& end, bool a, uint32_t cable) const;

  Plan plan_;
  std::vector<driver::Descriptor> netns_;
  std::vector<std::optional<Netlink>> netlinks_;  ///< of nodes
  std::vector<std::vector<uint32_t>> ends_of_;    ///< cables of a node
  std::vector<std::string> notes_;
  std::vector<bool> down_;  ///< cables
  driver::Descriptor wire_netns_;
  std::optional<Netlink> wire_netlink_;
};

}  // namespace metaroce::lab
