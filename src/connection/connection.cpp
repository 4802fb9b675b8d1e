#include "connection/connection.h"

#include <algorithm>

namespace metaroce::connection {

Connection::Connection(Shared& shared, ConnectionHandle handle)
    : shared_(shared),
      handle_(handle),
      peer_(std::max<size_t>(shared.local.size(), 1)),
      paths_(shared.paths, shared.settings, shared.sent),
      sender_(shared.sends, shared.settings, handle),
      receiver_(shared.receives, shared.settings, handle, this) {}

Connection::~Connection() {
  if (!window_ || controls_used_ == 0) return;
  for (uint32_t c = window_->lowest_undecided(); c != window_->next(); ++c) {
    const SendEntry& e = window_->at(c);
    if (e.control && e.state == SendEntry::State::kUndecided) {
      shared_.controls.release(e.fragment.send);
    }
  }
}

void Connection::event(ConnectionEventKind kind, Status status, uint32_t detail) {
  ConnectionEvent e;
  e.kind = kind;
  e.connection = handle_;
  e.status = status;
  e.detail = detail;
  e.peer = peer_from_;
  // The ring has room for every event a connection can raise; the oldest goes if nobody polls.
  if (shared_.events.full()) shared_.events.pop();
  shared_.events.push(e);
}

void Connection::tell_path_state(PathSlot& slot) {
  const PathState state = public_state(slot.tx.state());
  if (state == slot.told) return;
  PathEvent e;
  e.connection = handle_;
  e.path = slot.tx.id;
  e.plane = slot.tx.plane;
  e.from = slot.told;
  e.to = state;
  slot.told = state;
  if (shared_.path_events.full()) {
    shared_.path_events.pop();
    ++shared_.path_events_missed;
  }
  shared_.path_events.push(e);
}

Status Connection::post(const WorkRequest& request) {
  if (state_ != ConnectionState::kOpen && state_ != ConnectionState::kHelloSent &&
      state_ != ConnectionState::kAccepting) {
    return Status::kNotConnected;
  }
  wake();
  completions_hint_ = true;  // on a failed stream it completes at once
  return sender_.post(request, shared_.telemetry.now());
}

Status Connection::post_receive(Time, const ReceiveRequest& request) {
  if (state_ != ConnectionState::kOpen && state_ != ConnectionState::kHelloSent &&
      state_ != ConnectionState::kAccepting) {
    return Status::kNotConnected;
  }
  wake();
  completions_hint_ = true;
  return receiver_.post(request);
}

size_t Connection::poll(std::span<Completion> out) {
  size_t n = sender_.poll(out);
  n += receiver_.poll(out.subspan(n));
  if (n < out.size()) completions_hint_ = false;
  return n;
}

void Connection::drop_all_sends() {
  if (!window_) return;
  for (uint32_t c = window_->lowest_undecided(); c != window_->next(); ++c) {
    SendEntry& e = window_->at(c);
    if (e.control || e.state != SendEntry::State::kUndecided) continue;
    unqueue(c, e);
    e.state = SendEntry::State::kDecided;
  }
  window_->advance();
}

void Connection::close(Time now, uint32_t code) {
  if (state_ == ConnectionState::kHelloSent || state_ == ConnectionState::kAccepting) {
    return fail(now, Status::kClosed, ConnectionEventKind::kClosed);
  }
  if (state_ != ConnectionState::kOpen) return;
  wake();
  drop_all_sends();
  sender_.fail_all(Status::kClosed);
  receiver_.fail_all(Status::kClosed);
  completions_hint_ = true;
  state_ = ConnectionState::kClosing;
  // MR-CONN-033: a peer that is heard of and takes no CLOSE does not hold us.
  give_up_at_ = now + nanoseconds(shared_.settings.death_timeout) * 2;
  wire::ControlPacket packet;  // MR-CONN-030
  packet.opcode = wire::ControlOpcode::kClose;
  packet.value = code;
  if (queue_control(packet, kControlList) == kNoList) {
    fail(now, Status::kClosed, ConnectionEventKind::kClosed);
  }
}

bool Connection::idle() const {
  if (!sender_.idle()) return false;
  if (paths_.resting()) return true;
  return std::none_of(paths_.begin(), paths_.end(), [](const auto& slot) {
    return slot->rx.is_open() && slot->rx.ack_at() != kNever;
  });
}

uint64_t Connection::hash() const {
  uint64_t h = handle_ * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(state_);
  const auto mix = [&h](uint64_t v) { h = (h ^ v) * 0x100000001b3ull; };
  const auto mix_path = [&mix](uint32_t next, uint32_t lowest, uint32_t in_flight, uint8_t state,
                               uint64_t receiver) {
    mix(next);
    mix(lowest);
    mix(in_flight);
    mix(state);
    mix(receiver);
  };
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    if (paths_.resting()) {
      const path::RestingPath& path = paths_.at_rest(i);
      mix_path(path.next_seq, path.next_seq, 0, path.state, path::PathReceiver::hash_of(path));
    } else {
      const path::PathSender& tx = paths_[i]->tx;
      mix_path(tx.next_seq(), tx.lowest_unresolved(), tx.in_flight(),
               static_cast<uint8_t>(tx.state()), paths_[i]->rx.hash());
    }
  }
  if (window_) mix((uint64_t{window_->lowest_undecided()} << 32) | window_->next());
  if (filter_) mix((uint64_t{filter_->decided_through()} << 32) | filter_->highest());
  mix(receiver_.hash());
  mix(counters_.bytes_sent);
  mix(counters_.bytes_received);
  return h;
}

}  // namespace metaroce::connection
