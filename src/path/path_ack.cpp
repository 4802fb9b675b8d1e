// What an acknowledgement and a timer mean to a path.
#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "path/path_sender.h"
#include "wire/minifloat.h"

namespace metaroce::path {
namespace {

constexpr Duration kSampleLimit = milliseconds(500);

}  // namespace

AckOutcome PathSender::on_ack(Time now, const wire::AckPacket& ack, Listener& listener) {
  AckOutcome out;
  const uint32_t base = ack.f.base;
  const uint32_t top = base + static_cast<uint32_t>(ack.map.last_from(0) + 1);
  // MR-PATH-032, MR-PATH-033, MR-SEC-001: the receiver's base is never R below what is sent, so
  // anything lower was made up.
  if (next_seq_ - start_ > 2 * kReach) start_ = next_seq_ - 2 * kReach;
  if (seq_gt(base, next_seq_) || seq_gt(top, next_seq_) || seq_lt(base, start_)) {
    out.valid = false;
    return out;
  }
  ++counters->rx_acks;
  out.newer = !ack_seen_ || seq_gt(ack.f.counter, ack_counter_);
  if (out.newer) ack_counter_ = ack.f.counter;
  ack_seen_ = true;
  if (seq_gt(base, peer_base_)) {
    peer_base_ = base;
    probe_repeated_ = false;
  }
  // What lies below the lowest unresolved is of no interest and must not wrap around.
  for (uint32_t* mark : {&epoch_start_, &prev_start_, &high_, &high_old_}) {
    *mark = seq_max(*mark, una_);
  }

  if (una_ != next_seq_ && window_index_ != Slab<SentWindow>::kNone) {
    if (!settle_in_order(now, ack, listener, out)) settle_map(now, ack, listener, out);
  }
  match_probes(now, base, ack.map, out);
  if (out.newer) {
    if (out.fresh && !probe_repeated_) sample_rtt(now, ack);  // MR-PATH-034
    note_late_count(now, ack.f.status & 0x0F, out);
  }
  if (out.answered) on_alive(now, out);
  if (out.answered) {
    find_gaps(now, listener);
    advance(now, listener);
  }
  if (out.answered) arm_probe(now);
  return out;
}

/// The usual ACK: the base has moved over packets that are all outstanding, nothing else is new.
bool PathSender::settle_in_order(Time now, const wire::AckPacket& ack, Listener& listener,
                                 AckOutcome& out) {
  const SentWindow& w = window_records();
  const uint32_t una = una_;
  const uint32_t count = ack.f.base - una;
  if (settings_->whole_runs == 0) return false;
  if (count == 0 || count > kMapBits || ack.map.any() || (w.lost | w.gap).any()) return false;
  const Bitmap256 range = Bitmap256::range(una, count);
  if (!((w.outstanding & range) == range)) return false;
  // The answer to CLOSE may be among them: the path is closed then, and what is left was lost.
  for (uint32_t n = 0; n < count && state_ != State::kClosed;) {
    n += settle_run(now, una + n, count - n, listener, out);  // MR-CPSN-016
  }
  out.answered = true;
  return true;
}

void PathSender::settle_map(Time now, const wire::AckPacket& ack, Listener& listener,
                            AckOutcome& out) {
  const SentWindow& w = window_records();
  const uint32_t base = ack.f.base;
  Bitmap256 acked;
  Bitmap256 refused;
  const int32_t ahead = seq_diff(base, una_);
  if (ahead >= 0) {
    // MR-CPSN-016
    acked = Bitmap256::range(una_, static_cast<uint32_t>(ahead)) | ack.map.rotated_up(base);
    refused = ack.refused.rotated_up(base);
  } else if (ahead > -static_cast<int32_t>(kMapBits)) {
    const Bitmap256 below = Bitmap256::range(base, static_cast<uint32_t>(-ahead));
    acked = ack.map.rotated_up(base).minus(below);
    refused = ack.refused.rotated_up(base).minus(below);
  }
  const Bitmap256 newly = acked & (w.outstanding | w.lost);
  if (newly.any()) settle(now, newly, refused, listener, out);  // MR-CPSN-017
}

void PathSender::settle(Time now, const Bitmap256& newly, const Bitmap256& refused,
                        Listener& listener, AckOutcome& out) {
  SentWindow& w = window_records();
  const uint32_t una = una_;
  const Bitmap256 all = newly.rotated_down(una);
  // The usual packets are told run by run, the others one by one; in the order of sequences.
  const Bitmap256 plain = newly.minus(w.lost | w.gap | refused).rotated_down(una);
  for (int word = 0; word < 4; ++word) {
    for (uint64_t bits = all.raw(word); bits != 0;) {
      const int at = std::countr_zero(bits);
      const uint32_t seq = una + static_cast<uint32_t>(word * 64 + at);
      uint32_t done = 1;
      const int usual = std::countr_one(plain.raw(word) >> at);
      if (usual > 0 && settings_->whole_runs != 0 && state_ != State::kClosed) {
        done = settle_run(now, seq, static_cast<uint32_t>(usual), listener, out);
      } else {
        settle_one(now, seq, refused.test(seq), listener, out);
      }
      bits = static_cast<uint32_t>(at) + done == 64
                 ? 0
                 : bits & (~0ull << (at + static_cast<int>(done)));
    }
  }
  out.answered = true;
}

void PathSender::settle_one(Time now, uint32_t seq, bool refused, Listener& listener,
                            AckOutcome& out) {
  SentWindow& w = window_records();
  const SentRecord r = w.records[seq & 255];
  const bool was_lost = w.lost.test(seq);
  if (!was_lost && !w.outstanding.test(seq)) return;  // given up when the path closed
  if (w.gap.test(seq)) note_lateness(now, r.gap, was_lost);
  w.gap.clear(seq);
  if (was_lost) {
    w.lost.clear(seq);
    w.resent.clear(seq);
    ++out.spurious;
    ++counters->spurious;
    ++counters->acked_late;
  } else {
    w.outstanding.clear(seq);  // MR-PATH-010
    in_flight_ -= r.size;
    --in_flight_packets_;
    if (r.kind != SentKind::kPaddedProbe) note_loss_sample(false);
  }
  note_arrived(seq, r.epoch);
  out.fresh |= since(now, r.sent) < kSampleLimit;
  ++out.newly_acked;
  ++counters->acked;
  if (r.kind == SentKind::kPaddedProbe) {
    out.padded_acked = std::max(out.padded_acked, static_cast<uint16_t>(r.cpsn));
  } else {
    listener.on_delivered(id, seq, r, refused, was_lost);
  }
}

/// Settles outstanding packets without gap or refusal from `seq` on, at most `count`, all of one
/// epoch; returns how many.
uint32_t PathSender::settle_run(Time now, uint32_t seq, uint32_t count, Listener& listener,
                                AckOutcome& out) {
  SentWindow& w = window_records();
  const uint8_t epoch = w.records[seq & 255].epoch;
  uint32_t n = 0;
  uint32_t bytes = 0;
  for (; n < count; ++n) {
    const SentRecord& r = w.records[(seq + n) & 255];
    if (r.kind == SentKind::kPaddedProbe || r.epoch != epoch) break;
    bytes += r.size;
  }
  if (n == 0) {
    settle_one(now, seq, false, listener, out);
    return 1;
  }
  w.outstanding = w.outstanding.minus(Bitmap256::range(seq, n));  // MR-PATH-010
  in_flight_ -= bytes;
  in_flight_packets_ -= n;
  for (uint32_t i = 0; i < n && loss_q16_ > 0; ++i) note_loss_sample(false);
  note_arrived(seq + n - 1, epoch);
  out.fresh |= since(now, w.records[(seq + n - 1) & 255].sent) < kSampleLimit;
  out.newly_acked += n;
  counters->acked += n;
  listener.on_delivered_run(id, seq, n, bytes, w.records);
  return n;
}

void PathSender::note_arrived(uint32_t seq, uint8_t epoch) {
  uint32_t& high = epoch == epoch_ ? high_ : high_old_;
  high = seq_max(high, seq + 1);
}

void PathSender::match_probes(Time now, uint32_t base, const Bitmap256& map, AckOutcome& out) {
  if (probes_waiting_ == 0) return;
  for (Probe& p : probes_) {
    if (!p.waiting) continue;
    const uint32_t above = p.seq - base;
    const bool covered = seq_lt(p.seq, base) || (above < kMapBits && map.test(above));
    if (!covered) continue;
    p.waiting = false;  // MR-LOSS-032
    if (state_ == State::kDead) ++dead_answers_;
    --probes_waiting_;
    out.fresh |= since(now, p.sent) < kSampleLimit;
    note_arrived(p.seq, p.epoch);  // what is missing below an answered probe is a gap
    out.answered = true;
  }
}

void PathSender::on_alive(Time now, AckOutcome& out) {
  answered_at_ = now;
  unanswered_ = 0;
  first_unanswered_at_ = kNever;
  if (state_ == State::kSuspect) {
    become_good(false);
    out.recovered = true;
  } else if (state_ == State::kDead) {
    // MR-HEALTH-009: GOOD again, with one packet, when 3 of the last 8 probes were answered.
    if (dead_answers_ >= 3) {
      become_good(true);
      out.recovered = true;
    } else {
      // The first answer is followed at once; later ones leave time for those already out.
      dead_probes_ = 0;
      probe_at_ = dead_answers_ <= 1 ? now : earlier(probe_at_, now + srtt_ / 2);
      return;
    }
  }
  if (state_ != State::kGood) return;
  for (Probe& p : probes_) p.waiting = false;
  probes_waiting_ = 0;
}

void PathSender::arm_probe(Time now) {
  if (state_ == State::kDead || state_ == State::kValidating) return;
  // MR-LOSS-030: nothing was sent since, so the newest packet sets the clock if it is the earlier.
  probe_at_ = in_flight_packets_ > 0 ? earlier(now, last_sent_at_) + probe_timeout() : kNever;
  if (probe_at_ < now) probe_at_ = now;
}

void PathSender::sample_rtt(Time now, const wire::AckPacket& ack) {
  // MR-LOSS-040: stamps wrap after 1.07 s; only samples that cannot be ambiguous count.
  if (ack.f.delay == wire::kDelaySaturated) return;
  // MR-LOSS-041
  const Duration rtt = wire::since_stamp(now, ack.f.stamp) - wire::decode_delay(ack.f.delay);
  if (rtt.ns <= 0 || rtt > kSampleLimit) return;
  latest_rtt_ = rtt;
  if (!rtt_known_) {
    rtt_known_ = true;
    srtt_ = min_rtt_ = max_rtt_ = rtt;
    rttvar_ = rtt / 4;
    min_rtt_at_ = now;
    return;
  }
  const Duration error = rtt > srtt_ ? rtt - srtt_ : srtt_ - rtt;
  rttvar_ = rttvar_ + (error - rttvar_) / 4;
  srtt_ = srtt_ + (rtt - srtt_) / 8;
  if (rtt <= min_rtt_ || now - min_rtt_at_ > seconds(10)) {
    min_rtt_ = rtt;
    min_rtt_at_ = now;
  }
  max_rtt_ = std::max(rtt, max_rtt_ - (max_rtt_ - srtt_) / 64);
}

void PathSender::note_lateness(Time now, uint32_t gap_ticks, bool was_lost) {
  // MR-LOSS-006: the reorder window grows to the lateness seen, at most 2 RTT.
  const Duration late = since(now, gap_ticks);
  const Duration cap = srtt_ * 2;  // MR-LOSS-005
  const Duration wanted = std::min(cap, late + late / 8 + nanoseconds(64));
  if (wanted > reorder_window_) reorder_window_ = wanted;
  if (was_lost || late * 2 > reorder_window_) reorder_decay_at_ = now + srtt_ * 16;
}

void PathSender::note_late_count(Time now, uint8_t count, const AckOutcome& out) {
  const uint8_t delta = (count - late_count_) & 0x0F;
  late_count_ = count;
  if (delta == 0 || out.spurious > 0) return;
  counters->spurious += delta;
  // MR-LOSS-007
  reorder_window_ = std::min(srtt_ * 2, std::max(reorder_window_ * 2, srtt_ / 4));
  reorder_decay_at_ = now + srtt_ * 16;
}

void PathSender::find_gaps(Time now, Listener& listener) {
  if (window_index_ == Slab<SentWindow>::kNone) return;
  SentWindow& w = window_records();
  const uint32_t lowest = una_ + w.outstanding.first_from(una_);
  if (seq_ge(lowest, high_) && seq_ge(lowest, high_old_)) {  // the usual case: nothing is missing
    gap_deadline_ = kNever;
    return;
  }
  // MR-LOSS-001: missing below an acknowledged packet of the same epoch. MR-LOSS-002: of any epoch
  // once the drain timer of the last change ended.
  const bool drained = drain_at_ == kNever && seq_gt(high_, epoch_start_);
  const uint32_t from = drained ? una_ : seq_max(una_, epoch_start_);
  Bitmap256 below;
  if (seq_gt(high_, from)) below = Bitmap256::range(from, high_ - from);
  const uint32_t old_from = seq_max(una_, prev_start_);
  const uint32_t old_to = seq_lt(high_old_, epoch_start_) ? high_old_ : epoch_start_;
  if (seq_gt(old_to, old_from)) below = below | Bitmap256::range(old_from, old_to - old_from);
  const Bitmap256 fresh = (below & w.outstanding).minus(w.gap);
  if (fresh.any()) {
    fresh.for_each_from(una_, [&](uint32_t i) { w.records[i].gap = ticks(now); });
    w.gap = w.gap | fresh;
  }
  judge_gaps(now, listener);
}

void PathSender::judge_gaps(Time now, Listener& listener) {
  gap_deadline_ = kNever;
  if (window_index_ == Slab<SentWindow>::kNone) return;
  SentWindow& w = window_records();
  const Bitmap256 open = w.gap & w.outstanding;
  if (!open.any()) return;
  const uint32_t una = una_;
  open.for_each_from(una, [&](uint32_t i) {
    const Duration waited = since(now, w.records[i].gap);
    if (reorder_window_.ns == 0 || waited >= reorder_window_) {
      mark_lost(una + ((i - una) & 255), listener, true);
    } else {
      gap_deadline_ = earlier(gap_deadline_, now + (reorder_window_ - waited) + nanoseconds(64));
    }
  });
}

void PathSender::drain_old_epochs(Time, Listener& listener) {
  drain_at_ = kNever;
  if (window_index_ == Slab<SentWindow>::kNone || seq_le(high_, epoch_start_)) return;
  if (seq_ge(una_, epoch_start_)) return;
  const uint32_t una = una_;
  const Bitmap256 old = window_records().outstanding & Bitmap256::range(una, epoch_start_ - una);
  old.for_each_from(una, [&](uint32_t i) { mark_lost(una + ((i - una) & 255), listener, true); });
}

TimerOutcome PathSender::on_timer(Time now, Listener& listener) {
  TimerOutcome out;
  if (now >= gap_deadline_) judge_gaps(now, listener);
  if (now >= drain_at_) drain_old_epochs(now, listener);
  if (now >= reorder_decay_at_) {  // MR-LOSS-008
    reorder_window_ = reorder_window_ / 2;
    if (reorder_window_ < srtt_ / 64) reorder_window_ = {};
    reorder_decay_at_ = reorder_window_.ns > 0 ? now + srtt_ * 16 : kNever;
  }
  if (now < probe_at_) return out;
  probe_at_ = kNever;
  if (state_ == State::kClosed || state_ == State::kOpening) return out;
  wants_probe_ = true;
  if (state_ == State::kDead || probes_waiting_ == 0) return out;
  ++unanswered_;
  if (first_unanswered_at_ == kNever) first_unanswered_at_ = now;
  out.unanswered = true;
  if (state_ == State::kGood) {  // MR-HEALTH-002: the first unanswered probe makes it SUSPECT
    become_suspect(now, listener);
    out.suspect = true;
  }
  return out;
}

Time PathSender::deadline() const {
  return earlier(earlier(gap_deadline_, drain_at_), earlier(reorder_decay_at_, probe_at_));
}

}  // namespace metaroce::path
