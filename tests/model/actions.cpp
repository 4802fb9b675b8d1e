#include "tests/model/actions.h"

#include "tests/model/rules.h"

namespace metaroce::model {
namespace {

int count_refusals(const State& s) {
  int n = 0;
  for (int c = 0; c < s.cpsn_count; ++c) {
    n += s.cpsns[c].decision == Belief::kRefused && !s.cpsns[c].voided ? 1 : 0;
  }
  return n;
}

int count_voids(const State& s) {
  int n = 0;
  for (int c = 0; c < s.cpsn_count; ++c) n += s.cpsns[c].voided ? 1 : 0;
  return n;
}

struct Collector {
  std::vector<Action>& out;
  void add(Step step, int a, int b = 0) {
    out.push_back(Action{step, static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)});
  }
};

void enumerate_sends(const Config& cfg, const State& s, int path, Collector& to) {
  if (s.sends >= cfg.sends) return;
  if (s.cpsn_count < cfg.cpsns) {
    for (int item = 0; item <= s.items && item < cfg.items; ++item) {
      if (item_waits(cfg, s, item)) to.add(Step::kSendNew, path, item);
    }
    if (s.out[path].state == PathState::kClosed && s.out[path].generation < cfg.generations) {
      to.add(Step::kReopen, path);
    }
  }
  const bool may_void = count_voids(s) < cfg.voids;
  for (int c = 0; c < s.cpsn_count; ++c) {
    if (s.cpsns[c].belief != Belief::kUndecided) continue;
    if (s.cpsns[c].queued) to.add(Step::kRepair, path, c);
    if (cfg.idle) to.add(Step::kIdleCopy, path, c);
    if (may_void) to.add(Step::kVoid, path, c);
  }
  if (s.probes < cfg.probes) to.add(Step::kProbe, path);
  if (span_full(cfg, s, path)) to.add(Step::kFullSpan, path);
}

void enumerate_path(const Config& cfg, const State& s, int path, Collector& to) {
  enumerate_sends(cfg, s, path, to);
  to.add(Step::kAck, path);
  for (int slot = 0; slot < cfg.held; ++slot) to.add(Step::kHoldAck, path, slot);
  if (at_data_limit(cfg, s, path)) {
    to.add(Step::kLimit, path);
    to.add(Step::kRepeatProbe, path);
  }
  int live = 0;
  for (int i = 0; i < s.tx_count; ++i) {
    const Tx& t = s.txs[i];
    live += t.path == path && t.status == Status::kLive ? 1 : 0;
  }
  if (live > 1) to.add(Step::kSuspect, path);  // of one: the same as kJudgeLost
  if (cfg.generations > 0 && (path == 1 || cfg.close_any)) to.add(Step::kClose, path);
}

void enumerate_tx(const Config& cfg, const State& s, int i, bool may_refuse, Collector& to) {
  const Tx& t = s.txs[i];
  if (t.status == Status::kLive) to.add(Step::kJudgeLost, i);
  if (t.status == Status::kLost) to.add(Step::kResolve, i);
  if (!in_network(cfg, t)) return;
  to.add(Step::kDeliver, i);
  if (t.kind != Kind::kData || !may_refuse) return;
  const bool again = cfg.mutation == Mutation::kOneBitFilterAccepted;
  if (again || s.cpsns[t.cpsn].decision == Belief::kUndecided) to.add(Step::kDeliverNoBuffer, i);
}

}  // namespace

void enumerate(const Config& cfg, const State& s, std::vector<Action>& out) {
  out.clear();
  Collector to{out};
  for (int path = 0; path < cfg.paths; ++path) enumerate_path(cfg, s, path, to);
  const bool may_refuse = count_refusals(s) < cfg.refusals;
  for (int i = 0; i < s.tx_count; ++i) enumerate_tx(cfg, s, i, may_refuse, to);
  for (int slot = 0; slot < kMaxHeld; ++slot) {
    if (s.held[slot].used) to.add(Step::kHeldAck, slot);
  }
}

namespace {

bool hold_ack(State& s, int path, int slot) {
  const Ack a = snapshot(s, path);
  for (const Ack& other : s.held) {
    if (other == a) return false;
  }
  s.held[slot] = a;
  return true;
}

bool deliver_held(const Config& cfg, State& s, int slot) {
  const Ack a = s.held[slot];
  if (!a.used) return false;
  s.held[slot] = Ack{};
  apply_ack(cfg, s, a);
  return true;
}

bool run(const Config& cfg, State& s, Action x) {
  switch (x.step) {
    case Step::kSendNew:
      return send_new(cfg, s, x.a, x.b);
    case Step::kRepair:
      return send_repair(cfg, s, x.a, x.b);
    case Step::kIdleCopy:
      return send_idle_copy(cfg, s, x.a, x.b);
    case Step::kVoid:
      return send_void(cfg, s, x.a, x.b);
    case Step::kProbe:
      return send_probe(cfg, s, x.a);
    case Step::kFullSpan:
      return send_full_span(cfg, s, x.a);
    case Step::kRepeatProbe:
      return repeat_last_probe(cfg, s, x.a);
    case Step::kJudgeLost:
      return judge_lost(cfg, s, x.a);
    case Step::kResolve:
      return resolve(cfg, s, x.a);
    case Step::kSuspect:
      return suspect(cfg, s, x.a);
    case Step::kLimit:
      return limit(cfg, s, x.a);
    case Step::kClose:
      return close_path(cfg, s, x.a);
    case Step::kReopen:
      return reopen_path(cfg, s, x.a);
    case Step::kDeliver:
      return deliver(cfg, s, x.a, false);
    case Step::kDeliverNoBuffer:
      return deliver(cfg, s, x.a, true);
    case Step::kAck:
      apply_ack(cfg, s, snapshot(s, x.a));
      return true;
    case Step::kHoldAck:
      return hold_ack(s, x.a, x.b);
    case Step::kHeldAck:
      return deliver_held(cfg, s, x.a);
  }
  return false;
}

}  // namespace

bool apply(const Config& cfg, State& s, Action action) {
  if (!run(cfg, s, action)) return false;
  if (s.bad == Violation::kNone) normalise(cfg, s);
  return true;
}

}  // namespace metaroce::model
