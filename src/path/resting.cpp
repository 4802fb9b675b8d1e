// A path folded to what it has to remember, and unfolded again.
#include "path/resting.h"

#include <limits>

#include "path/path_receiver.h"
#include "path/path_sender.h"

namespace metaroce::path {
namespace {

constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();

bool fits(Duration d) { return d.ns >= 0 && d.ns <= kMost; }
uint32_t narrow(Duration d) { return static_cast<uint32_t>(d.ns); }

}  // namespace

bool PathSender::can_rest() const {
  if (state_ != State::kGood && state_ != State::kClosed) return false;
  if (una_ != next_seq_ || window_index_ != Slab<SentWindow>::kNone) return false;
  if (probes_waiting_ > 0 || wants_probe_ || unanswered_ > 0 || must_repeat_probe()) return false;
  if (deadline() != kNever || reorder_window_.ns != 0) return false;
  if (window_.bytes() > static_cast<uint64_t>(kMost)) return false;
  return fits(srtt_) && fits(rttvar_) && fits(min_rtt_) && fits(max_rtt_);
}

void PathSender::rest(RestingPath& out) const {
  MR_DASSERT(can_rest());
  out.start = start_;
  out.next_seq = next_seq_;
  out.peer_base = peer_base_;
  out.ack_counter = ack_counter_;
  out.loss_q16 = loss_q16_;
  out.srtt = narrow(srtt_);
  out.rttvar = narrow(rttvar_);
  out.min_rtt = narrow(min_rtt_);
  out.max_rtt = narrow(max_rtt_);
  out.window = static_cast<uint32_t>(window_.bytes());
  out.mark_fraction = window_.mark_fraction();
  out.slow_start = window_.in_slow_start();
  out.min_rtt_at = coarse(min_rtt_at_);
  out.used_at = coarse(used_at_);
  out.answered_at = coarse(answered_at_);
  out.port = port;
  out.generation = generation;
  out.pmtu = pmtu;
  out.ce_count = ce_count_;
  out.plane = plane;
  out.state = static_cast<uint8_t>(state_);
  out.epoch = epoch_;
  out.late = late_count_;
  out.rtt_known = rtt_known_;
  out.ack_seen = ack_seen_;
  out.marks_seen = marks_seen_;
}

void PathSender::wake(Time now, const RestingPath& from) {
  open(id, from.plane, from.next_seq, from.port, static_cast<State>(from.state), {});
  start_ = from.start;
  peer_base_ = from.peer_base;
  ack_counter_ = from.ack_counter;
  loss_q16_ = from.loss_q16;
  srtt_ = latest_rtt_ = nanoseconds(from.srtt);
  rttvar_ = nanoseconds(from.rttvar);
  min_rtt_ = nanoseconds(from.min_rtt);
  max_rtt_ = nanoseconds(from.max_rtt);
  window_.resume(from.window, from.mark_fraction, from.slow_start);
  min_rtt_at_ = from_coarse(now, from.min_rtt_at);
  used_at_ = last_sent_at_ = from_coarse(now, from.used_at);
  answered_at_ = from_coarse(now, from.answered_at);
  generation = from.generation;
  pmtu = from.pmtu;
  ce_count_ = from.ce_count;
  epoch_ = from.epoch;
  late_count_ = from.late & 0x0F;
  rtt_known_ = from.rtt_known;
  ack_seen_ = from.ack_seen;
  marks_seen_ = from.marks_seen;
}

bool PathReceiver::can_rest(const SocketAddress& usual_peer) const {
  if (!open_) return true;
  return ack_at_ == kNever && top_ == base_ && !map_.any() && peer == usual_peer;
}

void PathReceiver::rest(RestingPath& out) const {
  out.rx_open = open_;
  out.rx_base = base_;
  out.rx_plane = plane;
  out.rx_generation = generation;
  out.rx_ce_count = ce_count_;
  out.rx_last_was_ce = last_was_ce_;
  out.late = static_cast<uint8_t>((out.late & 0x0F) | late_ << 4);
}

void PathReceiver::wake(const RestingPath& from, const SocketAddress& usual_peer) {
  open(from.rx_plane, from.rx_generation, from.rx_base, usual_peer);
  open_ = from.rx_open;
  ce_count_ = from.rx_ce_count;
  last_was_ce_ = from.rx_last_was_ce;
  late_ = from.late >> 4;
  // MR-CONN-041: whatever comes from below the base now was resolved before the rest.
  for (int w = 0; w < 4; ++w) history_.set_raw(w, ~0ull);
}

uint64_t PathReceiver::hash_of(const RestingPath& path) {
  PathReceiver rx;
  rx.wake(path, {});
  return rx.hash();
}

}  // namespace metaroce::path
