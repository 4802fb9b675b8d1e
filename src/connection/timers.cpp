// Deadlines, hints from the network, and the death of a connection.
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {

Duration Connection::smallest_srtt() const {
  Duration smallest = nanoseconds(shared_.settings.initial_rtt);
  bool any = false;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    const path::PathSender& tx = paths_[i]->tx;
    if (!tx.rtt_known()) continue;
    smallest = any ? std::min(smallest, tx.srtt()) : tx.srtt();
    any = true;
  }
  return smallest;
}

/// Looks at every path once, so that nothing on the way of a packet has to: when the first timer of
/// a path ends, how many paths are GOOD, whether any wants to probe, how long the backstop waits.
void Connection::survey_paths() {
  survey_due_ = false;
  path_timer_from_ = kNever;
  good_paths_ = 0;
  probes_due_ = false;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    const PathSlot& slot = *paths_[i];
    watch(slot);
    good_paths_ += slot.tx.is_good();
    probes_due_ |= slot.tx.wants_probe() || slot.pmtu_due;
  }
  backstop_wait_ = std::max(smallest_srtt() * 8, nanoseconds(shared_.settings.rto_min));
}

void Connection::setup_timers(Time now) {
  if (now >= give_up_at_) {
    if (state_ == ConnectionState::kHelloSent) {
      fail(now, setup_hint_, ConnectionEventKind::kFailed);
    } else if (state_ == ConnectionState::kAccepting) {
      if (called_) return fail(now, Status::kUnresponsive, ConnectionEventKind::kFailed);
      state_ = ConnectionState::kDead;  // nobody was told of it yet
    } else if (state_ == ConnectionState::kClosing) {
      die(now, Status::kUnresponsive);  // MR-CONN-033
    }
    setup_at_ = give_up_at_ = kNever;
    return;
  }
  if (now < setup_at_) return;
  if (state_ == ConnectionState::kHelloSent) {
    hello_due_ = true;
    const int doublings = std::min<int>(hello_count_, 4);  // MR-CONN-005: to 16 times the first
    setup_at_ = now + nanoseconds(shared_.settings.hello_interval) * (1ll << doublings);
  } else {
    // ACCEPT is repeated when a HELLO or a packet of the peer asks for it, never by a timer: a
    // forged source must not draw more than it sent (MR-CONN-006).
    setup_at_ = kNever;
  }
}

void Connection::path_timers(Time now) {
  survey_due_ = true;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    PathSlot& slot = *paths_[i];
    if (now >= slot.tx.deadline()) {
      const path::TimerOutcome out = slot.tx.on_timer(now, *this);
      if (out.suspect) note_change(slot, PathChange::kSilent);
      if (out.suspect) after_state_change(slot);
      if (out.unanswered && slot.tx.state() == path::State::kValidating) {
        slot.tx.expire_padded(now, nanoseconds(shared_.settings.pmtu_wait), *this);
        check_paths_open();
      }
      if (out.unanswered) verdict(now, slot);
    }
    if (now >= slot.pmtu_at) {
      slot.pmtu_at = kNever;
      slot.tx.expire_padded(now, {}, *this);
      if (slot.pmtu_search && slot.tx.is_good()) slot.pmtu_due = true;
      check_paths_open();
    }
  }
  if (now >= raise_pmtu_at_) {
    raise_pmtu_at_ = kNever;
    for (uint32_t i = 0; i < tx_paths_; ++i) {
      PathSlot& slot = *paths_[i];
      const uint16_t target = pmtu_target(slot.tx.plane);
      if (slot.tx.is_good() && slot.tx.pmtu < target) start_pmtu_search(now, slot, target, false);
    }
  }
}

void Connection::backstop(Time now) {
  // MR-LOSS-050: one packet, the oldest undecided, when all else brought nothing for 8 RTT.
  if (window_->size() == 0 || now - progress_at_ < backstop_wait_) return;
  progress_at_ = now;
  window_->advance();
  if (window_->size() == 0) return;
  const uint32_t cpsn = window_->lowest_undecided();
  SendEntry& entry = window_->at(cpsn);
  if (entry.state != SendEntry::State::kUndecided || entry.list != kNoList) return;
  ++counters_.backstops;
  shared_.telemetry.emit(EventKind::backstop, handle_, 0xFF, cpsn);
  queue_repair(cpsn, entry, kAnyList);
}

void Connection::keep_alive(Time now) {
  if (now < next_keep_alive() || tx_paths_ == 0) return;
  kept_at_ = now;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    PathSlot& slot = *paths_[next_path_hint_++ % tx_paths_];
    if (!slot.tx.is_good()) continue;
    survey_due_ = true;
    slot.tx.probe_soon(now);
    const bool suspect = slot.tx.on_timer(now, *this).suspect;
    if (suspect) note_change(slot, PathChange::kSilent);
    if (suspect) after_state_change(slot);
    return;
  }
}

bool Connection::probes_went_unanswered() const {
  // MR-HEALTH-014: never less than two, whatever the hint was.
  return std::any_of(paths_.begin(), paths_.end(), [](const auto& slot) {
    return slot->tx.is_open() && slot->tx.unanswered() >= 2;
  });
}

void Connection::die(Time now, Status status) {
  const bool closing = state_ == ConnectionState::kClosing;
  fail(now, status, closing ? ConnectionEventKind::kClosed : ConnectionEventKind::kLost);
}

void Connection::on_deadline(Time now) {
  // A process that was stopped heard nobody and asked nobody: that time is not held against the
  // peer (MR-LOSS-053).
  if (deadline_ != kNever && now - deadline_ > milliseconds(500)) {
    const Duration missed = now - deadline_;
    if (expect_since_ != kNever) expect_since_ = earlier(now, expect_since_ + missed);
    if (verdict_at_ != kNever) verdict_at_ = verdict_at_ + missed;
  }
  current_time_ = now;
  setup_timers(now);
  if (state_ == ConnectionState::kTimeWait && now >= time_wait_end_) {
    state_ = ConnectionState::kDead;
  }
  if (state_ != ConnectionState::kOpen && state_ != ConnectionState::kClosing) return;
  if (paths_.resting() && now < earlier(next_keep_alive(), raise_pmtu_at_)) return;
  wake();
  if (now >= rest_at_) try_rest(now);
  if (paths_.resting()) return;
  if (survey_due_ || now >= path_timer_from_ || now >= raise_pmtu_at_) path_timers(now);
  if (now >= verdict_at_) {
    if (probes_went_unanswered()) return die(now, verdict_status_);
    verdict_at_ = now + milliseconds(10);
  }
  const Duration death = nanoseconds(shared_.settings.death_timeout);
  // MR-LOSS-051; whoever is heard of is not dead.
  if (expect_since_ != kNever && now - std::max(expect_since_, heard_at_) >= death) {
    // What the network said meanwhile is the better reason.
    return die(now, verdict_at_ != kNever ? verdict_status_ : Status::kUnresponsive);
  }
  if (now >= retry_at_) retry_at_ = kNever;
  backstop(now);
  keep_alive(now);
}

void Connection::update_deadline(Time now) {
  note_state(Status::kOk);
  Time t = earlier(setup_at_, give_up_at_);
  if (state_ == ConnectionState::kTimeWait) t = time_wait_end_;
  t = earlier(t, ack_from_);
  const bool open = state_ == ConnectionState::kOpen || state_ == ConnectionState::kClosing;
  if (open) t = earlier(t, earlier(raise_pmtu_at_, next_keep_alive()));
  if (open && !paths_.resting()) {
    if (survey_due_) survey_paths();
    t = earlier(t, earlier(path_timer_from_, rest_at_));
    t = earlier(t, verdict_at_);
    t = earlier(t, earlier(credit_probe_at_, sender_.next_wakeup()));
    if (expect_since_ != kNever) {
      t = earlier(t,
                  std::max(expect_since_, heard_at_) + nanoseconds(shared_.settings.death_timeout));
    }
    if (window_->size() > 0) {
      t = earlier(t, progress_at_ + backstop_wait_);
    }
    t = earlier(t, retry_at_);
  }
  deadline_ = t == kNever ? kNever : Time{std::max(t.ns, now.ns)};
}

void Connection::on_network_hint(Time now, uint8_t path, NetworkHint hint, uint32_t value) {
  shared_.telemetry.emit(EventKind::network_hint, handle_, path, static_cast<uint64_t>(hint),
                         value);
  Status status = Status::kUnreachable;
  if (hint == NetworkHint::kPortUnreachable) status = Status::kRefused;
  if (hint == NetworkHint::kTooBig) {
    if (state_ != ConnectionState::kOpen || path >= tx_paths_) return;
    wake();
    PathSlot& slot = *paths_[path];
    on_too_big(now, slot, value);
    return;
  }
  if (hint == NetworkHint::kNotSent) return;
  if (state_ == ConnectionState::kHelloSent) {
    setup_hint_ = status;
    ++setup_hints_;
    // The peer's own host says so, or there is no route: asking again for seconds helps nobody.
    // With several planes all of them are asked once before that.
    if (planes_ <= 1 || setup_hints_ > planes_) {
      fail(now, status, ConnectionEventKind::kFailed);
    } else if (hello_count_ == 1) {
      hello_due_ = true;
    }
    return;
  }
  if (state_ != ConnectionState::kOpen && state_ != ConnectionState::kClosing) return;
  wake();
  shorten_verdict(now, status == Status::kRefused ? Status::kPeerGone : status);
}

void Connection::shorten_verdict(Time now, Status status) {
  // MR-HEALTH-014: it proves nothing; probe now, and wait less long for an answer. Once: every
  // probe may bring the next hint. Only one that says more than the last counts.
  if (verdict_at_ != kNever && (verdict_status_ == status || status != Status::kPeerGone)) return;
  survey_due_ = true;
  Duration longest{};
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    paths_[i]->tx.probe_soon(now);
    longest = std::max(longest, paths_[i]->tx.probe_timeout());
  }
  // Only a host that answers "nobody of that name" is believed soon; a way can come back (N01).
  const Duration soon = std::max(longest * 7, milliseconds(20));
  const Duration death = nanoseconds(shared_.settings.death_timeout);
  verdict_at_ = now + (status == Status::kPeerGone ? soon : std::max(soon, death));
  verdict_status_ = status;
}

bool Connection::on_unknown_connection(Time now, const wire::UnknownConnectionPacket& packet) {
  // MR-CONN-022: only if it echoes an id and a sequence that we use.
  if (packet.word1 != peer_id_) return false;
  if (paths_.resting()) return false;  // nothing was sent lately
  const bool ours = std::any_of(paths_.begin(), paths_.end(), [&](const auto& slot) {
    return slot->tx.sent_lately(now, packet.word2);
  });
  if (!ours) return false;
  if (state_ == ConnectionState::kClosing) {  // the peer has closed and forgotten it
    fail(now, Status::kClosed, ConnectionEventKind::kClosed);
    return true;
  }
  if (state_ != ConnectionState::kOpen) return false;
  shorten_verdict(now, Status::kPeerGone);
  return true;
}

}  // namespace metaroce::connection
