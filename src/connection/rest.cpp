// A connection at rest: its paths are folded into what they have to remember (MR-CONN-040).
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {

void Connection::unfold() {
  paths_.wake(shared_.telemetry.now(), peer_);
  survey_due_ = true;
}

bool Connection::may_rest() const {
  if (state_ != ConnectionState::kOpen || !sender_.idle()) return false;
  if (window_->size() > 0 || repairs_ > 0 || in_flight_packets_ > 0) return false;
  if (confirm_due_ || payload_dirty_ || next_open_ < tx_paths_ || !paths_open_told_) return false;
  if (ack_from_ != kNever || ack_owed_.any() || receiver_.has_credit_news()) return false;
  if (sender_.has_reset() || sender_.next_wakeup() != kNever) return false;
  return expect_since_ == kNever && verdict_at_ == kNever && credit_probe_at_ == kNever &&
         retry_at_ == kNever;
}

void Connection::try_rest(Time now) {
  rest_at_ = kNever;
  if (!may_rest() || now >= next_keep_alive() || now >= raise_pmtu_at_) return;
  paths_.rest(peer_);
}

size_t Connection::state_bytes() const {
  size_t bytes = sizeof(Connection) + peer_.capacity() * sizeof(SocketAddress);
  bytes += paths_.state_bytes() + hello_bytes_.capacity() + accept_bytes_.capacity();
  if (peer_params_) bytes += sizeof(*peer_params_);
  if (window_) bytes += sizeof(SendWindow) + window_->table_bytes();
  if (filter_) bytes += sizeof(CpsnFilter) + filter_->table_bytes();
  return bytes;
}

void Connection::fill_resting(uint32_t i, PathStatus& s) const {
  const path::RestingPath& path = paths_.at_rest(i);
  s = PathStatus{};
  s.id = static_cast<uint8_t>(i);
  s.plane = i < tx_paths_ ? path.plane : path.rx_plane;
  s.state = public_state(static_cast<path::State>(path.state));
  s.source_port = path.port;
  s.pmtu = path.pmtu;
  s.window = path.window;
  s.srtt = nanoseconds(path.srtt);
  s.min_rtt = nanoseconds(path.min_rtt);
  s.epoch = path.epoch;
  s.loss_ppm = static_cast<uint32_t>(uint64_t{path.loss_q16} * 1'000'000 / 65536);
  s.change = static_cast<PathChange>(path.change);
  s.changed_at = path::from_coarse(shared_.telemetry.now(), path.changed_at);
  s.peer_port = peer_[s.plane].port;
  s.counters = paths_.counters(i);
}

}  // namespace metaroce::connection
