// Text for counterexamples.
#include <sstream>

#include "tests/model/actions.h"
#include "tests/model/rules.h"

namespace metaroce::model {
namespace {

const char* kind_name(Kind k) {
  switch (k) {
    case Kind::kData:
      return "DATA";
    case Kind::kVoid:
      return "VOID";
    case Kind::kProbe:
      return "PROBE";
    case Kind::kOpen:
      return "PATH_OPEN";
  }
  return "?";
}

const char* belief_name(Belief b) {
  switch (b) {
    case Belief::kUndecided:
      return "undecided";
    case Belief::kAccepted:
      return "accepted";
    case Belief::kRefused:
      return "refused";
  }
  return "?";
}

std::string tx_name(const Tx& t) {
  std::ostringstream o;
  o << kind_name(t.kind) << " path " << int(t.path) << " seq " << int(t.seq) << " floor "
    << int(t.floor);
  if (t.kind != Kind::kProbe) o << " cpsn " << int(t.cpsn);
  return o.str();
}

std::string ack_name(const Ack& a) {
  std::ostringstream o;
  o << "ACK path " << int(a.path) << " base " << int(a.base) << " map " << int(a.map) << " refused "
    << int(a.refused) << " through " << int(a.through);
  return o.str();
}

}  // namespace

const char* step_name(Step step) {
  static const char* const kNames[kSteps] = {
      "send new",     "repair",     "idle copy", "void",    "probe",    "full span",
      "repeat probe", "judge lost", "resolve",   "suspect", "limit",    "close",
      "re-open",      "deliver",    "no buffer", "ack",     "hold ack", "held ack"};
  return kNames[static_cast<int>(step)];
}

std::string describe(const Config&, const State& s, Action x) {
  std::ostringstream o;
  const int a = x.a;
  const int b = x.b;
  switch (x.step) {
    case Step::kSendNew:
      o << "send item " << b << " as cpsn " << int(s.cpsn_count);
      break;
    case Step::kRepair:
      o << "repair cpsn " << b;
      break;
    case Step::kIdleCopy:
      o << "idle copy of cpsn " << b;
      break;
    case Step::kVoid:
      o << "void cpsn " << b;
      break;
    case Step::kProbe:
      o << "probe";
      break;
    case Step::kFullSpan:
      o << "full span: re-send the lowest unresolved";
      break;
    case Step::kRepeatProbe:
      o << "repeat the last probe";
      break;
    case Step::kJudgeLost:
      o << "sender holds lost: " << tx_name(s.txs[a]);
      return o.str();
    case Step::kResolve:
      o << "sender resolves: " << tx_name(s.txs[a]);
      return o.str();
    case Step::kSuspect:
      o << "suspect, reinject";
      break;
    case Step::kLimit:
      o << "data limit reached, resolve into the queue";
      break;
    case Step::kClose:
      o << "close";
      break;
    case Step::kReopen:
      o << "re-open";
      break;
    case Step::kDeliver:
      o << "arrives: " << tx_name(s.txs[a]);
      return o.str();
    case Step::kDeliverNoBuffer:
      o << "arrives, no buffer: " << tx_name(s.txs[a]);
      return o.str();
    case Step::kAck:
      o << "sender reads " << ack_name(snapshot(s, a));
      return o.str();
    case Step::kHoldAck:
      o << "delayed: " << ack_name(snapshot(s, a));
      return o.str();
    case Step::kHeldAck:
      o << "sender reads delayed " << ack_name(s.held[a]);
      return o.str();
  }
  const SenderPath& p = s.out[a];
  o << "  [path " << a << " generation " << int(p.generation) << " next seq " << int(p.next) << "]";
  return o.str();
}

std::string describe(const Config& cfg, const State& s) {
  std::ostringstream o;
  for (int p = 0; p < cfg.paths; ++p) {
    o << "  path " << p << ": sender state " << int(s.out[p].state) << " generation "
      << int(s.out[p].generation) << " next " << int(s.out[p].next) << " lowest unresolved "
      << lowest_unresolved(s, p) << " acked base " << int(s.out[p].acked_base)
      << "; receiver generation " << int(s.in[p].generation) << " base " << int(s.in[p].base)
      << " map " << int(s.in[p].map) << " refused " << int(s.in[p].refused) << "\n";
  }
  for (int c = 0; c < s.cpsn_count; ++c) {
    o << "  cpsn " << c << (s.cpsns[c].open ? " opens path " : " item ") << int(s.cpsns[c].item)
      << ": sender believes " << belief_name(s.cpsns[c].belief) << ", receiver decided "
      << belief_name(s.cpsns[c].decision) << (s.cpsns[c].queued ? ", queued" : "")
      << (s.cpsns[c].voided ? ", voided" : "") << "\n";
  }
  static const char* const kStatus[] = {"live", "lost", "resolved"};
  static const char* const kNet[] = {"flying", "arrived", "gone"};
  for (int i = 0; i < s.tx_count; ++i) {
    const Tx& t = s.txs[i];
    o << "  " << tx_name(t) << ": " << kStatus[int(t.status)] << ", " << kNet[int(t.net)] << "\n";
  }
  return o.str();
}

}  // namespace metaroce::model
