#include "path/path_sender.h"

#include <algorithm>

#include "base/assert.h"
#include "wire/minifloat.h"

namespace metaroce::path {
namespace {

constexpr int kLossShift = 7;
constexpr uint32_t kBurstProbes = 8;

}  // namespace

PathSender::PathSender(const Settings& settings, Slab<SentWindow>& windows,
                       PathCounters& path_counters)
    : counters(&path_counters), settings_(&settings), windows_(&windows) {}

PathSender::~PathSender() {
  if (window_index_ != Slab<SentWindow>::kNone) windows_->release(window_index_);
}

void PathSender::open(uint8_t path_id, uint8_t path_plane, uint32_t start_seq, uint16_t source_port,
                      State state, Duration rtt_guess) {
  id = path_id;
  plane = path_plane;
  port = source_port;
  state_ = state;
  // Nothing of an earlier generation counts for this one (MR-PATH-045).
  if (window_index_ != Slab<SentWindow>::kNone) windows_->release(window_index_);
  window_index_ = Slab<SentWindow>::kNone;
  for (Probe& p : probes_) p = Probe{};
  probes_waiting_ = 0;
  probe_slot_ = late_count_ = epoch_ = 0;
  ce_count_ = 0;
  ack_counter_ = loss_q16_ = unanswered_ = dead_probes_ = dead_answers_ = 0;
  ack_seen_ = rtt_known_ = probe_repeated_ = wants_probe_ = false;
  first_unanswered_at_ = kNever;
  reorder_window_ = {};
  start_ = next_seq_ = una_ = peer_base_ = start_seq;  // MR-PATH-003
  epoch_start_ = prev_start_ = high_ = high_old_ = start_seq;
  srtt_ = rtt_guess;
  rttvar_ = rtt_guess / 2;
  min_rtt_ = max_rtt_ = rtt_guess;
}

void PathSender::close(Listener& listener) {
  if (state_ != State::kClosed) lose_all(listener);  // MR-PATH-017
  state_ = State::kClosed;
  probe_at_ = drain_at_ = gap_deadline_ = reorder_decay_at_ = kNever;
  wants_probe_ = false;
}

bool PathSender::ensure_window() {
  if (window_index_ != Slab<SentWindow>::kNone) return true;
  window_index_ = windows_->allocate_as_left();
  if (window_index_ == Slab<SentWindow>::kNone) return false;
  window_records().clear();
  return true;
}

void PathSender::advance(Time now, Listener& listener) {
  if (una_ == next_seq_) return;
  if (window_index_ == Slab<SentWindow>::kNone) {
    una_ = next_seq_;
    return;
  }
  SentWindow& w = window_records();
  for (;;) {
    const uint32_t free = (w.outstanding | w.lost).first_from(una_);
    if (free >= next_seq_ - una_) break;
    una_ += free;
    if (w.outstanding.test(una_)) return;
    // MR-PATH-011, MR-PATH-014: resolved when its CPSN's fate is known, or when it was sent again
    // long enough ago that a late arrival is no longer to be expected; sooner when the span gets
    // short (MR-PATH-012).
    const SentRecord& r = w.records[una_ & 255];
    const bool old = w.resent.test(una_) && (since(now, r.resent) >= reorder_window_ + srtt_ ||
                                             next_seq_ - una_ > kMapBits * 3 / 4);
    if (!old && !listener.is_decided(r.cpsn)) return;
    w.lost.clear(una_);
    w.gap.clear(una_);
    w.resent.clear(una_);
    ++una_;
  }
  una_ = next_seq_;
  windows_->release(window_index_);
  window_index_ = Slab<SentWindow>::kNone;
}

bool PathSender::can_send(Time now, Listener& listener) {
  if (state_ != State::kGood) return false;  // MR-HEALTH-001
  if (next_seq_ - una_ > kMapBits - 64 || window_index_ == Slab<SentWindow>::kNone) {
    advance(now, listener);
  }
  // MR-PATH-005: never further than the map reaches above the lowest unresolved sequence.
  if (next_seq_ - una_ >= kMapBits) return false;
  // MR-PATH-030: data stays two below what the receiver still takes.
  if (seq_ge(next_seq_, peer_base_ + kReach - 2)) return false;
  return ensure_window();
}

bool PathSender::can_probe(Time now, Listener& listener) {
  advance(now, listener);
  return next_seq_ - una_ < kMapBits && seq_lt(next_seq_, peer_base_ + kReach - 1);
}

uint32_t PathSender::on_sent(Time now, uint32_t cpsn, uint16_t size, SentKind kind) {
  SentWindow& w = window_records();
  const uint32_t seq = next_seq_++;  // MR-PATH-001: fresh for every transmission
  w.outstanding.set(seq);
  w.gap.clear(seq);
  w.records[seq & 255] = SentRecord{cpsn, ticks(now), 0, 0, size, epoch_, kind};
  in_flight_ += size;
  ++in_flight_packets_;
  ++counters->tx_packets;
  last_sent_at_ = used_at_ = now;
  // MR-LOSS-030: T after the oldest outstanding packet, and after each ACK with news (arm_probe).
  if (probe_at_ == kNever && probes_waiting_ == 0) probe_at_ = now + probe_timeout();
  return seq;
}

uint32_t PathSender::on_sent_run(Time now, uint32_t cpsn, uint32_t n, uint16_t size,
                                 uint16_t last_size) {
  MR_DASSERT(n > 0 && n <= span_room() && window_index_ != Slab<SentWindow>::kNone);
  SentWindow& w = window_records();
  const uint32_t seq = next_seq_;
  const Bitmap256 bits = Bitmap256::range(seq, n);
  w.outstanding = w.outstanding | bits;
  w.gap = w.gap.minus(bits);
  SentRecord r{cpsn, ticks(now), 0, 0, size, epoch_, SentKind::kData};
  for (uint32_t i = 0; i < n; ++i, ++r.cpsn) w.records[(seq + i) & 255] = r;
  w.records[(seq + n - 1) & 255].size = last_size;
  next_seq_ += n;  // MR-PATH-001
  in_flight_ += size * (n - 1) + last_size;
  in_flight_packets_ += n;
  counters->tx_packets += n;
  last_sent_at_ = used_at_ = now;
  if (probe_at_ == kNever && probes_waiting_ == 0) probe_at_ = now + probe_timeout();
  return seq;
}

uint32_t PathSender::on_probe_sent(Time now, uint16_t ip_size) {
  const uint32_t seq = next_seq_++;
  used_at_ = now;
  ++counters->tx_probes;
  ++counters->tx_packets;
  if (ip_size > 0 && ensure_window()) {
    // A padded probe holds the floor while it is out: only so does a base above it prove that it
    // arrived (docs/adr/0003).
    ++counters->tx_padded;
    SentWindow& w = window_records();
    w.outstanding.set(seq);
    w.gap.clear(seq);
    w.records[seq & 255] = SentRecord{ip_size, ticks(now), 0, 0, 0, epoch_, SentKind::kPaddedProbe};
    ++in_flight_packets_;
    if (state_ == State::kGood) return seq;
  } else if (window_index_ == Slab<SentWindow>::kNone) {
    una_ = next_seq_;  // MR-PATH-015: a probe never holds the floor
  }
  add_probe(now, seq);
  arm_next_probe(now);
  return seq;
}

void PathSender::add_probe(Time now, uint32_t seq) {
  Probe& slot = probes_[probe_slot_];
  probe_slot_ = (probe_slot_ + 1) & 7;
  if (!slot.waiting) ++probes_waiting_;
  slot = Probe{seq, ticks(now), epoch_, true};
}

void PathSender::count_as_probe(Time now) {
  add_probe(now, next_seq_ - 1);
  arm_next_probe(now);
}

void PathSender::on_probe_repeated(Time now) {
  // MR-PATH-031: the last sequence below the reach is a probe's, since data stays below it.
  const uint32_t seq = next_seq_ - 1;
  probe_repeated_ = true;
  ++counters->tx_probes;
  ++counters->tx_packets;
  const auto known = std::find_if(std::begin(probes_), std::end(probes_),
                                  [seq](const Probe& p) { return p.seq == seq && p.waiting; });
  if (known == std::end(probes_)) add_probe(now, seq);
  arm_next_probe(now);
}

void PathSender::arm_next_probe(Time now) {
  wants_probe_ = false;
  if (state_ == State::kDead) {
    // MR-HEALTH-008: eight quick ones show a path that was wrongly declared dead, then seldom.
    const bool burst = ++dead_probes_ < kBurstProbes;
    // Jitter without a generator: the sequence space of each path starts at random.
    const int64_t dice = static_cast<int64_t>((next_seq_ * 0x9E3779B1u) >> 24);
    const Duration jitter = dead_interval_ * dice / (256 * 8);
    probe_at_ = now + (burst ? srtt_ / 2 : dead_interval_ + jitter);
    if (!burst) {
      dead_answers_ = 0;  // eight went by unanswered
      dead_interval_ = std::min(dead_interval_ * 2, nanoseconds(settings_->dead_probe_max));
    }
  } else if (state_ == State::kValidating) {
    // Nothing proves yet that somebody is there: ever more seldom (MR-CONN-020).
    probe_at_ = now + std::min(probe_timeout() * (1ll << std::min(unanswered_, 12u)),
                               nanoseconds(settings_->dead_probe_max));
  } else {
    // MR-LOSS-031: T, then 2 T, then every 4 T.
    probe_at_ = now + probe_timeout() * (1ll << std::min(unanswered_, 2u));
  }
}

void PathSender::expire_padded(Time now, Duration age, Listener& listener) {
  if (window_index_ == Slab<SentWindow>::kNone) return;
  const uint32_t una = una_;
  const Bitmap256 all = window_records().outstanding;
  all.for_each_from(una, [&](uint32_t i) {
    const SentRecord& r = window_records().records[i];
    if (r.kind == SentKind::kPaddedProbe && since(now, r.sent) >= age) {
      mark_lost(una + ((i - una) & 255), listener, false);
    }
  });
}

void PathSender::probe_not_sent(Time now) {
  wants_probe_ = false;
  probe_at_ = now + probe_timeout();
}

void PathSender::on_resent(Time now, uint32_t seq) {
  if (window_index_ == Slab<SentWindow>::kNone || next_seq_ - seq > kMapBits) return;
  if (seq_lt(seq, una_)) return;
  SentWindow& w = window_records();
  if (!w.lost.test(seq) || w.resent.test(seq)) return;
  w.resent.set(seq);
  w.records[seq & 255].resent = ticks(now);
}

bool PathSender::take_lowest(Listener& listener, uint32_t& cpsn) {
  if (next_seq_ - una_ < kMapBits || window_index_ == Slab<SentWindow>::kNone) return false;
  SentWindow& w = window_records();
  const SentRecord r = w.records[una_ & 255];
  if (w.outstanding.test(una_)) mark_lost(una_, listener, false);
  w.lost.clear(una_);
  w.gap.clear(una_);
  w.resent.clear(una_);
  ++una_;
  cpsn = r.cpsn;
  return r.kind != SentKind::kPaddedProbe;
}

void PathSender::mark_lost(uint32_t seq, Listener& listener, bool by_gap) {
  SentWindow& w = window_records();
  const SentRecord r = w.records[seq & 255];
  w.outstanding.clear(seq);
  in_flight_ -= r.size;
  --in_flight_packets_;
  if (r.kind == SentKind::kPaddedProbe) {
    w.gap.clear(seq);
    ++counters->lost_padded;
  } else {
    w.lost.set(seq);
    w.resent.clear(seq);
    ++counters->lost;
    if (by_gap) note_loss_sample(true);  // MR-HEALTH-005: silence is not loss
  }
  lost_by_gap_ = by_gap;
  listener.on_lost(id, seq, r);
}

void PathSender::lose_all(Listener& listener) {
  if (window_index_ == Slab<SentWindow>::kNone) return;
  const uint32_t una = una_;
  const Bitmap256 all = window_records().outstanding;
  all.for_each_from(una, [&](uint32_t i) { mark_lost(una + ((i - una) & 255), listener, false); });
}

void PathSender::note_loss_sample(bool lost) {
  if (lost) {
    loss_q16_ += (65536 - loss_q16_) >> kLossShift;
  } else {
    loss_q16_ -= (loss_q16_ + (1u << kLossShift) - 1) >> kLossShift;
  }
}

Duration PathSender::probe_timeout() const {
  const Duration by_rtt = srtt_ + srtt_ / 4 + rttvar_ * 4;
  return std::max(by_rtt, nanoseconds(settings_->timer_tick * 2));  // MR-LOSS-030
}

bool PathSender::loss_means_congestion() const {
  // MR-CC-009: beyond this no random loss is plausible; short queues that never mark drop like so.
  if (loss_q16_ > 65536 * 2 / 5) return true;  // MR-CC-004
  // MR-CC-005
  return rtt_known_ && !marks_seen_ &&
         srtt_ > min_rtt_ + min_rtt_ / 2 + nanoseconds(settings_->rtt_noise);
}

uint16_t PathSender::ce_delta(uint16_t count) {
  const uint16_t delta = static_cast<uint16_t>(count - ce_count_);
  ce_count_ = count;
  counters->ce_reported += delta;
  marks_seen_ |= delta != 0;
  return delta;
}

uint32_t PathSender::verdict_count() const {
  // MR-HEALTH-004: q^k < 1e-6, with q the loss of a round trip, at most 0.51.
  const uint64_t f = loss_q16_;
  const uint64_t round_trip = std::min<uint64_t>(2 * f - f * f / 65536, 33423);
  uint64_t odds = 1ull << 32;
  uint32_t k = 0;
  while (odds > 4295 && k < 64) {
    odds = (odds * round_trip) >> 16;
    ++k;
  }
  return std::max(k, 2u);
}

bool PathSender::change_port(Time now, uint16_t new_port) {
  // MR-LOSS-004: once a round trip, and not before the epoch before is drained.
  if (now - epoch_changed_at_ < srtt_ || (drain_at_ != kNever && now < drain_at_)) return false;
  port = new_port;
  epoch_ = (epoch_ + 1) & 15;  // MR-LOSS-003
  epoch_changed_at_ = now;
  prev_start_ = epoch_start_;
  high_old_ = high_;
  epoch_start_ = high_ = next_seq_;
  // The last samples are an RTT old: a queue that grows on the old port may double what they saw.
  drain_at_ = now + max_rtt_ * 2 + nanoseconds(settings_->ack_delay);
  return true;
}

void PathSender::probe_soon(Time now) {
  if (state_ == State::kClosed || state_ == State::kOpening) return;
  probe_at_ = earlier(probe_at_, now);
}

void PathSender::hasten_probe(Time now, Time sent) {
  if (in_flight_packets_ == 0 || probes_waiting_ > 0 || !rtt_known_) return;
  if (last_sent_at_ > sent + srtt_ / 8) return;
  // The queue that the last sample saw is the one these packets stand in.
  // With nothing else out, the queue in front of the packet is gone.
  Duration sample = std::min(latest_rtt_, srtt_ + rttvar_ * 2);
  if (in_flight_packets_ == 1 && sent == now) sample = min_rtt_ + min_rtt_ / 8;
  const Time due = last_sent_at_ + sample + sample / 8 + nanoseconds(settings_->timer_tick * 2);
  probe_at_ = earlier(probe_at_, due > now ? due : now);
}

void PathSender::become_validating(Time now) {
  state_ = State::kValidating;
  unanswered_ = 0;
  probe_at_ = now;
}

void PathSender::become_good(bool restart_window) {
  state_ = State::kGood;
  unanswered_ = 0;
  first_unanswered_at_ = kNever;
  dead_probes_ = 0;
  dead_interval_ = nanoseconds(settings_->dead_probe_min);
  if (restart_window) {
    window_.restart({.minimum = settings_->max_payload,
                     .maximum = settings_->max_path_window,
                     .packet = settings_->max_payload});
  }
}

void PathSender::become_suspect(Time, Listener& listener) {
  state_ = State::kSuspect;
  ++counters->suspects;
  lose_all(listener);  // MR-HEALTH-002: reinjected elsewhere
}

void PathSender::become_dead(Time now, Listener& listener) {
  if (state_ == State::kDead) return;
  lose_all(listener);
  state_ = State::kDead;
  ++counters->deaths;
  for (Probe& p : probes_) p = Probe{};
  probes_waiting_ = 0;
  dead_probes_ = dead_answers_ = 0;
  dead_interval_ = nanoseconds(settings_->dead_probe_min);
  probe_at_ = now;
}

}  // namespace metaroce::path
