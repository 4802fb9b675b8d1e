// Rules of links by a BPF program at the egress of their interfaces. Needs root, and a build with
// clang; says so where it cannot.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/expected.h"
#include "lab/link_rules.h"

namespace metaroce::lab {

/// Handles loss, bursts, darkness, flap, corruption, duplicates, bleaching, and a queue without
/// delay (rate, queue, mark, trim): a real queue behind it (TBF, Netlink::set_tbf) gives the delay.
class BpfLinks {
 public:
  /// `links`: directions there may be rules for, numbered from 0. An interface of direction i must
  /// have the index `first_interface + i` in its namespace: the program knows the link by it.
  /// The error says why BPF is not available and what would help.
  static Expected<std::unique_ptr<BpfLinks>, std::string> load(uint32_t links,
                                                               uint32_t first_interface);
  ~BpfLinks();
  BpfLinks(const BpfLinks&) = delete;
  BpfLinks& operator=(const BpfLinks&) = delete;

  /// Puts the program at the egress of this link's interface, in the namespace open at `netns`, and
  /// counts from zero. It goes with the interface, not with this object.
  Expected<bool, std::string> attach(uint32_t link, int netns);
  /// All of them at once: no packet sees old and new ones mixed. The queue begins empty, no burst
  /// goes on, and the dice begin anew from `seed`: after the same `set` on the same link, the n-th
  /// packet has the same luck in every run (links with the same seed have different luck). Phases
  /// of `flap` follow CLOCK_MONOTONIC, alike for all links: dark when now / flap is odd.
  /// A rate without queue_bytes gets 100 ms of it, from 64 KiB to 4 MiB. Rules of delay, jitter and
  /// reorder are not for here (needs_wire) and refused.
  ///
  /// What has one fate is a packet as the kernel has it there: a super-packet (GSO) is one, and at
  /// the interface of the host that sends it, it has not been cut yet, whatever its limit of
  /// segments is. Who is dropped is no error of send(), as on a real link.
  Expected<bool, std::string> set(uint32_t link, const LinkRules& rules, uint64_t seed);
  /// Since the link was attached.
  LinkCounts counts(uint32_t link) const;

 private:
  BpfLinks() = default;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace metaroce::lab
