#include "tests/oracle/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace metaroce::oracle {

namespace {

constexpr const char* kCauseNames[] = {
    "none",       "bad_key", "bounds",       "right",      "misaligned", "foreign",
    "mortal",     "window",  "window_right", "too_short",  "no_receive", "own_reset",
    "peer_reset", "drain",   "own_close",    "peer_close", "peer_abort", "death"};
static_assert(std::size(kCauseNames) == static_cast<size_t>(Cause::kCount));

const char* row_name(int row) {
  return row < kRequestKinds ? to_string(static_cast<StepKind>(row)) : "receive";
}

/// How the first request that a fault meets ends; kOk: it is met by none.
Status first_status(int row, Cause cause) {
  const auto kind = static_cast<StepKind>(row);
  const bool atomic = kind == StepKind::kFetchAdd || kind == StepKind::kCompareSwap;
  const bool send = kind == StepKind::kSend || kind == StepKind::kSendImm;
  const bool ends_key = kind == StepKind::kSendInv;
  switch (cause) {
    case Cause::kBadKey:  // a Send names no key
    case Cause::kForeign:
    case Cause::kRight:
      return send ? Status::kOk : Status::kAccess;
    case Cause::kBounds:  // SEND_INV names no address
    case Cause::kWindowRight:
      return send || ends_key ? Status::kOk : Status::kAccess;
    case Cause::kMisaligned:  // only atomics have an alignment
      return atomic ? Status::kUnsupported : Status::kOk;
    case Cause::kMortal:  // the program aims neither atomics nor SEND_INV at these
      return send || ends_key || atomic ? Status::kOk : Status::kAccess;
    case Cause::kWindow:
      return send || atomic ? Status::kOk : Status::kAccess;
    case Cause::kTooShort:  // the buffer of a Write with immediate is not written
      return send || ends_key ? Status::kLength : Status::kOk;
    case Cause::kNoReceive:
      return send || ends_key || kind == StepKind::kWriteImm ? Status::kNotReady : Status::kOk;
    case Cause::kOwnReset:
      return Status::kFlushed;
    case Cause::kPeerReset:
    case Cause::kPeerAbort:
      return Status::kPeerFailed;
    case Cause::kOwnClose:
    case Cause::kPeerClose:
      return Status::kClosed;
    case Cause::kDeath:
      return Status::kUnresponsive;
    case Cause::kDrain:  // what is posted after it is not taken
    case Cause::kNone:
    case Cause::kCount:
      break;
  }
  return Status::kOk;
}

bool possible_receive(Cause cause, Status status) {
  switch (cause) {
    case Cause::kNone:
      return status == Status::kOk;
    case Cause::kTooShort:
      return status == Status::kLength;
    case Cause::kOwnReset:  // whatever ended the stream of the sender is a reset of the peer here
    case Cause::kPeerReset:
    case Cause::kDrain:
      return status == Status::kFlushed;
    case Cause::kOwnClose:
    case Cause::kPeerClose:
    case Cause::kPeerAbort:
    case Cause::kDeath:
      return status == Status::kFlushed ||
             status == first_status(static_cast<int>(StepKind::kWrite), cause);
    default:
      return false;
  }
}

/// Seen now and then, and not worth a search: the peer's last words came or did not.
bool rare(Cause cause, Status status) {
  return cause == Cause::kDeath && (status == Status::kPeerGone || status == Status::kUnreachable);
}

}  // namespace

const char* to_string(Cause cause) { return kCauseNames[static_cast<size_t>(cause)]; }

Cause cause_of(Fault fault) {
  static constexpr Cause kCauses[] = {Cause::kNone,   Cause::kBadKey,     Cause::kBounds,
                                      Cause::kRight,  Cause::kMisaligned, Cause::kForeign,
                                      Cause::kMortal, Cause::kWindow,     Cause::kWindowRight};
  return kCauses[static_cast<size_t>(fault)];
}

void Table::add(const Table& other) {
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCauses; ++c) {
      for (int s = 0; s < kStatuses; ++s) cell[r][c][s] += other.cell[r][c][s];
    }
  }
}

bool possible(int row, Cause cause, Status status) {
  if (row == kRequestKinds) return possible_receive(cause, status);
  if (cause == Cause::kNone) return status == Status::kOk;
  if (cause == Cause::kDrain) return status == Status::kOk;
  // Behind the request that a fault ended, all end so.
  if (status == Status::kFlushed) return true;
  if (status == Status::kOk) {
    // What may come before the fault does: a key that ends, a stream that is reset or drained.
    if (cause == Cause::kMortal || cause == Cause::kWindow) {
      return first_status(row, cause) != Status::kOk;
    }
    return cause == Cause::kPeerReset;
  }
  return status == first_status(row, cause);
}

std::string print_table(const Table& table) {
  std::string out = fmt::format("{:12} {:13}", "operation", "fault");
  for (int s = 0; s < kStatuses; ++s) {
    bool used = false;
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCauses; ++c) {
        used = used || possible(r, static_cast<Cause>(c), static_cast<Status>(s));
      }
    }
    if (used) out += fmt::format(" {:>12}", metaroce::to_string(static_cast<Status>(s)));
  }
  out += "\n";
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCauses; ++c) {
      std::string line = fmt::format("{:12} {:13}", row_name(r), kCauseNames[c]);
      bool any = false;
      for (int s = 0; s < kStatuses; ++s) {
        const auto cause = static_cast<Cause>(c);
        bool column = false;
        for (int k = 0; k < kRows * kCauses; ++k) {
          column = column ||
                   possible(k / kCauses, static_cast<Cause>(k % kCauses), static_cast<Status>(s));
        }
        if (!column) continue;
        const bool can = possible(r, cause, static_cast<Status>(s));
        any = any || can;
        line += can ? fmt::format(" {:12}", table.cell[r][c][s]) : fmt::format(" {:>12}", "-");
      }
      if (any) out += line + "\n";
    }
  }
  return out;
}

std::string wrong_cells(const Table& table) {
  std::string out;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCauses; ++c) {
      for (int s = 0; s < kStatuses; ++s) {
        const auto cause = static_cast<Cause>(c);
        const auto status = static_cast<Status>(s);
        const bool can = possible(r, cause, status);
        const bool seen = table.cell[r][c][s] > 0;
        if (can == seen || (seen && rare(cause, status))) continue;
        out += fmt::format("{}: {} x {} x {}\n", can ? "empty" : "not possible, and seen",
                           row_name(r), kCauseNames[c], metaroce::to_string(status));
      }
    }
  }
  return out;
}

}  // namespace metaroce::oracle
