// A running fabric, and what was done to its links: what `metaroce lab` asks for comes here.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/expected.h"
#include "lab/bpf_links.h"
#include "lab/fabric.h"
#include "lab/topology.h"
#include "lab/wire.h"

namespace metaroce::lab {

/// How a link fails.
enum class Failure : uint8_t {
  kDown,    ///< both ends lose the carrier, and a leaf leaves the uplink out of its groups
  kSilent,  ///< everything is swallowed, both ways, and nobody is told
  kOneWay,  ///< what goes away from leaf 0 is swallowed, what goes towards it passes; of a name
            ///< FROM:TO that direction
};

class Lab {
 public:
  /// In the namespaces of this process (sandbox.h), with the rules that the topology has.
  static Expected<std::unique_ptr<Lab>, std::string> build(const Topology& topology);

  /// `words` as parse_rules() takes them; rules that are not named stay. Says who does it.
  Expected<std::string, std::string> set_rules(const std::string& target, const std::string& words);
  /// Which directions or cables are concerned is the answer's number.
  Expected<uint32_t, std::string> fail(const std::string& target, Failure how);
  /// Undoes fail(), whatever it was; rules stay.
  Expected<uint32_t, std::string> heal(const std::string& target);

  /// A child of this process has ended: was it a wire? Its link is cut then until heal() or the
  /// next rule makes another.
  void on_child_end(int pid);

  /// Every direction of every link of `target` ("": all): packets, rules, fates.
  Expected<nlohmann::json, std::string> counters(const std::string& target);
  nlohmann::json info() const;
  const Plan& plan() const { return fabric_.plan(); }

 private:
  struct LinkState {
    LinkRules rules;
    bool failed = false;    ///< dark by fail()
    bool attached = false;  ///< the BPF program is at its egress
    LinkRules applied;      ///< by the kernel; with a rate there is a TBF
  };
  struct CableState {
    bool cut = false;            ///< for a wire
    std::unique_ptr<Wire> wire;  ///< none although it is cut: that failed, or the wire died
  };
  static uint32_t link_of(const Direction& d) { return 2 * d.cable + (d.from_a ? 0 : 1); }
  LinkRules effective(uint32_t link) const;
  Expected<bool, std::string> apply(uint32_t cable);
  Expected<bool, std::string> apply_in_kernel(uint32_t link, const LinkRules& rules);
  Expected<bool, std::string> make_wire(uint32_t cable);
  Expected<std::string, std::string> apply_all(const std::vector<Direction>& links,
                                               const std::vector<LinkRules>& rules);
  std::string trouble_of(uint32_t link) const;
  bool away_from_first_leaf(const Direction& d) const;
  std::string carrier_of(uint32_t link) const;
  uint64_t seed_of(uint32_t link) const;

  Fabric fabric_;
  std::unique_ptr<BpfLinks> bpf_;
  std::string no_bpf_;
  std::vector<LinkState> links_;
  std::vector<CableState> cables_;
};

}  // namespace metaroce::lab
