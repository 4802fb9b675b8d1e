// A connection at rest: its paths are folded into what they have to remember (MR-CONN-040).
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {

bool Connection::may_rest() const {
  if (state_ != ConnectionState::kOpen || !sender_.idle()) return false;
  if (window_->size() > 0 || repairs_ > 0 || in_flight_packets_ > 0) return false;
  if (confirm_due_ || payload_dirty_ || next_open_ < tx_paths_ || !paths_open_told_) return false;
  if (ack_from_ != kNever || ack_owed_.any() || receiver_.has_credit_news()) return false;
  if (atomics_due_ || sender_.has_response_error()) return false;
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

}  // namespace metaroce::connection
