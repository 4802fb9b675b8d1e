#include "path/path_receiver.h"

#include <algorithm>

#include "wire/minifloat.h"

namespace metaroce::path {

void PathReceiver::open(uint8_t plane_index, uint16_t gen, uint32_t start,
                        const SocketAddress& peer_address) {
  PathCounters* kept = counters;
  *this = PathReceiver{};
  counters = kept;
  open_ = true;
  plane = plane_index;
  generation = gen;
  base_ = top_ = start;
  peer = peer_address;
}

void PathReceiver::move_base_to(uint32_t new_base) {
  const uint32_t distance = new_base - base_;
  if (distance >= 256) {
    map_.reset();
    refused_.reset();
    voided_.reset();
    history_.reset();
  } else {
    const Bitmap256 passed = Bitmap256::range(base_, distance);
    history_ = history_.minus(passed) | (map_ & passed);
    map_ = map_.minus(passed);
    refused_ = refused_.minus(passed);
    voided_ = voided_.minus(passed);
  }
  base_ = new_base;
  if (seq_lt(top_, base_)) top_ = base_;
}

void PathReceiver::slide() {
  // MR-PATH-023: over what was received, never over a refused packet (only the floor may).
  Bitmap256 stop;
  for (int w = 0; w < 4; ++w) stop.set_raw(w, ~map_.raw(w) | refused_.raw(w));
  const uint32_t distance = stop.first_from(base_);
  if (distance > 0) move_base_to(base_ + distance);
}

void PathReceiver::note(Time now, const Arrival& a, const Settings& settings, Duration srtt) {
  const uint32_t floor_seq = a.seq - a.floor;
  if (seq_gt(floor_seq, base_)) move_base_to(floor_seq);  // MR-PATH-022

  const bool newest = seq_ge(a.seq, top_);
  bool now_please = a.ack_now || a.new_refusal;  // MR-ACK-001
  bool fresh = false;
  if (seq_lt(a.seq, base_)) {  // MR-PATH-026
    fresh = base_ - a.seq <= 256 && !history_.test(a.seq);
    if (fresh) {
      history_.set(a.seq);
      late_ = (late_ + 1) & 0x0F;  // MR-LOSS-009
      ++counters->rx_late;
    }
  } else if (!map_.test(a.seq)) {
    fresh = true;
    const bool gap = seq_gt(a.seq, top_);
    if (seq_lt(a.seq + 1, top_)) ++counters->rx_late;
    now_please |= gap;  // first packet of a new gap
    if (a.seq == base_ && a.seq == top_ && !a.refused) {  // in order, the usual case
      history_.set(a.seq);
      base_ = top_ = a.seq + 1;
    } else {
      map_.set(a.seq);  // MR-PATH-027
      if (a.refused) refused_.set(a.seq);
      if (a.voided) voided_.set(a.seq);
      top_ = seq_max(top_, a.seq + 1);
      if (map_.test(base_)) slide();  // MR-PATH-021
    }
  }
  if (fresh && a.ce) {
    ++ce_count_;  // MR-ACK-016
    ++counters->rx_ce;
    now_please |= !last_was_ce_;  // first mark after none
  }
  if (fresh) last_was_ce_ = a.ce;

  // MR-ACK-002..005
  if (newest) {  // MR-ACK-015
    stamp_ = a.stamp;
    arrived_ = now;
  }
  credit_stream = a.stream;
  const Duration timer = std::max(nanoseconds(settings.ack_delay), srtt / 8);
  if (pending_++ == 0) ack_at_ = earlier(ack_at_, now + timer);
  if (now_please) {
    // MR-ACK-003
    const Time soonest = last_ack_ + timer / 4;  // at most one immediate ACK a quarter timer
    ack_at_ = earlier(ack_at_, soonest > now ? soonest : now);
  } else if (pending_ >= settings.ack_every) {
    ack_at_ = earlier(ack_at_, now);
  }
}

void PathReceiver::note_run(Time now, uint32_t n, uint32_t stamp, uint16_t stream,
                            const Settings& settings, Duration srtt) {
  history_ = history_ | Bitmap256::range(base_, std::min(n, 256u));
  base_ = top_ = base_ + n;  // MR-PATH-021
  last_was_ce_ = false;
  stamp_ = stamp;
  arrived_ = now;
  credit_stream = stream;
  if (pending_ == 0) {
    ack_at_ = earlier(ack_at_, now + std::max(nanoseconds(settings.ack_delay), srtt / 8));
  }
  pending_ = static_cast<uint16_t>(pending_ + n);
  if (pending_ >= settings.ack_every) ack_at_ = earlier(ack_at_, now);  // MR-ACK-002
}

void PathReceiver::set_refusal(uint32_t seq, wire::Refusal reason, uint16_t stream,
                               uint32_t rq_seq, uint8_t delay) {
  // MR-ACK-013: the highest sequence speaks, not the last to arrive.
  if (has_reason_ && reason_seq_ - base_ < 256 && seq_lt(seq, reason_seq_)) return;
  has_reason_ = true;
  reason_seq_ = seq;
  reason_ = reason;
  reason_stream_ = stream;
  reason_rq_seq_ = rq_seq;
  reason_delay_ = delay;
}

/// A reason that ends an operation is taken for that of the highest refused packet (MR-ACK-014).
/// Above it may stand another one, which another path brought first: then neither has a reason,
/// both are sent again and each is told its own.
bool PathReceiver::is_mistakable() const {
  if (reason_ < wire::Refusal::kLength || reason_ > wire::Refusal::kStreamClosed) return false;
  for (uint32_t seq = reason_seq_ + 1; seq_lt(seq, top_); ++seq) {
    if (refused_.test(seq) && !voided_.test(seq)) return true;
  }
  return false;
}

void PathReceiver::fill_ack(Time now, wire::AckPacket& ack) {
  ack.f.status = late_ | (pending_ == 0 ? wire::ack_status::kUnsolicited : 0);
  ack.f.base = base_;
  ack.f.stamp = stamp_;
  // MR-WIRE-045
  ack.f.delay = pending_ == 0 ? wire::kDelaySaturated : wire::encode_delay(now - arrived_);
  ack.f.ce_count = ce_count_;
  ack.map = map_.rotated_down(base_);  // MR-ACK-005
  if (refused_.any()) {  // MR-ACK-011
    ack.is_long = true;
    ack.refused = refused_.rotated_down(base_);
    if (has_reason_ && reason_seq_ - base_ < 256 && refused_.test(reason_seq_) &&
        !is_mistakable()) {
      ack.f.reason = reason_;
      ack.f.refusal_delay = reason_delay_;
      ack.f.refusal_stream = reason_stream_;
      ack.f.refusal_rq_seq = reason_rq_seq_;
    } else if (!refused_.minus(voided_).any()) {
      ack.f.reason = wire::Refusal::kVoid;
    }
  }
  pending_ = 0;
  ack_at_ = kNever;
  last_ack_ = now;
  ++counters->tx_acks;
}

uint64_t PathReceiver::hash() const {
  uint64_t h = (uint64_t{base_} << 32) | top_;
  for (int w = 0; w < 4; ++w) h = h * 0x100000001b3ull ^ map_.raw(w) ^ (refused_.raw(w) << 1);
  return h * 31 + ce_count_ + late_;
}

}  // namespace metaroce::path
