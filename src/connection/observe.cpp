// What others see of a connection: names, status, counters, changes of state.
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {

const char* to_string(PathState state) {
  switch (state) {
    case PathState::kOpening:
      return "opening";
    case PathState::kValidating:
      return "validating";
    case PathState::kGood:
      return "good";
    case PathState::kSuspect:
      return "suspect";
    case PathState::kDead:
      return "dead";
    case PathState::kClosed:
      return "closed";
  }
  return "?";
}

PathState public_state(path::State state) {
  switch (state) {
    case path::State::kClosed:
      return PathState::kClosed;
    case path::State::kOpening:
      return PathState::kOpening;
    case path::State::kValidating:
      return PathState::kValidating;
    case path::State::kGood:
      return PathState::kGood;
    case path::State::kSuspect:
      return PathState::kSuspect;
    case path::State::kDead:
      return PathState::kDead;
  }
  return PathState::kClosed;
}

const char* to_string(PathChange change) {
  switch (change) {
    case PathChange::kNone:
      return "none";
    case PathChange::kOpened:
      return "opened";
    case PathChange::kConfirmed:
      return "confirmed";
    case PathChange::kValidated:
      return "validated";
    case PathChange::kSilent:
      return "silent";
    case PathChange::kUnanswered:
      return "unanswered";
    case PathChange::kAnswered:
      return "answered";
    case PathChange::kLinkDown:
      return "link down";
    case PathChange::kPeerReport:
      return "peer report";
    case PathChange::kNotTaken:
      return "not taken";
    case PathChange::kEnded:
      return "ended";
  }
  return "?";
}

const char* to_string(ConnectionState state) {
  switch (state) {
    case ConnectionState::kHelloSent:
      return "connecting";
    case ConnectionState::kAccepting:
      return "accepting";
    case ConnectionState::kOpen:
      return "open";
    case ConnectionState::kClosing:
      return "closing";
    case ConnectionState::kTimeWait:
      return "time-wait";
    case ConnectionState::kDead:
      return "dead";
  }
  return "?";
}

void Connection::fill_status(Time now, ConnectionStatus& out) const {
  out.peer = peer_from_;
  out.payload = payload_;
  out.window = static_cast<uint32_t>(std::min<uint64_t>(congestion_.bytes(), 0xFFFFFFFFu));
  out.in_flight_packets = in_flight_packets_;
  out.paths = tx_paths_;
  out.planes = planes_;
  out.state = state_;
  out.stall = stall_reason(now);
  uint32_t age_ms = 0;
  out.has_work = sender_.oldest(now, out.oldest_work, age_ms);
  out.oldest_age = milliseconds(age_ms);
  out.bytes_waiting = sender_.bytes_waiting();
  out.in_flight_bytes = in_flight_bytes_;
  out.silent = now > heard_at_ ? now - heard_at_ : Duration{};
  if (session_ != nullptr) {
    out.suite = static_cast<uint8_t>(session_->suite());
    out.peer_name = peer_name_;
    out.key_updates = session_->send_generation();
  }
  out.counters = counters_;
  out.counters.messages_sent = sender_.messages_accepted();
  out.counters.messages_received = receiver_.messages_delivered();
}

namespace {

uint32_t loss_ppm(uint32_t q16) { return static_cast<uint32_t>(uint64_t{q16} * 1'000'000 / 65536); }

void fill(const PathSlot& slot, PathStatus& s) {
  const path::PathSender& tx = slot.tx;
  s.state = public_state(tx.state());
  s.source_port = tx.port;
  s.pmtu = tx.pmtu;
  s.window = static_cast<uint32_t>(tx.window().bytes());
  s.in_flight = tx.in_flight();
  s.srtt = tx.srtt();
  s.min_rtt = tx.min_rtt();
  s.epoch = tx.epoch();
  s.in_flight_packets = tx.in_flight_packets();
  s.loss_ppm = loss_ppm(tx.loss_fraction());
  s.change = slot.change;
  s.changed_at = slot.changed_at;
}

void fill(Time now, const path::RestingPath& path, PathStatus& s) {
  s.state = public_state(static_cast<path::State>(path.state));
  s.source_port = path.port;
  s.pmtu = path.pmtu;
  s.window = path.window;
  s.srtt = nanoseconds(path.srtt);
  s.min_rtt = nanoseconds(path.min_rtt);
  s.epoch = path.epoch;
  s.loss_ppm = loss_ppm(path.loss_q16);
  s.change = static_cast<PathChange>(path.change);
  s.changed_at = path::from_coarse(now, path.changed_at);
}

}  // namespace

size_t Connection::fill_path_status(std::span<PathStatus> out) const {
  const size_t n = std::min<size_t>(paths_.size(), out.size());
  for (uint32_t i = 0; i < n; ++i) {
    PathStatus& s = out[i];
    s = PathStatus{};
    const bool sends = i < tx_paths_;
    if (paths_.resting()) {
      const path::RestingPath& path = paths_.at_rest(i);
      fill(shared_.telemetry.now(), path, s);
      s.plane = sends ? path.plane : path.rx_plane;
    } else {
      fill(*paths_[i], s);
      s.plane = sends ? paths_[i]->tx.plane : paths_[i]->rx.plane;
    }
    s.id = static_cast<uint8_t>(i);
    s.peer_port = peer_[s.plane].port;
    s.counters = paths_.counters(i);
  }
  return n;
}

void Connection::add_counters(PathCounters& paths, ConnectionCounters& own) const {
  for (uint32_t i = 0; i < paths_.size(); ++i) add(paths, paths_.counters(i));
  ConnectionCounters mine = counters_;
  mine.messages_sent = sender_.messages_accepted();
  mine.messages_received = receiver_.messages_delivered();
  add(own, mine);
}

void Connection::note_change(PathSlot& slot, PathChange reason) {
  const path::State state = slot.tx.state();
  if (state == slot.noted) return;
  shared_.telemetry.emit(EventKind::path_state, handle_, slot.tx.id,
                         static_cast<uint64_t>(slot.noted), static_cast<uint64_t>(state),
                         static_cast<uint64_t>(reason));
  slot.noted = state;
  slot.change = reason;
  slot.changed_at = shared_.telemetry.now();
}

void Connection::note_state(Status status) {
  if (state_ == told_state_) return;
  shared_.telemetry.emit(EventKind::connection_state, handle_, 0xFF,
                         static_cast<uint64_t>(told_state_), static_cast<uint64_t>(state_),
                         static_cast<uint64_t>(status));
  told_state_ = state_;
}

}  // namespace metaroce::connection
