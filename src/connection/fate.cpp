// What became of what was sent: acknowledgements and losses, told to messages and windows.
#include <algorithm>

#include "connection/connection.h"
#include "wire/minifloat.h"

namespace metaroce::connection {

using path::SentKind;

void Connection::on_ack(Time now, const RxPacket& rx) {
  const auto decoded = wire::decode_ack(rx.bytes);
  if (!decoded) return shared_.drop(decoded.error());
  if (state_ == ConnectionState::kAccepting) return shared_.drop(wire::DropReason::kNotConfirmed);
  const wire::AckPacket& ack = *decoded;
  wake();
  if (ack.f.path >= tx_paths_ || paths_[ack.f.path]->tx.state() == path::State::kOpening ||
      paths_[ack.f.path]->tx.state() == path::State::kClosed) {
    return shared_.drop(wire::DropReason::kUnknownPath);
  }
  PathSlot& slot = *paths_[ack.f.path];
  current_ack_ = &ack;
  current_time_ = now;
  acked_bytes_now_ = 0;
  newest_refused_ = ack.f.base + static_cast<uint32_t>(std::max(ack.refused.last_from(0), 0));
  // Before the ACK frees anything: was the window in use? (MR-CC-006)
  const bool limited = slot.tx.in_flight() * 2 >= slot.tx.window().bytes();
  const bool all_limited = in_flight_bytes_ * 2 >= congestion_.bytes();
  const auto before = slot.tx.state();
  const path::AckOutcome outcome = slot.tx.on_ack(now, ack, *this);
  current_ack_ = nullptr;
  if (!outcome.valid) return shared_.drop(wire::DropReason::kAckInvalid);

  shared_.telemetry.emit(EventKind::ack_received, handle_, ack.f.path, ack.f.counter, ack.f.base,
                         outcome.newly_acked);
  heard_at_ = now;
  verdict_at_ = kNever;
  if (outcome.newer) {
    const uint16_t ce = slot.tx.ce_delta(ack.f.ce_count);
    apply_marks(now, slot, outcome, ce, limited, all_limited);
  }
  // MR-ACK-032: limits from ACKs that are far behind say nothing.
  if (seq_gt(ack.f.counter, highest_ack_counter_)) highest_ack_counter_ = ack.f.counter;
  if (highest_ack_counter_ - ack.f.counter <= 4096 && sender_.on_limit16(ack)) {
    completions_hint_ = true;
  }
  if (outcome.padded_acked > 0) on_padded_acked(now, slot, outcome.padded_acked);
  if (slot.tx.state() != before) {
    note_change(slot, PathChange::kAnswered);
    after_state_change(slot);
  }
  watch(slot);
  if (outcome.newly_acked > 0 && sender_.bytes_waiting() == 0) {
    const Time sent = now - wire::since_stamp(now, ack.f.stamp);
    for (uint32_t i = 0; i < tx_paths_; ++i) {
      path::PathSender& other = paths_[i]->tx;
      if (i == ack.f.path || !other.is_good()) continue;
      other.hasten_probe(now, sent);  // MR-LOSS-034
      watch(*paths_[i]);
    }
  }
  if (window_) window_->advance();
  const bool waiting = window_->size() > 0;
  expect_since_ = waiting ? now : kNever;
}

void Connection::apply_marks(Time now, PathSlot& slot, const path::AckOutcome& outcome, uint16_t ce,
                             bool limited, bool all_limited) {
  if (outcome.newly_acked == 0 && ce == 0) return;
  const uint64_t packet = payload_ + 64;
  const congestion::Limits path_limits{packet, shared_.settings.max_path_window,
                                       static_cast<uint32_t>(packet)};
  const congestion::Limits all_limits{packet * 2,
                                      uint64_t{shared_.settings.max_path_window} * tx_paths_,
                                      static_cast<uint32_t>(packet * 4 * std::max(tx_paths_, 1u))};
  congestion::AckInfo info;
  info.now = now;
  info.srtt = slot.tx.srtt();
  info.packets = std::max(outcome.newly_acked, uint32_t{ce});
  info.bytes = acked_bytes_now_;
  info.marked = ce;
  info.limited = limited;
  const uint64_t before = slot.tx.window().bytes();
  slot.tx.window().on_ack(info, path_limits);  // MR-CC-002
  if (slot.tx.window().bytes() < before) {
    shared_.telemetry.emit(EventKind::window_cut, handle_, slot.tx.id, before,
                           slot.tx.window().bytes(), ce);
  }
  info.limited = all_limited;
  congestion_.on_ack(info, all_limits);
  if (ce > 0) marked_at_ = now;
  if (outcome.spurious > 0) slot.tx.window().undo();
}

void Connection::on_delivered(uint8_t path, uint32_t seq, const path::SentRecord& record,
                              bool refused, bool was_lost) {
  current_refused_seq_ = seq;
  if (was_lost) {
    shared_.telemetry.emit(EventKind::packet_late, handle_, path, seq, record.cpsn);
  } else {
    --in_flight_packets_;
    in_flight_bytes_ -= record.size;
    acked_bytes_now_ += record.size;
  }
  if (record.kind == SentKind::kData && record.size > 1280) note_big_arrival(*paths_[path]);
  if (!window_->contains(record.cpsn)) return;
  SendEntry& entry = window_->at(record.cpsn);
  if (!was_lost && entry.live > 0) --entry.live;
  if (entry.state != SendEntry::State::kUndecided) return;
  decide(record.cpsn, entry, refused, path);
}

void Connection::on_delivered_run(uint8_t path, uint32_t first_seq, uint32_t count, uint32_t bytes,
                                  const path::SentRecord* records) {
  in_flight_packets_ -= count;
  in_flight_bytes_ -= bytes;
  acked_bytes_now_ += bytes;
  PathSlot& slot = *paths_[path];
  if (slot.big_losses > 0 || slot.pmtu_verify) {
    for (uint32_t i = 0; i < count; ++i) {
      const path::SentRecord& r = records[(first_seq + i) & 255];
      if (r.kind == SentKind::kData && r.size > 1280) note_big_arrival(slot);
    }
  }
  uint32_t send = message::kNoIndex;  // its accepted fragments are counted, then told at once
  uint32_t accepted = 0;
  uint64_t accepted_bytes = 0;
  for (uint32_t i = 0; i < count;) {
    const uint32_t begin = i;
    const uint32_t cpsn = records[(first_seq + i) & 255].cpsn;
    if (!window_->contains(cpsn)) {
      ++i;
      continue;
    }
    // New packets of a run have consecutive CPSNs, whose entries stand side by side.
    for (SendEntry& entry : window_->side_by_side(cpsn, count - i)) {
      if (records[(first_seq + i) & 255].cpsn != cpsn + (i - begin)) break;
      ++i;
      if (entry.live > 0) --entry.live;
      if (entry.state != SendEntry::State::kUndecided) continue;
      if (entry.control || entry.list != kNoList) {
        current_refused_seq_ = first_seq + i - 1;
        decide(cpsn + (i - 1 - begin), entry, false, path);
        continue;
      }
      entry.state = SendEntry::State::kDecided;
      if (entry.fragment.send != send) {
        if (accepted > 0) sender_.on_accepted(send, accepted);
        send = entry.fragment.send;
        accepted = 0;
      }
      ++accepted;
      accepted_bytes += entry.fragment.length;
    }
  }
  if (accepted == 0) return;
  sender_.on_accepted(send, accepted);
  counters_.bytes_sent += accepted_bytes;
  progress_at_ = current_time_;
  completions_hint_ = true;
}

void Connection::note_big_arrival(PathSlot& slot) {
  slot.big_losses = 0;
  if (slot.pmtu_verify) stop_pmtu_search(slot);  // a full packet arrived: the size is right
}

void Connection::decide(uint32_t cpsn, SendEntry& entry, bool refused, uint8_t path) {
  entry.state = SendEntry::State::kDecided;
  unqueue(cpsn, entry);  // MR-CPSN-034
  progress_at_ = current_time_;
  completions_hint_ = true;
  if (entry.control) {
    const uint32_t slot = entry.fragment.send;
    if (refused) {
      on_control_refused(slot);
    } else {
      on_control_accepted(slot);
    }
    shared_.controls.release(slot);
    --controls_used_;
    return;
  }
  if (!refused) {
    counters_.bytes_sent += entry.fragment.length;
    sender_.on_accepted(entry.fragment.send);
    return;
  }
  ++counters_.refusals;
  shared_.telemetry.emit(EventKind::refusal_heard, handle_, path, current_refused_seq_, cpsn,
                         static_cast<uint64_t>(current_ack_->f.reason));
  const wire::AckFields& f = current_ack_->f;
  const Duration rtt = paths_[path]->tx.srtt();
  if (entry.voided) {
    sender_.on_refused(current_time_, entry.fragment, wire::Refusal::kVoid, {});
    return;
  }
  // MR-ACK-014: the reason belongs to one packet; a retry reason also to others of its stream.
  const bool same_stream = sender_.stream_of(entry.fragment) == f.refusal_stream;
  const bool fatal = f.reason >= wire::Refusal::kLength && f.reason <= wire::Refusal::kStreamClosed;
  const bool applies = same_stream && f.reason != wire::Refusal::kVoid &&
                       (!fatal || current_refused_seq_ == newest_refused_);
  if (!applies) {
    sender_.on_refused(current_time_, entry.fragment, wire::Refusal::kUnknown, rtt);
    return;
  }
  const Duration told = wire::decode_delay(f.refusal_delay);
  // MR-CPSN-015
  sender_.on_refused(current_time_, entry.fragment, f.reason, told.ns > 0 ? told : rtt);
}

void Connection::on_lost(uint8_t path, uint32_t seq, const path::SentRecord& record) {
  PathSlot& slot = *paths_[path];
  if (record.kind == SentKind::kPaddedProbe) return on_padded_lost(slot);
  --in_flight_packets_;
  in_flight_bytes_ -= record.size;
  shared_.telemetry.emit(EventKind::packet_lost, handle_, path, seq, record.cpsn,
                         slot.tx.lost_by_gap());
  if (slot.tx.lost_by_gap() && slot.tx.loss_means_congestion()) {  // MR-CC-005
    const uint64_t packet = payload_ + 64;
    const uint64_t window = slot.tx.window().bytes();
    slot.tx.window().on_congestion_loss(
        current_time_, slot.tx.srtt(),
        {packet, shared_.settings.max_path_window, static_cast<uint32_t>(packet)});
    if (slot.tx.window().bytes() < window) {
      shared_.telemetry.emit(EventKind::window_cut, handle_, path, window,
                             slot.tx.window().bytes());
    }
  }
  if (record.kind == SentKind::kData && record.size > 1280) note_big_loss(slot);
  if (!window_->contains(record.cpsn)) return;
  SendEntry& entry = window_->at(record.cpsn);
  if (entry.live > 0) --entry.live;
  if (entry.state != SendEntry::State::kUndecided) return;
  if (entry.live > 0 || entry.list != kNoList) {
    slot.tx.on_resent(current_time_, seq);  // another copy lives, or waits already (MR-PATH-016)
    return;
  }
  entry.lost_path = path;
  entry.lost_seq = seq;
  // MR-LOSS-020: repaired where it was lost while that path is GOOD.
  queue_repair(record.cpsn, entry, slot.tx.is_good() && !entry.control ? path : kAnyList);
}

RepairList& Connection::list(uint16_t id) {
  if (id == kAnyList) return any_;
  if (id == kControlList) return control_;
  return paths_[id]->repair;
}

void Connection::queue_repair(uint32_t cpsn, SendEntry& entry, uint16_t id) {
  if (entry.control && id == kAnyList) id = kControlList;
  list(id).push(*window_, cpsn, id);
  ++repairs_;
}

void Connection::unqueue(uint32_t cpsn, SendEntry& entry) {
  if (entry.list == kNoList) return;
  list(entry.list).remove(*window_, cpsn);
  --repairs_;
}

void Connection::on_control_accepted(uint32_t slot_index) {
  survey_due_ = true;
  const wire::ControlPacket& body = shared_.controls[slot_index];
  switch (body.opcode) {
    case wire::ControlOpcode::kPathOpen:
      if (body.path < tx_paths_ && paths_[body.path]->tx.state() == path::State::kOpening) {
        PathSlot& slot = *paths_[body.path];
        slot.tx.become_validating(current_time_);  // MR-CONN-020
        note_change(slot, PathChange::kConfirmed);
        start_pmtu_search(current_time_, slot, pmtu_target(slot.tx.plane), false);
      }
      return;
    case wire::ControlOpcode::kReset:
      sender_.on_reset_accepted(body.stream, body.generation != 0);
      return;
    case wire::ControlOpcode::kClose:
      fail(current_time_, Status::kClosed, ConnectionEventKind::kClosed);
      return;
    case wire::ControlOpcode::kKeyUpdate:
      on_key_update_heard(current_time_);
      return;
    default:
      return;
  }
}

void Connection::on_control_refused(uint32_t slot_index) {
  const wire::ControlPacket& body = shared_.controls[slot_index];
  if (body.opcode == wire::ControlOpcode::kClose) {  // it was heard, and that is all we wanted
    return fail(current_time_, Status::kClosed, ConnectionEventKind::kClosed);
  }
  if (body.opcode != wire::ControlOpcode::kPathOpen || body.path >= tx_paths_) return;
  path::PathSender& tx = paths_[body.path]->tx;
  if (tx.state() == path::State::kOpening) tx.close(*this);  // the peer has no room for it
  note_change(*paths_[body.path], PathChange::kNotTaken);
  check_paths_open();
}

void Connection::note_big_loss(PathSlot& slot) {
  // MR-PMTU-006: full packets vanish although the path lives.
  if (slot.big_losses < 255) ++slot.big_losses;
  if (slot.big_losses >= 16 && !slot.pmtu_search && slot.tx.pmtu > 1280) {
    start_pmtu_search(current_time_, slot, slot.tx.pmtu, true);
  }
}

}  // namespace metaroce::connection
