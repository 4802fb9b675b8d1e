// New data: how much of it, on which path, in runs (MR-ADDR-001). A run is one decision: its first
// header is written in full, those that follow go on from it.
#include <algorithm>

#include "connection/connection.h"

namespace metaroce::connection {

uint32_t Connection::new_packet_budget() const {
  const uint32_t room = window_->room(false);
  // MR-WIRE-061
  const uint32_t limit = std::min(window_->capacity() / 4, peer_inflight_);  // MR-CPSN-010
  if (in_flight_packets_ >= limit) return 0;
  uint32_t budget = std::min(room, limit - in_flight_packets_);
  const uint64_t size = payload_ + 64;
  if (in_flight_bytes_ + size <= congestion_.bytes()) {
    budget = std::min<uint64_t>(budget, (congestion_.bytes() - in_flight_bytes_) / size);
  } else if (in_flight_packets_ > 0) {
    budget = 0;
  } else {
    budget = std::min(budget, 1u);
  }
  return budget;
}

uint32_t Connection::wanted_run() const {
  const Settings& s = shared_.settings;
  const uint64_t waiting = sender_.bytes_waiting() / std::max(payload_, 1u);
  const uint64_t fair = waiting / std::max(good_paths_, 1u);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(fair, std::min(s.min_run, s.max_run), s.max_run));
}

uint32_t Connection::run_length(const PathSlot& slot, uint32_t size) const {
  const uint64_t window = slot.tx.window().bytes();
  const uint64_t used = slot.tx.in_flight();
  const uint32_t room = window > used ? static_cast<uint32_t>((window - used) / size) : 0;
  return std::max(1u, std::min({wanted_run_, room, slot.tx.span_room()}));
}

void Connection::transmit_new(Time now, RunWriter& writer) {
  message::Fragment fragments[kMaxRun];
  if (state_ != ConnectionState::kOpen) return;
  while (!writer.full() && payload_ > 0 && sender_.ready(now)) {
    wanted_run_ = wanted_run();
    const uint32_t budget = new_packet_budget();
    if (budget < std::min(wanted_run_, in_flight_packets_ / 16)) return;
    if (shared_.chunks.available() < 2) retry_at_ = now + milliseconds(1);
    if (budget == 0 || shared_.chunks.available() < 2) {
      if (window_->room(false) == 0) ++counters_.cpsn_stalls;  // MR-CPSN-014
      return;
    }
    const uint32_t size = payload_ + 64;
    PathSlot* slot = choose_path(now, size);
    if (slot == nullptr) {
      // With nothing in flight no acknowledgement will wake us: a pool of the engine is empty.
      if (in_flight_packets_ == 0 && good_paths_ > 0) retry_at_ = now + milliseconds(1);
      return;
    }
    const uint32_t n = std::min(run_length(*slot, size), budget);
    backlog_ = sender_.bytes_waiting() > congestion_.bytes() ? wire::Backlog::kMore
                                                             : wire::Backlog::kBelowBdp;
    const size_t taken = sender_.take(now, payload_, std::span(fragments, n));
    if (taken == 0) return;
    const bool more = sender_.ready(now);
    if (!more) backlog_ = wire::Backlog::kNone;
    send_run(now, writer, *slot, {fragments, taken}, !more);
  }
}

void Connection::send_one_by_one(Time now, RunWriter& writer, PathSlot& slot,
                                 std::span<const message::Fragment> fragments, bool last) {
  for (size_t i = 0; i < fragments.size(); ++i) {
    uint32_t cpsn = 0;
    SendEntry* entry = window_->create(cpsn);
    MR_ASSERT(entry != nullptr);
    entry->fragment = fragments[i];
    entry->copied = sender_.traits(fragments[i]).asking;  // no copy of it (MR-ACK-014)
    send_entry(now, writer, slot, cpsn, *entry, last && i + 1 == fragments.size());
  }
}

void Connection::send_run(Time now, RunWriter& writer, PathSlot& slot,
                          std::span<const message::Fragment> fragments, bool last) {
  const auto n = static_cast<uint32_t>(fragments.size());
  const message::Fragment& front = fragments.front();
  const message::FragmentTraits traits = sender_.traits(front);
  if (shared_.settings.whole_runs == 0 || traits.scattered ||
      (traits.reads_region && !is_readable(front))) {
    return send_one_by_one(now, writer, slot, fragments, last);
  }
  const uint32_t header = traits.header_bytes;
  const uint32_t size = header + front.length;
  if (writer.room() < n || !writer.can_append(slot.tx.id, size)) begin_run(writer, slot, true);
  SendEntry entry;
  entry.copied = traits.asking;
  entry.state = SendEntry::State::kUndecided;
  entry.path = slot.tx.id;
  entry.seq = slot.tx.next_seq();
  entry.sent = true;
  entry.live = 1;
  const uint32_t cpsn = window_->create_run(entry, fragments);
  const message::Fragment& back = fragments.back();
  const uint32_t back_size =
      back.length + (n == 1 ? header : static_cast<uint32_t>(sender_.header_bytes(back)));
  const uint32_t seq = slot.tx.on_sent_run(now, cpsn, n, static_cast<uint16_t>(size),
                                           static_cast<uint16_t>(back_size));
  const std::byte* payload = nullptr;
  // FIRST and a wish for an ACK stand in the first packet alone: then the second is the pattern.
  const uint32_t pattern = front.offset == 0 || announce_acks_ ? 1 : 0;
  // The last one is written in full when it differs: LAST, or the end of a range cut anew.
  const bool tail = last || back.length != front.length || sender_.ends_message(back);
  for (uint32_t i = 0; i < n;) {
    const bool ask = (last && i + 1 == n) || announce_acks_;
    announce_acks_ = false;
    std::byte* out = writer.header();
    const size_t encoded =
        encode_entry(now, slot, cpsn + i, window_->at(cpsn + i), seq + i,
                     ask ? wire::flag::kAckRequest | wire::flag::kLastPath : 0, out, payload);
    writer.commit(encoded, payload, fragments[i].length);
    const uint32_t stop = tail ? n - 1 : n;
    if (i++ != pattern || i >= stop) continue;
    writer.commit_like(wire::HeaderRun(out, header, front.length), stop - i);
    i = stop;
  }
  const uint32_t bytes = front.length * (n - 1) + back.length;
  for (uint32_t i = 0; shared_.telemetry.heard() && i < n; ++i) {
    shared_.telemetry.emit(EventKind::packet_sent, handle_, slot.tx.id, seq + i, cpsn + i,
                           i + 1 < n ? size : back_size);
  }
  watch(slot);
  slot.tx.counters->tx_new += n;
  slot.tx.counters->tx_bytes += bytes;
  if (in_flight_packets_ == 0) progress_at_ = now;  // the backstop's clock starts with the work
  in_flight_packets_ += n;
  in_flight_bytes_ += size * (n - 1) + back_size;
  expect_since_ = earlier(expect_since_, now);
}

}  // namespace metaroce::connection
