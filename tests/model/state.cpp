#include "tests/model/state.h"

#include <algorithm>
#include <tuple>

#include "tests/model/rules.h"

namespace metaroce::model {

const char* violation_name(Violation v) {
  switch (v) {
    case Violation::kNone:
      return "none";
    case Violation::kPlacedTwice:
      return "placed-twice";
    case Violation::kPlacedAfterRefused:
      return "placed-after-refused";
    case Violation::kDecidedTwice:
      return "decided-twice";
    case Violation::kBeliefWrong:
      return "belief-wrong";
    case Violation::kForgotten:
      return "forgotten";
    case Violation::kBasePassed:
      return "base-passed";
    case Violation::kMapOverrun:
      return "map-overrun";
    case Violation::kSequenceReused:
      return "sequence-reused";
    case Violation::kFilterForgot:
      return "filter-forgot";
    case Violation::kUnproven:
      return "unproven";
    case Violation::kStuck:
      return "stuck";
  }
  return "?";
}

State initial_state(const Config& cfg) {
  State s;
  s.highest = static_cast<std::uint8_t>(cpsn_wire(cfg, cpsn_modulus(cfg) - 1));
  for (int p = cfg.paths; p < kMaxPaths; ++p) s.out[p].state = PathState::kClosed;
  return s;
}

namespace {

// True when the packet can change neither end any more, whatever happens later.
bool harmless(const Config& cfg, const State& s, const Tx& t) {
  const ReceiverPath& r = s.in[t.path];
  const int below = seq_diff(r.base, t.seq);
  if (below >= cfg.range) return true;
  const bool decided = t.kind == Kind::kProbe || s.cpsns[t.cpsn].decision != Belief::kUndecided;
  const bool filter_holds = cfg.mutation != Mutation::kOneBitFilterAccepted &&
                            cfg.mutation != Mutation::kVoidNotRemembered &&
                            cfg.mutation != Mutation::kRetryOnSameCpsn &&
                            cfg.mutation != Mutation::kOldPathOpenApplied;
  return decided && filter_holds && below > 0;
}

bool needed(const Config& cfg, const State& s, const Tx& t, const std::array<int, 2>& floors) {
  const SenderPath& o = s.out[t.path];
  const bool current = t.generation == o.generation && o.state != PathState::kClosed;
  if (current && t.status != Status::kResolved) return true;
  if (current && t.kind != Kind::kProbe && seq_diff(t.seq, floors[t.path]) >= 0 &&
      s.cpsns[t.cpsn].belief == Belief::kUndecided) {
    return true;  // a late map bit still tells the fate
  }
  return in_network(cfg, t) && !harmless(cfg, s, t);
}

bool may_reopen(const Config& cfg, const State& s) {
  for (int p = 0; p < cfg.paths; ++p) {
    const SenderPath& o = s.out[p];
    if (o.generation < cfg.generations || o.state == PathState::kOpening) return true;
  }
  return false;
}

// A delayed ACK that tells nothing new and can never tell anything later is as good as lost.
void drop_useless_acks(const Config& cfg, State& s) {
  if (may_reopen(cfg, s)) return;
  for (Ack& a : s.held) {
    if (!a.used) continue;
    State probe = s;
    apply_ack(cfg, probe, a);
    bool same = probe.out[a.path].acked_base == s.out[a.path].acked_base &&
                probe.out[a.path].state == s.out[a.path].state && probe.bad == s.bad;
    for (int i = 0; same && i < s.tx_count; ++i) same = probe.txs[i].status == s.txs[i].status;
    for (int c = 0; same && c < s.cpsn_count; ++c) {
      same = probe.cpsns[c].belief == s.cpsns[c].belief;
    }
    if (same) a = Ack{};
  }
}

}  // namespace

void normalise(const Config& cfg, State& s) {
  if (cfg.held > 0) drop_useless_acks(cfg, s);
  const std::array<int, 2> floors = {lowest_unresolved(s, 0), lowest_unresolved(s, 1)};
  int kept = 0;
  for (int i = 0; i < s.tx_count; ++i) {
    if (needed(cfg, s, s.txs[i], floors)) s.txs[kept++] = s.txs[i];
  }
  for (int i = kept; i < s.tx_count; ++i) s.txs[i] = Tx{};
  s.tx_count = static_cast<std::uint8_t>(kept);
  for (int i = 0; i < kept; ++i) {
    Tx& t = s.txs[i];
    if (t.generation != s.out[t.path].generation) t.status = Status::kResolved;
  }
  std::sort(s.txs.begin(), s.txs.begin() + kept, [](const Tx& a, const Tx& b) {
    return std::tuple(a.path, a.generation, (a.seq - kSeqStart) & (kSeqModulus - 1), a.cpsn) <
           std::tuple(b.path, b.generation, (b.seq - kSeqStart) & (kSeqModulus - 1), b.cpsn);
  });
  if (s.held[1].used && !s.held[0].used) std::swap(s.held[0], s.held[1]);
}

namespace {

struct Writer {
  Packed& out;
  std::uint32_t bits = 0;
  int count = 0;

  template <class T>
  void operator()(const T& v, int width) {
    bits |= static_cast<std::uint32_t>(v) << count;
    for (count += width; count >= 8; count -= 8, bits >>= 8) {
      out.bytes[out.size++] = static_cast<std::uint8_t>(bits);
    }
  }
  void flush() {
    if (count > 0) out.bytes[out.size++] = static_cast<std::uint8_t>(bits);
  }
};

struct Reader {
  const std::uint8_t* in;
  std::uint32_t bits = 0;
  int count = 0;

  template <class T>
  void operator()(T& v, int width) {
    for (; count < width; count += 8) bits |= static_cast<std::uint32_t>(*in++) << count;
    v = static_cast<T>(bits & ((1u << width) - 1));
    bits >>= width;
    count -= width;
  }
};

template <class IO, class S>
void walk(IO& io, S& s) {
  io(s.sends, 5);
  io(s.probes, 3);
  io(s.items, 3);
  io(s.highest, 4);
  io(s.filter, 8);  // windows above 4 do not occur
  io(s.tx_count, 6);
  io(s.cpsn_count, 4);
  for (auto& o : s.out) {
    io(o.state, 2);
    io(o.generation, 2);
    io(o.last_probe_floor, 4);
    io(o.next, 8);
    io(o.acked_base, 8);
    io(o.start, 8);
  }
  for (auto& r : s.in) {
    io(r.generation, 2);
    io(r.base, 8);
    io(r.map, 8);
    io(r.refused, 8);
  }
  for (auto& a : s.held) {
    io(a.used, 1);
    if (!a.used) continue;
    io(a.path, 1);
    io(a.through, 4);
    io(a.base, 8);
    io(a.map, 8);
    io(a.refused, 8);
  }
  for (int i = 0; i < s.cpsn_count; ++i) {
    auto& c = s.cpsns[i];
    io(c.item, 3);
    io(c.open, 1);
    io(c.belief, 2);
    io(c.decision, 2);
    io(c.queued, 1);
    io(c.voided, 1);
    if (!c.open) continue;
    io(c.generation, 2);
    io(c.start, 8);
  }
  for (int i = 0; i < s.tx_count; ++i) {
    auto& t = s.txs[i];
    io(t.path, 1);
    io(t.generation, 2);
    io(t.kind, 2);
    io(t.status, 2);
    io(t.net, 2);
    io(t.floor, 3);
    io(t.seq, 8);
    io(t.cpsn, 4);
  }
}

}  // namespace

void pack(const State& s, Packed& out) {
  out.size = 0;
  Writer w{out};
  walk(w, s);
  w.flush();
}

void unpack(const std::uint8_t* bytes, State& s) {
  s = State{};
  Reader r{bytes};
  walk(r, s);
}

}  // namespace metaroce::model
