#include "tests/model/invariants.h"

#include "tests/model/rules.h"

namespace metaroce::model {
namespace {

// covers MR-PATH-016
bool remembers_undecided(const State& s) {
  for (int c = 0; c < s.cpsn_count; ++c) {
    const Cpsn& x = s.cpsns[c];
    if (x.belief == Belief::kUndecided && !x.queued && !has_live(s, c)) return false;
  }
  return true;
}

// covers MR-CPSN-016: a base beyond a sequence the sender still waits for means accepted.
bool base_behind_unresolved(const State& s) {
  for (int i = 0; i < s.tx_count; ++i) {
    const Tx& t = s.txs[i];
    const SenderPath& o = s.out[t.path];
    const ReceiverPath& r = s.in[t.path];
    if (t.status == Status::kResolved || t.kind == Kind::kProbe) continue;
    if (t.generation != o.generation || t.generation != r.generation) continue;
    if (seq_diff(t.seq, r.base) >= 0) continue;
    if (t.net != Net::kArrived || s.cpsns[t.cpsn].decision != Belief::kAccepted) return false;
  }
  return true;
}

// covers MR-CPSN-009
bool filter_holds_undecided(const Config& cfg, const State& s) {
  const int c = lowest_undecided(s);
  if (c == s.cpsn_count) return true;
  return serial(cpsn_wire(cfg, c), s.highest, cpsn_modulus(cfg)) > -cfg.window;
}

bool beliefs_true(const State& s) {
  for (int c = 0; c < s.cpsn_count; ++c) {
    const Cpsn& x = s.cpsns[c];
    if (x.belief != Belief::kUndecided && x.belief != x.decision) return false;
  }
  return true;
}

}  // namespace

Violation check_state(const Config& cfg, const State& s) {
  if (!beliefs_true(s)) return Violation::kBeliefWrong;
  if (!remembers_undecided(s)) return Violation::kForgotten;
  if (!base_behind_unresolved(s)) return Violation::kBasePassed;
  if (!filter_holds_undecided(cfg, s)) return Violation::kFilterForgot;
  return Violation::kNone;
}

}  // namespace metaroce::model
