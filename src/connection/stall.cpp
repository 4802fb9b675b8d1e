// Why a connection's work does not move: a look from outside that changes nothing.
#include "connection/connection.h"

namespace metaroce::connection {

const char* to_string(StallReason reason) {
  switch (reason) {
    case StallReason::kNone:
      return "none";
    case StallReason::kApplication:
      return "application";
    case StallReason::kSetup:
      return "set-up";
    case StallReason::kWindow:
      return "window";
    case StallReason::kHint:
      return "hint";
    case StallReason::kCredit:
      return "credit";
    case StallReason::kCpsnWindow:
      return "cpsn window";
    case StallReason::kOrderHole:
      return "order hole";
    case StallReason::kPathDead:
      return "path dead";
    case StallReason::kPool:
      return "pool";
    case StallReason::kClosed:
      return "closed";
  }
  return "?";
}

StallReason Connection::stall_reason(Time now) const {
  switch (state_) {
    case ConnectionState::kHelloSent:
    case ConnectionState::kAccepting:
      return StallReason::kSetup;
    case ConnectionState::kOpen:
      break;
    default:
      return StallReason::kClosed;
  }
  if (sender_.idle() && window_->size() == 0) {
    return receiver_.has_order_hole() ? StallReason::kOrderHole : StallReason::kApplication;
  }
  bool good = false;
  for (uint32_t i = 0; i < tx_paths_; ++i) good |= paths_[i]->tx.is_good();
  if (!good) return StallReason::kPathDead;
  if (sender_.bytes_waiting() > 0 || sender_.waits_for_credit()) {
    if (sender_.has_active()) return stall_of_waiting();
    if (sender_.waits_for_credit() || sender_.next_wakeup() > now) {
      return in_flight_packets_ > 0 && !sender_.waits_for_credit() ? StallReason::kNone
                                                                   : StallReason::kCredit;
    }
    return in_flight_packets_ > 0 ? StallReason::kOrderHole : StallReason::kCredit;
  }
  return StallReason::kNone;  // all of it is out, answers are on their way
}

StallReason Connection::stall_of_waiting() const {
  if (window_->room(false) == 0) return StallReason::kCpsnWindow;
  if (shared_.chunks.available() < 2 || shared_.sent.available() == 0) return StallReason::kPool;
  if (new_packet_budget() == 0) return StallReason::kWindow;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    const path::PathSender& tx = paths_[i]->tx;
    if (tx.is_good() && tx.has_room(payload_ + 64) && tx.span_room() > 0) return StallReason::kNone;
  }
  return StallReason::kWindow;
}

void Connection::note_stall(Time now) {
  const StallReason reason = stall_reason(now);
  if (reason == told_stall_) return;
  const auto stalled = [](StallReason r) {
    return r != StallReason::kNone && r != StallReason::kApplication;
  };
  if (stalled(told_stall_)) {
    shared_.telemetry.emit(EventKind::stall_end, handle_, 0xFF, static_cast<uint64_t>(told_stall_),
                           static_cast<uint64_t>((now - stalled_at_).ns));
  }
  if (stalled(reason)) {
    shared_.telemetry.emit(EventKind::stall_begin, handle_, 0xFF, static_cast<uint64_t>(reason));
  }
  told_stall_ = reason;
  stalled_at_ = now;
}

}  // namespace metaroce::connection
