// Liveness: from every reachable state the sender must finish once the network stops losing. All
// that is under way at that moment is taken as lost, so the run leans on nothing but the rules.
// The backstop (MR-LOSS-050) is left out on purpose: it would hide a forgotten packet.
#include "tests/model/actions.h"
#include "tests/model/invariants.h"
#include "tests/model/rules.h"

namespace metaroce::model {
namespace {

constexpr int kMaxRounds = 24;

class FairRun {
 public:
  FairRun(const Config& cfg, const State& s, std::vector<std::string>* log)
      : cfg_(cfg), s_(s), log_(log) {}

  Violation run() {
    for (int i = 0; i < s_.tx_count; ++i) {
      if (s_.txs[i].net == Net::kFlying) s_.txs[i].net = Net::kGone;
    }
    s_.held = {};
    for (int round = 0; round < kMaxRounds; ++round) {
      if (done()) return Violation::kNone;
      for (int p = 0; p < cfg_.paths; ++p) timer(p);
      repair_all();
      send_waiting();
      const Violation v = s_.bad != Violation::kNone ? s_.bad : check_state(cfg_, s_);
      if (v != Violation::kNone) return v;
      normalise(cfg_, s_);
    }
    return Violation::kStuck;
  }

 private:
  bool done() const {
    if (lowest_undecided(s_) != s_.cpsn_count || s_.items != cfg_.items) return false;
    for (int item = 0; item < cfg_.items; ++item) {
      if (item_waits(cfg_, s_, item)) return false;
    }
    return true;
  }

  void note(const char* what, int path) {
    if (log_ != nullptr) log_->push_back(what + std::to_string(path));
  }
  void note(const char* what, Action action) {
    if (log_ != nullptr) log_->push_back(what + describe(cfg_, s_, action));
  }

  // The packet just sent arrives and is answered.
  void answer(int path) {
    const int last = seq_add(s_.out[path].next, -1);
    const int generation = s_.out[path].generation;
    for (int i = 0; i < s_.tx_count; ++i) {
      const Tx& t = s_.txs[i];
      if (t.path != path || t.seq != last || t.generation != generation) continue;
      if (t.net != Net::kFlying) continue;
      note("  ", Action{Step::kDeliver, static_cast<std::uint8_t>(i)});
      deliver(cfg_, s_, i, false);
      break;
    }
    const Ack a = snapshot(s_, path);
    note("  ", Action{Step::kAck, static_cast<std::uint8_t>(path)});
    apply_ack(cfg_, s_, a);
  }

  // covers MR-LOSS-001: what is older than an answered packet and not shown is lost.
  void judge_gaps(int path, int probe) {
    for (int i = 0; i < s_.tx_count; ++i) {
      const Tx& t = s_.txs[i];
      const bool current = t.path == path && t.generation == s_.out[path].generation;
      if (current && seq_diff(t.seq, probe) < 0) judge_lost(cfg_, s_, i);
    }
  }

  // covers MR-LOSS-030 MR-PATH-008 MR-PATH-031
  void timer(int path) {
    const SenderPath& o = s_.out[path];
    if (o.state != PathState::kOpen && o.state != PathState::kProving) return;
    const bool at_limit = at_data_limit(cfg_, s_, path);
    const bool proving = o.state == PathState::kProving;
    if (at_limit && !proving) limit(cfg_, s_, path);
    if (!has_unresolved(s_, path) && !at_limit && !proving) return;
    const int probe = o.next;
    if (span_full(cfg_, s_, path)) {
      if (!send_full_span(cfg_, s_, path)) return;
      note("full span re-send on path ", path);
    } else if (send_probe(cfg_, s_, path)) {
      note("probe on path ", path);
    } else if (repeat_last_probe(cfg_, s_, path)) {
      note("last probe repeated on path ", path);
    } else {
      return;
    }
    answer(path);
    judge_gaps(path, probe);
    for (int i = 0; i < s_.tx_count; ++i) {
      if (s_.txs[i].path == path) resolve(cfg_, s_, i);
    }
  }

  void repair_all() {
    for (int c = 0; c < s_.cpsn_count; ++c) {
      for (int p = 0; p < cfg_.paths && s_.cpsns[c].queued; ++p) {
        if (!send_repair(cfg_, s_, p, c)) continue;
        note("repair on path ", p);
        answer(p);
      }
    }
  }

  void send_waiting() {
    for (int item = 0; item < cfg_.items; ++item) {
      for (int p = 0; p < cfg_.paths; ++p) {
        if (!send_new(cfg_, s_, p, item)) continue;
        note("new data on path ", p);
        answer(p);
      }
    }
  }

  const Config& cfg_;
  State s_;
  std::vector<std::string>* log_;
};

}  // namespace

Violation check_fair_run(const Config& cfg, const State& s, std::vector<std::string>* log) {
  return FairRun(cfg, s, log).run();
}

}  // namespace metaroce::model
