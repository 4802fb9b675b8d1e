// Receiver: range check, base and map, CPSN filter, decision, snapshot.
#include "tests/model/rules.h"

namespace metaroce::model {
namespace {

enum class Answer : std::uint8_t { kUnseen, kAccepted, kRefused, kDropped };

void shift(ReceiverPath& r) {
  r.base = seq_add(r.base, 1);
  r.map = static_cast<std::uint8_t>(r.map >> 1);
  r.refused = static_cast<std::uint8_t>(r.refused >> 1);
}

void advance_to_floor(const Config& cfg, const Tx& t, ReceiverPath& r) {
  // covers MR-PATH-022
  const int floor = seq_add(t.seq, -t.floor * cfg.unit);
  while (seq_diff(floor, r.base) > 0) shift(r);
}

void slide_over_received(const Config& cfg, ReceiverPath& r) {
  // covers MR-PATH-021 MR-PATH-023
  const bool over_refused = cfg.mutation == Mutation::kBaseOverRefused;
  while ((r.map & 1) != 0 && ((r.refused & 1) == 0 || over_refused)) shift(r);
}

int receiver_lowest_undecided(const State& s) {
  int c = 0;
  while (c < s.cpsn_count && s.cpsns[c].decision != Belief::kUndecided) ++c;
  return c;
}

int filter_shift(const Config& cfg, int wire) { return wire % cfg.window * 2; }

// Looks a CPSN up and slides the filter when it is the highest so far.
Answer look_up(const Config& cfg, State& s, int cpsn) {
  const int modulus = cpsn_modulus(cfg);
  const int wire = cpsn_wire(cfg, cpsn);
  const int ahead = serial(wire, s.highest, modulus);
  // covers MR-CPSN-004
  if (ahead <= -cfg.window || ahead > cfg.window) return Answer::kDropped;
  if (cfg.mutation == Mutation::kFilterSlidesOnUndecided && cpsn < receiver_lowest_undecided(s)) {
    return Answer::kDropped;
  }
  // covers MR-CPSN-002 MR-CPSN-003
  for (int i = 0; i < ahead; ++i) {
    s.highest = static_cast<std::uint8_t>((s.highest + 1) % modulus);
    s.filter = static_cast<std::uint16_t>(s.filter & ~(3 << filter_shift(cfg, s.highest)));
  }
  // covers MR-CPSN-007
  return static_cast<Answer>((s.filter >> filter_shift(cfg, wire)) & 3);
}

void remember(const Config& cfg, State& s, const Tx& t, Answer answer) {
  if (cfg.mutation == Mutation::kOneBitFilterSeen) answer = Answer::kAccepted;
  if (cfg.mutation == Mutation::kOneBitFilterAccepted && answer == Answer::kRefused) return;
  if (cfg.mutation == Mutation::kVoidNotRemembered && t.kind == Kind::kVoid) return;
  const int at = filter_shift(cfg, cpsn_wire(cfg, t.cpsn));
  s.filter = static_cast<std::uint16_t>((s.filter & ~(3 << at)) | (static_cast<int>(answer) << at));
}

void place(State& s, int cpsn) {
  const Cpsn& c = s.cpsns[cpsn];
  if (c.belief == Belief::kRefused) s.bad = Violation::kPlacedAfterRefused;
  for (int other = 0; other < s.cpsn_count; ++other) {
    const Cpsn& o = s.cpsns[other];
    const bool same_item = other != cpsn && !o.open && o.item == c.item;
    if (same_item && o.decision == Belief::kAccepted) s.bad = Violation::kPlacedTwice;
  }
}

void apply_open(const Config& cfg, State& s, const Cpsn& c) {
  ReceiverPath& r = s.in[c.item];
  // covers MR-PATH-041
  const bool newer = c.generation > r.generation;
  if (!newer && cfg.mutation != Mutation::kOldPathOpenApplied) return;
  r = ReceiverPath{c.generation, c.start, 0, 0};
}

Answer decide(const Config& cfg, State& s, const Tx& t, bool no_buffer) {
  Cpsn& c = s.cpsns[t.cpsn];
  // covers MR-CPSN-020
  const bool refuse = t.kind == Kind::kVoid || (t.kind == Kind::kData && no_buffer);
  const Belief decision = refuse ? Belief::kRefused : Belief::kAccepted;
  // covers MR-CPSN-005
  if (c.decision != Belief::kUndecided && c.decision != decision) {
    s.bad = Violation::kDecidedTwice;
  }
  if (!refuse && t.kind == Kind::kData) place(s, t.cpsn);
  c.decision = decision;
  const Answer answer = refuse ? Answer::kRefused : Answer::kAccepted;
  remember(cfg, s, t, answer);
  if (t.kind == Kind::kOpen) apply_open(cfg, s, c);
  return answer;
}

}  // namespace

bool deliver(const Config& cfg, State& s, int tx, bool no_buffer) {
  Tx& t = s.txs[tx];
  if (!in_network(cfg, t)) return false;
  t.net = Net::kArrived;
  ReceiverPath& r = s.in[t.path];
  const int distance = seq_diff(t.seq, r.base);
  // covers MR-PATH-024
  if (distance >= cfg.range || distance <= -cfg.range) return true;
  advance_to_floor(cfg, t, r);
  const int bit = seq_diff(t.seq, r.base);
  if (bit >= cfg.map) {
    s.bad = Violation::kMapOverrun;
    return true;
  }
  Answer answer = Answer::kAccepted;
  if (t.kind != Kind::kProbe) {
    answer = look_up(cfg, s, t.cpsn);
    if (answer == Answer::kUnseen) answer = decide(cfg, s, t, no_buffer);
  }
  // A PATH_OPEN never opens the path that carries it, so `r` is still the path of this packet.
  if (answer != Answer::kDropped && bit >= 0) {
    // covers MR-PATH-026 MR-PATH-027 MR-CPSN-021
    r.map = static_cast<std::uint8_t>(r.map | (1 << bit));
    if (answer == Answer::kRefused) r.refused = static_cast<std::uint8_t>(r.refused | (1 << bit));
  }
  slide_over_received(cfg, r);
  return true;
}

Ack snapshot(const State& s, int path) {
  const ReceiverPath& r = s.in[path];
  return Ack{true,      static_cast<std::uint8_t>(path),
             r.base,    r.map,
             r.refused, static_cast<std::uint8_t>(receiver_lowest_undecided(s))};
}

}  // namespace metaroce::model
