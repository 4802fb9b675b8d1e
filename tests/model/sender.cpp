// Sender: what may be sent, repair and resolution, paths, reading of ACKs.
#include "tests/model/rules.h"

namespace metaroce::model {

int lowest_unresolved(const State& s, int path) {
  const SenderPath& o = s.out[path];
  int lowest = o.next;
  for (int i = 0; i < s.tx_count; ++i) {
    const Tx& t = s.txs[i];
    if (t.path != path || t.generation != o.generation || t.status == Status::kResolved) continue;
    if (seq_diff(t.seq, lowest) < 0) lowest = t.seq;
  }
  return lowest;
}

int lowest_undecided(const State& s) {
  int c = 0;
  while (c < s.cpsn_count && s.cpsns[c].belief != Belief::kUndecided) ++c;
  return c;
}

bool in_network(const Config& cfg, const Tx& t) {
  return t.net == Net::kFlying || (cfg.duplicates && t.net == Net::kArrived);
}

bool span_full(const Config& cfg, const State& s, int path) {
  if (cfg.mutation == Mutation::kSaturatingFloor) return false;
  return seq_diff(s.out[path].next, lowest_unresolved(s, path)) > cfg.span();
}

bool at_data_limit(const Config& cfg, const State& s, int path) {
  if (cfg.mutation == Mutation::kNoDataLimit) return false;
  const SenderPath& o = s.out[path];
  return seq_diff(o.next, o.acked_base) >= cfg.range - 2;
}

bool may_send(const Config& cfg, const State& s, int path, Kind kind) {
  const SenderPath& o = s.out[path];
  if (s.tx_count >= kMaxTx) return false;
  // covers MR-PATH-042
  const bool open =
      o.state == PathState::kOpen || (o.state == PathState::kProving && kind == Kind::kProbe);
  if (!open || span_full(cfg, s, path)) return false;  // covers MR-PATH-005
  if (cfg.mutation == Mutation::kNoDataLimit) return true;
  // covers MR-PATH-030
  const bool slot = kind == Kind::kProbe && cfg.mutation != Mutation::kNoProbeSlot;
  const int limit = cfg.range - (slot ? 1 : 2);
  return seq_diff(o.next, o.acked_base) < limit;
}

bool item_waits(const Config& cfg, const State& s, int item) {
  if (item == s.items) return item < cfg.items;
  if (item > s.items) return false;
  for (int c = s.cpsn_count - 1; c >= 0; --c) {
    if (!s.cpsns[c].open && s.cpsns[c].item == item) {
      return s.cpsns[c].belief == Belief::kRefused;  // covers MR-CPSN-015
    }
  }
  return false;
}

bool has_live(const State& s, int cpsn) {
  for (int i = 0; i < s.tx_count; ++i) {
    const Tx& t = s.txs[i];
    if (t.kind != Kind::kProbe && t.cpsn == cpsn && t.status == Status::kLive) return true;
  }
  return false;
}

bool has_unresolved(const State& s, int path) {
  return lowest_unresolved(s, path) != s.out[path].next;
}

namespace {

std::uint8_t floor_field(const Config& cfg, const State& s, int path) {
  const int distance = seq_diff(s.out[path].next, lowest_unresolved(s, path));
  if (cfg.mutation == Mutation::kSaturatingFloor && distance > cfg.span()) {
    return static_cast<std::uint8_t>(cfg.span() / cfg.unit);
  }
  // covers MR-PATH-004 MR-PATH-006
  const int up = cfg.mutation == Mutation::kWideFloorDown ? 0 : cfg.unit - 1;
  return static_cast<std::uint8_t>((distance + up) / cfg.unit);
}

// True when no probe of the path's present generation ever arrived. The broken readings below
// break this on the way to what they are really known for.
bool unproven(const Config& cfg, const State& s, int path) {
  const SenderPath& o = s.out[path];
  const bool other_harm = cfg.mutation == Mutation::kStaleAckUnchecked ||
                          cfg.mutation == Mutation::kGenerationNumbersAgain ||
                          cfg.mutation == Mutation::kOldPathOpenApplied;
  if (o.generation == 0 || other_harm) return false;
  return s.in[path].generation != o.generation || s.in[path].base == o.start;
}

void transmit(const Config& cfg, State& s, int path, Kind kind, int cpsn) {
  SenderPath& o = s.out[path];
  Tx t;
  t.path = static_cast<std::uint8_t>(path);
  t.generation = o.generation;
  t.seq = o.next;
  t.floor = floor_field(cfg, s, path);
  t.cpsn = static_cast<std::uint8_t>(cpsn);
  t.kind = kind;
  // covers MR-PATH-015
  const bool holds = kind != Kind::kProbe || cfg.mutation == Mutation::kProbeHoldsFloor;
  t.status = holds ? Status::kLive : Status::kResolved;
  for (int i = 0; i < s.tx_count; ++i) {
    // covers MR-PATH-001
    const bool same = s.txs[i].path == path && s.txs[i].seq == t.seq;
    if (same && cfg.mutation != Mutation::kGenerationNumbersAgain)
      s.bad = Violation::kSequenceReused;
  }
  if (kind != Kind::kProbe && unproven(cfg, s, path)) s.bad = Violation::kUnproven;
  s.txs[s.tx_count++] = t;
  o.next = seq_add(o.next, 1);
  o.last_probe_floor = kind == Kind::kProbe ? t.floor : static_cast<std::uint8_t>(kNoProbe);
  ++s.sends;
}

Kind kind_of(const Cpsn& c) {
  if (c.open) return Kind::kOpen;
  return c.voided ? Kind::kVoid : Kind::kData;  // covers MR-CPSN-024
}

bool may_allocate(const Config& cfg, const State& s) {
  if (s.cpsn_count >= kMaxCpsn) return false;
  const int extra = cfg.mutation == Mutation::kSenderUnbound ? 1 : 0;
  return s.cpsn_count < lowest_undecided(s) + cfg.window + extra;  // covers MR-CPSN-009
}

// The sequence is given up; its CPSN goes to the repair queue unless another copy lives.
void give_up(const Config& cfg, State& s, int tx, Status status) {
  Tx& t = s.txs[tx];
  t.status = status;
  if (t.kind == Kind::kProbe) return;
  Cpsn& c = s.cpsns[t.cpsn];
  if (c.belief != Belief::kUndecided) return;
  // covers MR-PATH-016 MR-LOSS-062
  if (has_live(s, t.cpsn)) return;
  if (cfg.mutation == Mutation::kForgottenLastCopy) {
    for (int i = 0; i < s.tx_count; ++i) {
      const Tx& o = s.txs[i];
      if (i != tx && o.kind != Kind::kProbe && o.cpsn == t.cpsn) return;  // "it has another copy"
    }
  }
  c.queued = true;
}

void settle(const Config& cfg, State& s, int cpsn, Belief fate) {
  Cpsn& c = s.cpsns[cpsn];
  if (c.belief != Belief::kUndecided) {
    if (c.belief != fate) s.bad = Violation::kBeliefWrong;
    return;
  }
  if (cfg.mutation == Mutation::kRetryOnSameCpsn && fate == Belief::kRefused && !c.voided) {
    c.queued = true;
    return;
  }
  c.belief = fate;
  c.queued = false;  // covers MR-CPSN-034
  if (c.decision != fate) s.bad = Violation::kBeliefWrong;
  for (int i = 0; i < s.tx_count; ++i) {
    // covers MR-PATH-014
    if (s.txs[i].kind != Kind::kProbe && s.txs[i].cpsn == cpsn) s.txs[i].status = Status::kResolved;
  }
  SenderPath& o = s.out[c.item & 1];
  if (c.open && o.generation == c.generation && o.state == PathState::kOpening) {
    const bool trusting = cfg.mutation == Mutation::kDataBeforeProof;
    const PathState next = trusting ? PathState::kOpen : PathState::kProving;
    o = SenderPath{next, c.generation, c.start, c.start, c.start, kNoProbe};
  }
}

}  // namespace

bool send_new(const Config& cfg, State& s, int path, int item) {
  if (!item_waits(cfg, s, item) || !may_allocate(cfg, s)) return false;
  if (!may_send(cfg, s, path, Kind::kData)) return false;
  const int c = s.cpsn_count++;
  s.cpsns[c] = Cpsn{};
  s.cpsns[c].item = static_cast<std::uint8_t>(item);
  if (item == s.items) ++s.items;
  transmit(cfg, s, path, Kind::kData, c);
  return true;
}

bool send_repair(const Config& cfg, State& s, int path, int cpsn) {
  Cpsn& c = s.cpsns[cpsn];
  if (!c.queued || !may_send(cfg, s, path, kind_of(c))) return false;
  if (c.open && c.item == path) return false;
  c.queued = false;
  if (cfg.mutation == Mutation::kReusedSequence) {
    for (int i = 0; i < s.tx_count; ++i) {
      const Tx& t = s.txs[i];
      const bool mine = t.kind != Kind::kProbe && t.cpsn == cpsn && t.path == path;
      if (mine && t.seq == seq_add(s.out[path].next, -1)) s.out[path].next = t.seq;
    }
  }
  transmit(cfg, s, path, kind_of(c), cpsn);
  return true;
}

bool send_idle_copy(const Config& cfg, State& s, int path, int cpsn) {
  const Cpsn& c = s.cpsns[cpsn];
  const bool useful = c.belief == Belief::kUndecided && !c.queued && has_live(s, cpsn);
  if (!useful || (c.open && c.item == path) || !may_send(cfg, s, path, kind_of(c))) return false;
  // covers MR-PATH-013
  for (int i = 0; cfg.mutation == Mutation::kIdleCopyResolves && i < s.tx_count; ++i) {
    Tx& t = s.txs[i];
    if (t.kind != Kind::kProbe && t.cpsn == cpsn) t.status = Status::kResolved;
  }
  transmit(cfg, s, path, kind_of(c), cpsn);
  return true;
}

bool send_void(const Config& cfg, State& s, int path, int cpsn) {
  Cpsn& c = s.cpsns[cpsn];
  if (c.open || c.voided || c.belief != Belief::kUndecided) return false;
  if (!may_send(cfg, s, path, Kind::kVoid)) return false;
  c.voided = true;
  c.queued = false;
  transmit(cfg, s, path, Kind::kVoid, cpsn);  // covers MR-CPSN-022
  return true;
}

bool send_probe(const Config& cfg, State& s, int path) {
  if (!may_send(cfg, s, path, Kind::kProbe)) return false;
  ++s.probes;
  transmit(cfg, s, path, Kind::kProbe, 0);
  return true;
}

bool send_full_span(const Config& cfg, State& s, int path) {
  const SenderPath& o = s.out[path];
  if (o.state != PathState::kOpen || !span_full(cfg, s, path)) return false;
  if (at_data_limit(cfg, s, path) || s.tx_count >= kMaxTx) return false;
  if (cfg.mutation == Mutation::kFullSpanBareProbe) return false;
  const int lowest = lowest_unresolved(s, path);
  for (int i = 0; i < s.tx_count; ++i) {
    Tx& t = s.txs[i];
    if (t.path != path || t.generation != o.generation || t.seq != lowest) continue;
    if (t.kind == Kind::kProbe) return false;
    Cpsn& c = s.cpsns[t.cpsn];
    if (c.belief != Belief::kUndecided) return false;
    t.status = Status::kResolved;  // covers MR-PATH-008
    c.queued = false;
    transmit(cfg, s, path, kind_of(c), t.cpsn);
    return true;
  }
  return false;
}

bool repeat_last_probe(const Config& cfg, State& s, int path) {
  const SenderPath& o = s.out[path];
  if (o.last_probe_floor == kNoProbe || !at_data_limit(cfg, s, path)) return false;
  if (cfg.mutation == Mutation::kLastProbeNotRepeated) return false;
  if (o.state != PathState::kOpen && o.state != PathState::kProving) return false;
  Tx t;
  t.path = static_cast<std::uint8_t>(path);
  t.generation = o.generation;
  t.seq = seq_add(o.next, -1);
  t.floor = o.last_probe_floor;
  t.kind = Kind::kProbe;
  t.status = Status::kResolved;
  for (int i = 0; i < s.tx_count; ++i) {
    Tx& old = s.txs[i];
    if (old.path != path || old.seq != t.seq || old.generation != t.generation) continue;
    if (in_network(cfg, old)) return false;
    old.net = Net::kFlying;
    return true;
  }
  if (s.tx_count >= kMaxTx) return false;
  s.txs[s.tx_count++] = t;  // covers MR-PATH-031
  return true;
}

bool judge_lost(const Config& cfg, State& s, int tx) {
  const Tx& t = s.txs[tx];
  if (t.status != Status::kLive || t.kind == Kind::kProbe) return false;
  give_up(cfg, s, tx, Status::kLost);
  return true;
}

bool resolve(const Config&, State& s, int tx) {
  Tx& t = s.txs[tx];
  if (t.status != Status::kLost || s.cpsns[t.cpsn].queued) return false;
  t.status = Status::kResolved;  // covers MR-PATH-011 MR-PATH-012
  return true;
}

namespace {

bool give_up_path(const Config& cfg, State& s, int path, Status status) {
  bool any = false;
  for (int i = 0; i < s.tx_count; ++i) {
    Tx& t = s.txs[i];
    if (t.path != path || t.generation != s.out[path].generation) continue;
    const bool open =
        status == Status::kLost ? t.status == Status::kLive : t.status != Status::kResolved;
    if (!open) continue;
    give_up(cfg, s, i, status);
    any = true;
  }
  return any;
}

}  // namespace

bool suspect(const Config& cfg, State& s, int path) {
  return give_up_path(cfg, s, path, Status::kLost);
}

bool limit(const Config& cfg, State& s, int path) {
  if (s.out[path].state != PathState::kOpen || !at_data_limit(cfg, s, path)) return false;
  if (cfg.mutation == Mutation::kLimitKeepsFloor) return false;
  return give_up_path(cfg, s, path, Status::kResolved);  // covers MR-PATH-017 MR-PATH-031
}

bool close_path(const Config& cfg, State& s, int path) {
  SenderPath& o = s.out[path];
  if (o.state == PathState::kClosed || cfg.paths < 2) return false;
  if (s.out[1 - path].state != PathState::kOpen) return false;
  if (cfg.mutation == Mutation::kCloseForgets) {
    for (int i = 0; i < s.tx_count; ++i) {
      if (s.txs[i].path == path) s.txs[i].status = Status::kResolved;
    }
  } else if (o.state != PathState::kOpening) {
    give_up_path(cfg, s, path, Status::kResolved);  // covers MR-PATH-017
  }
  o.state = PathState::kClosed;
  return true;
}

bool reopen_path(const Config& cfg, State& s, int path) {
  SenderPath& o = s.out[path];
  const int carrier = 1 - path;
  if (o.state != PathState::kClosed || cfg.paths < 2 || !may_allocate(cfg, s)) return false;
  if (!may_send(cfg, s, carrier, Kind::kOpen)) return false;
  // covers MR-PATH-040 MR-PATH-045: the smallest jump that leaves the receiver's range, and one
  // a little larger for odd generations: starts need not grow while none was used.
  int start = seq_add(o.next, -1 + cfg.range + (o.generation % 2 == 0 ? 2 : 0));
  if (cfg.big_jump) start = seq_add(o.next, kSeqModulus - 12);
  if (cfg.mutation == Mutation::kGenerationNumbersAgain) start = kSeqStart;
  o.generation = static_cast<std::uint8_t>(o.generation + 1);
  o.state = PathState::kOpening;
  const int index = s.cpsn_count++;
  Cpsn& c = s.cpsns[index];
  c = Cpsn{};
  c.item = static_cast<std::uint8_t>(path);
  c.open = true;
  c.generation = o.generation;
  c.start = static_cast<std::uint8_t>(start);
  transmit(cfg, s, carrier, Kind::kOpen, index);
  return true;
}

namespace {

bool ack_in_range(const Config& cfg, const SenderPath& o, const Ack& a) {
  const int base = seq_diff(a.base, o.next);
  // covers MR-PATH-033
  const bool old = seq_diff(a.base, o.start) < 0;
  if (old && cfg.mutation != Mutation::kOldAcksRead) return false;
  if (cfg.mutation == Mutation::kStaleAckUnchecked) return true;
  if (base > 0) return false;  // covers MR-PATH-032
  for (int bit = 0; bit < 8; ++bit) {
    if ((a.map >> bit & 1) != 0 && base + bit >= 0) return false;
  }
  return true;
}

void read_through(const Config& cfg, State& s, int through) {
  // covers MR-CPSN-017
  for (int c = 0; c < through && c < s.cpsn_count; ++c) {
    if (cfg.mutation == Mutation::kDecidedThroughCompletes) settle(cfg, s, c, Belief::kAccepted);
    if (cfg.mutation != Mutation::kDecidedThroughResolves) continue;
    for (int i = 0; i < s.tx_count; ++i) {
      Tx& t = s.txs[i];
      if (t.kind != Kind::kProbe && t.cpsn == c) t.status = Status::kResolved;
    }
  }
}

}  // namespace

void apply_ack(const Config& cfg, State& s, const Ack& a) {
  SenderPath& o = s.out[a.path];
  if (o.state != PathState::kOpen && o.state != PathState::kProving) return;
  if (!ack_in_range(cfg, o, a)) return;
  const int floor = lowest_unresolved(s, a.path);
  for (int i = 0; i < s.tx_count; ++i) {
    Tx& t = s.txs[i];
    if (t.path != a.path || t.generation != o.generation) continue;
    if (seq_diff(t.seq, floor) < 0 && t.status == Status::kResolved) continue;  // forgotten
    const int bit = seq_diff(t.seq, a.base);
    const bool below = bit < 0;
    if (!below && (bit >= cfg.map || (a.map >> bit & 1) == 0)) continue;
    const Status was = t.status;
    t.status = Status::kResolved;  // covers MR-PATH-010
    if (t.kind == Kind::kProbe) continue;
    // covers MR-CPSN-016
    const bool told = was == Status::kLive ||
                      (cfg.mutation == Mutation::kLostBelowBaseAccepted && was == Status::kLost);
    if (below && told) settle(cfg, s, t.cpsn, Belief::kAccepted);
    if (below) continue;
    const bool refused = (a.refused >> bit & 1) != 0;
    settle(cfg, s, t.cpsn, refused ? Belief::kRefused : Belief::kAccepted);
  }
  if (seq_diff(a.base, o.acked_base) > 0) o.acked_base = a.base;
  // covers MR-PATH-042 MR-LOSS-032: the first probe has the number `start`.
  if (o.state == PathState::kProving && o.acked_base != o.start) {
    o.state = PathState::kOpen;
  }
  read_through(cfg, s, a.through);
}

}  // namespace metaroce::model
