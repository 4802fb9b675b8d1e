// Cables that a process carries packets through: every rule, delay and late packets included, and
// none of root's powers over the kernel needed. Each end of such a cable is a veth whose other end
// lies in the wire's namespace, where a packet socket reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/expected.h"
#include "lab/link_rules.h"

namespace metaroce::lab {

class Wire {
 public:
  /// A process that carries one cable, in both directions, between the interfaces `a` and `b` of
  /// the namespace open at `netns`, until this object goes or the calling process ends. `seed`: of
  /// its dice. `mtu`: the largest packet without its Ethernet header.
  static Expected<std::unique_ptr<Wire>, std::string> start(int netns, const std::string& a,
                                                            const std::string& b, uint32_t mtu,
                                                            uint64_t seed);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Takes effect with the next packet. `from_a`: packets that come in at `a`.
  void set(bool from_a, const LinkRules& rules);
  LinkCounts counts(bool from_a) const;
  /// Of the carrying process.
  int pid() const;

 private:
  Wire() = default;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace metaroce::lab
