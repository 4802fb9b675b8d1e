// The scheduler: the only place where messages and paths meet. What is sent, in which order, on
// which path, in runs of how many packets.
#include <algorithm>

#include "connection/connection.h"
#include "wire/minifloat.h"

namespace metaroce::connection {

using path::SentKind;

size_t Connection::transmit(Time now, std::span<TxRun> runs) {
  current_time_ = now;
  if (paths_.resting()) return 0;  // whoever brings work wakes it first
  RunWriter writer(runs, shared_.settings.max_run, shared_.sends.gather(), session_.get());
  transmit_setup(now, writer);
  if (state_ == ConnectionState::kHelloSent || state_ == ConnectionState::kAccepting ||
      state_ == ConnectionState::kDead) {
    return writer.used();
  }
  transmit_acks(now, writer);
  if (state_ == ConnectionState::kTimeWait) return writer.used();
  if (payload_dirty_) update_payload();
  if (next_open_ < tx_paths_) open_waiting_paths();
  if (sender_.has_reset()) send_resets();
  if (sender_.has_response_error()) send_response_errors();
  transmit_probes(now, writer);
  transmit_repairs(now, writer);
  transmit_new(now, writer);
  wanted_run_ = 1;
  transmit_copies(now, writer);
  window_->advance();
  if (shared_.settings.rest_after > 0) rest_at_ = now + nanoseconds(shared_.settings.rest_after);
  if (shared_.telemetry.heard()) note_stall(now);
  return writer.used();
}

void Connection::begin_run(RunWriter& writer, const PathSlot& slot, bool is_data) {
  TxRun& run = writer.begin();
  run.path = slot.tx.id;
  run.plane = slot.tx.plane;
  run.from = shared_.local[slot.tx.plane];
  run.from.port = slot.tx.port;
  run.to = peer_[slot.tx.plane];  // MR-ADDR-002
  run.is_data = is_data;
  run.connection = handle_;
}

void Connection::send_setup(RunWriter& writer, std::span<const std::byte> bytes, uint8_t plane,
                            const SocketAddress& to) {
  if (writer.full()) return;
  TxRun& run = writer.begin();
  run.session = nullptr;  // MR-SEC-003: set-up packets are never sealed
  run.trailer = wire::kCrcBytes;
  run.path = 0xFF;
  run.plane = plane;
  // MR-ADDR-009
  run.from = shared_.local[plane];  // MR-CONN-025: from the service port
  run.to = to;
  run.is_data = false;
  run.needs_df = false;
  run.ecn = Ecn::kNotEct;
  run.connection = handle_;
  std::copy(bytes.begin(), bytes.end(), writer.header());
  writer.commit(bytes.size(), nullptr, 0);
  writer.end();
}

void Connection::transmit_setup(Time now, RunWriter& writer) {
  if (hello_due_ && !writer.full()) {
    hello_due_ = false;
    ++hello_count_;
    setup_sent_at_ = earlier(setup_sent_at_, now);
    send_setup(writer, hello_bytes_, 0, peer_from_);
    // MR-CONN-002: the first answer may be lost because the plane is down: then ask on all.
    for (uint8_t p = 1; hello_count_ > 1 && p < planes_; ++p) {
      if (peer_[p].family != 0) send_setup(writer, hello_bytes_, p, peer_[p]);
    }
  }
  if (accept_due_ && !writer.full()) {
    accept_due_ = false;
    ++hello_count_;
    setup_credit_ -= std::min(setup_credit_, static_cast<uint32_t>(accept_bytes_.size()));
    setup_sent_at_ = earlier(setup_sent_at_, now);
    send_setup(writer, accept_bytes_, setup_plane_, peer_from_);
  }
  if (confirm_due_ && !writer.full()) {
    confirm_due_ = false;
    std::byte bytes[32];
    const size_t n = wire::encode(wire::ConfirmPacket{peer_id_, mac_}, bytes);
    send_setup(writer, {bytes, n}, setup_plane_, peer_[setup_plane_]);
  }
}

// --- acknowledgements ---

void Connection::send_ack(Time now, RunWriter& writer, PathSlot& slot) {
  TxRun& run = writer.begin();
  const bool same = slot.tx.state() != path::State::kClosed && slot.tx.plane == slot.rx.plane;
  run.path = slot.tx.id;
  run.plane = slot.rx.plane;
  run.from = shared_.local[slot.rx.plane];
  if (same) run.from.port = slot.tx.port;
  run.to = slot.rx.peer;  // MR-ADDR-005
  run.is_data = false;
  run.ecn = Ecn::kNotEct;
  run.connection = handle_;
  wire::AckPacket ack;
  ack.f.path = slot.tx.id;
  ack.f.connection = peer_id_;
  ack.f.counter = ++ack_counter_;  // MR-ACK-010
  ack.f.decided_through = filter_->decided_through();
  ack.f.stream = slot.rx.credit_stream;
  ack.f.limit = static_cast<uint16_t>(receiver_.limit(ack.f.stream));  // MR-ACK-018
  slot.rx.fill_ack(now, ack);
  if (shared_.sends.pending_nearly_full()) ack.f.status |= wire::ack_status::kPendingNearlyFull;
  if (shared_.receives.nearly_full()) ack.f.status |= wire::ack_status::kSlabNearlyFull;
  shared_.telemetry.emit(EventKind::ack_sent, handle_, slot.tx.id, ack.f.counter, ack.f.base,
                         ack.is_long);
  writer.commit(wire::encode(ack, writer.header()), nullptr, 0);
  writer.end();
}

void Connection::send_credit_news(Time now, RunWriter& writer) {
  uint16_t stream = 0;
  while (!writer.full() && receiver_.credit_news(stream)) {  // MR-MSG-025
    PathSlot& slot = *paths_[last_rx_path_];
    if (!slot.rx.is_open()) return;
    slot.rx.credit_stream = stream;
    send_ack(now, writer, slot);
  }
}

void Connection::transmit_acks(Time now, RunWriter& writer) {
  if (ack_from_ <= now) {
    ack_from_ = kNever;
    ack_owed_.for_each_from(0, [&](uint32_t i) {
      PathSlot& slot = *paths_[i];
      if (slot.rx.is_open() && slot.rx.ack_at() <= now && !writer.full()) {
        send_ack(now, writer, slot);
      }
      if (!slot.rx.is_open() || slot.rx.ack_at() == kNever) {
        ack_owed_.clear(i);
      } else {
        ack_from_ = earlier(ack_from_, slot.rx.ack_at());
      }
    });
    if (writer.full()) return;
  }
  if (state_ != ConnectionState::kTimeWait) send_credit_news(now, writer);
}

// --- probes ---

wire::Sequenced Connection::sequenced(Time now, const PathSlot& slot, uint32_t seq,
                                      uint32_t cpsn) const {
  wire::Sequenced s;
  s.path = slot.tx.id;
  s.floor = slot.tx.floor_of(seq);
  s.connection = peer_id_;
  s.path_seq = seq;
  s.stamp = wire::stamp_of(now);
  s.epoch = slot.tx.epoch();
  s.backlog = backlog_;
  s.cpsn = cpsn;
  return s;
}

bool Connection::send_probe(Time now, RunWriter& writer, PathSlot& slot, uint16_t ip_size,
                            uint16_t stream) {
  if (writer.full()) return false;
  begin_run(writer, slot, true);
  const uint32_t seq = slot.tx.on_probe_sent(now, ip_size);
  shared_.telemetry.emit(EventKind::probe_sent, handle_, slot.tx.id, seq, ip_size, stream);
  wire::ProbePacket probe;
  // A padded probe is tracked and thereby unresolved; a plain one never holds the floor.
  probe.s = sequenced(now, slot, seq, window_->next() - 1);
  probe.stream = stream;
  const size_t header = wire::encode(probe, writer.header());
  uint32_t padding = 0;
  if (ip_size > 0) {
    const uint32_t fixed = (shared_.local[slot.tx.plane].family == 6 ? 40u : 20u) + 8 +
                           static_cast<uint32_t>(header) + trailer_bytes();
    padding = ip_size - std::min<uint32_t>(fixed, ip_size);  // MR-PMTU-003
  }
  std::copy_n(writer.header(), header, slot.last_probe.begin());
  slot.last_padding = padding;
  writer.commit(header, nullptr, padding);
  writer.end();
  watch(slot);
  const bool proven = slot.tx.is_good() || slot.tx.state() == path::State::kSuspect;
  if (proven && expect_since_ == kNever) expect_since_ = now;
  return true;
}

void Connection::repeat_probe(Time now, RunWriter& writer, PathSlot& slot) {
  if (writer.full()) return;
  begin_run(writer, slot, true);
  slot.tx.on_probe_repeated(now);
  watch(slot);
  shared_.telemetry.emit(EventKind::probe_sent, handle_, slot.tx.id, slot.tx.next_seq() - 1, 0, 0);
  std::copy(slot.last_probe.begin(), slot.last_probe.end(), writer.header());
  writer.commit(slot.last_probe.size(), nullptr, slot.last_padding);
  writer.end();
}

bool Connection::resend_lowest(Time now, RunWriter& writer, PathSlot& slot) {
  // MR-PATH-008: with a full span the lowest unresolved packet goes out again; that resolves it.
  uint32_t cpsn = 0;
  if (!slot.tx.take_lowest(*this, cpsn) || !window_->contains(cpsn)) return false;
  SendEntry& entry = window_->at(cpsn);
  if (entry.state != SendEntry::State::kUndecided || !slot.tx.is_good()) return false;
  if (!slot.tx.can_send(now, *this)) return false;
  unqueue(cpsn, entry);
  return send_entry(now, writer, slot, cpsn, entry, true);
}

void Connection::free_lowest(PathSlot& slot) {
  uint32_t cpsn = 0;
  if (!slot.tx.take_lowest(*this, cpsn) || !window_->contains(cpsn)) return;
  SendEntry& entry = window_->at(cpsn);
  if (entry.state != SendEntry::State::kUndecided || entry.list != kNoList) return;
  queue_repair(cpsn, entry, kAnyList);  // MR-PATH-016: it keeps a place in the queue
}

void Connection::probe_path(Time now, RunWriter& writer, PathSlot& slot) {
  survey_due_ = true;
  const bool validating = slot.tx.state() == path::State::kValidating;
  if (slot.tx.can_probe(now, *this)) {
    send_probe(now, writer, slot, validating ? std::max<uint16_t>(slot.pmtu_goal, 576) : 0, 0);
    return;
  }
  if (slot.tx.must_repeat_probe()) return repeat_probe(now, writer, slot);  // MR-PATH-031
  if (slot.tx.unanswered() >= 1 || slot.pmtu_search) {
    // The full packet may be what vanishes: a small probe takes the sequence that this frees.
    free_lowest(slot);
    if (slot.tx.can_probe(now, *this)) {
      send_probe(now, writer, slot, 0, 0);
      return;
    }
  }
  if (resend_lowest(now, writer, slot)) {
    slot.tx.count_as_probe(now);
  } else {
    slot.tx.probe_not_sent(now);
  }
}

void Connection::transmit_probes(Time now, RunWriter& writer) {
  if (survey_due_) survey_paths();
  for (uint32_t i = 0; probes_due_ && i < tx_paths_ && !writer.full(); ++i) {
    PathSlot& slot = *paths_[i];
    if (slot.tx.wants_probe()) probe_path(now, writer, slot);
    if (!slot.pmtu_due || writer.full() || !slot.tx.is_good()) continue;
    if (slot.tx.lowest_is_lost()) free_lowest(slot);
    if (!slot.tx.can_send(now, *this)) continue;
    slot.pmtu_due = false;
    survey_due_ = true;
    slot.pmtu_at =
        now + std::max(slot.tx.probe_timeout() * 4, nanoseconds(shared_.settings.pmtu_wait));
    send_probe(now, writer, slot, slot.pmtu_goal, 0);
  }
  send_credit_probe(now, writer);
}

void Connection::send_credit_probe(Time now, RunWriter& writer) {
  uint16_t stream = 0;
  if (credit_probe_at_ != kNever && now < credit_probe_at_) return;
  if (!sender_.waits_for_credit() || !sender_.credit_blocked(stream)) {
    credit_probe_at_ = kNever;
    credit_probe_wait_ = {};
    return;
  }
  // MR-LOSS-033: after 1 RTT, doubling to 10 ms.
  const Duration first = std::max(smallest_srtt(), nanoseconds(shared_.settings.timer_tick));
  if (credit_probe_at_ == kNever) {
    ++counters_.credit_stalls;
    credit_probe_wait_ = first;
    credit_probe_at_ = now + first;
    return;
  }
  // Several streams a time, each on a path of its own, so that no stream waits for all others.
  for (uint32_t i = 0; i < std::min(tx_paths_ * 2, 8u); ++i) {
    PathSlot& slot = *paths_[next_path_hint_++ % tx_paths_];
    if (!slot.tx.is_good() || !slot.tx.can_probe(now, *this)) continue;
    if (!send_probe(now, writer, slot, 0, stream)) break;
    sender_.note_asked(stream, slot.tx.id, slot.tx.next_seq() - 1);
    const uint16_t asked = stream;
    if (!sender_.credit_blocked(stream) || stream == asked) break;
  }
  credit_probe_wait_ =
      std::min(credit_probe_wait_ * 2, nanoseconds(shared_.settings.credit_probe_max));
  credit_probe_at_ = now + credit_probe_wait_;
}

// --- packets with a CPSN ---

uint32_t Connection::entry_size(const SendEntry& entry) const {
  if (entry.voided) return wire::kProbeBytes;
  if (entry.control) return wire::kMaxControl;
  return static_cast<uint32_t>(sender_.header_bytes(entry.fragment)) + entry.fragment.length;
}

size_t Connection::encode_entry(Time now, PathSlot& slot, uint32_t cpsn, const SendEntry& entry,
                                uint32_t seq, uint8_t flags, std::byte* out,
                                const std::byte*& payload) const {
  wire::Sequenced s = sequenced(now, slot, seq, cpsn);
  s.flags = flags;
  payload = nullptr;
  if (entry.voided) return wire::encode(wire::VoidPacket{s}, out);
  if (entry.control) {
    wire::ControlPacket packet = shared_.controls[entry.fragment.send];
    packet.s = s;
    return wire::encode(packet, out);
  }
  wire::DataPacket packet;
  payload = sender_.describe(entry.fragment, packet);  // MR-PATH-002
  packet.s = s;
  return wire::encode(packet, out);
}

bool Connection::send_entry(Time now, RunWriter& writer, PathSlot& slot, uint32_t cpsn,
                            SendEntry& entry, bool last, bool copy) {
  if (!entry.control && !entry.voided && !is_readable(entry.fragment)) entry.voided = true;
  const uint32_t size = entry_size(entry);
  if (!writer.can_append(slot.tx.id, size)) {
    if (writer.full()) {
      if (!copy) queue_repair(cpsn, entry, kAnyList);
      return false;
    }
    begin_run(writer, slot, true);
  }
  SentKind kind = SentKind::kData;
  if (entry.voided) {
    kind = SentKind::kVoid;  // MR-CPSN-022
  } else if (entry.control) {
    kind = SentKind::kControl;
  }
  const uint32_t seq = slot.tx.on_sent(now, cpsn, static_cast<uint16_t>(size), kind);
  shared_.telemetry.emit(EventKind::packet_sent, handle_, slot.tx.id, seq, cpsn, size);
  uint8_t flags = copy ? wire::flag::kCopy : 0;
  if (entry.sent && !copy) flags |= wire::flag::kRetransmission;  // MR-WIRE-032
  if (last || announce_acks_) flags |= wire::flag::kAckRequest | wire::flag::kLastPath;
  const std::byte* payload = nullptr;
  const size_t header = encode_entry(now, slot, cpsn, entry, seq, flags, writer.header(), payload);
  const bool has_payload = kind == SentKind::kData;
  writer.commit(header, payload, has_payload ? entry.fragment.length : 0);
  announce_acks_ = false;
  if (has_payload) {
    path::PathSender& tx = slot.tx;
    ++(copy ? tx.counters->tx_copies : entry.sent ? tx.counters->tx_repair : tx.counters->tx_new);
    slot.tx.counters->tx_bytes += entry.fragment.length;
  } else {
    ++slot.tx.counters->tx_control;
    counters_.voids += kind == SentKind::kVoid;
  }
  if (entry.lost_path != kNoList) {
    paths_[entry.lost_path]->tx.on_resent(now, entry.lost_seq);
    entry.lost_path = kNoList;
  }
  if (entry.sent && sender_.bytes_waiting() == 0) slot.tx.hasten_probe(now, now);
  watch(slot);
  if (!copy) {  // a copy never takes the place of its original (MR-PATH-013)
    entry.repaired = entry.sent;
    entry.sent = true;
    entry.path = slot.tx.id;
    entry.seq = seq;
  }
  ++entry.live;
  if (in_flight_packets_ == 0) progress_at_ = now;  // the backstop's clock starts with the work
  ++in_flight_packets_;
  in_flight_bytes_ += static_cast<uint16_t>(size);
  if (expect_since_ == kNever) expect_since_ = now;
  return true;
}

uint32_t Connection::worthwhile(const PathSlot& slot, uint32_t size) const {
  // A run that is cut up by acknowledgements costs a system call for every few packets: with much
  // waiting, a path is used again when there is room for a full run or an eighth of its window.
  const uint64_t eighth = slot.tx.window().bytes() / 8;
  return static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{wanted_run_} * size, std::max<uint64_t>(eighth, size)));
}

PathSlot* Connection::choose_path(Time now, uint32_t size, uint32_t not_path) {
  PathSlot* best = nullptr;
  uint64_t best_score = 0;
  uint32_t next = ++next_path_hint_ % tx_paths_;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    PathSlot& slot = *paths_[next];
    if (++next == tx_paths_) next = 0;
    path::PathSender& tx = slot.tx;
    if (tx.id == not_path || !tx.has_room(worthwhile(slot, size))) continue;
    if (!tx.can_send(now, *this)) continue;
    if (tx.in_flight() == 0) return &slot;
    // Earliest expected delivery: what is in flight drains at window / RTT. An idle path comes
    // first, or one that starts again with a small window would never grow.
    const uint64_t score =
        uint64_t{tx.in_flight()} * (static_cast<uint64_t>(tx.srtt().ns) + 1) / tx.window().bytes();
    if (best == nullptr || score < best_score) {
      best = &slot;
      best_score = score;
    }
  }
  return best;
}

bool Connection::drain_list(Time now, RunWriter& writer, RepairList& repair, PathSlot* path) {
  while (repair.size > 0) {
    if (writer.full()) return false;
    const uint32_t cpsn = repair.head;
    SendEntry& entry = window_->at(cpsn);
    PathSlot* slot = path;
    if (slot == nullptr) slot = choose_path(now, entry_size(entry));
    if (slot == nullptr || !slot->tx.can_send(now, *this)) return true;
    unqueue(cpsn, entry);
    if (entry.state != SendEntry::State::kUndecided) continue;
    if (!send_entry(now, writer, *slot, cpsn, entry, repair.size == 0)) return false;
  }
  return true;
}

void Connection::transmit_repairs(Time now, RunWriter& writer) {
  if (repairs_ == 0) return;
  if (!drain_list(now, writer, control_, nullptr)) return;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    PathSlot& slot = *paths_[i];
    // MR-CC-001: a repair on its own path is not held back by the window; its slot was freed.
    if (slot.repair.size > 0 && slot.tx.is_good()) {
      // The repair of the lowest packet must not wait for the span that only it can free.
      if (slot.tx.lowest_is_lost() && !writer.full()) resend_lowest(now, writer, slot);
      if (!drain_list(now, writer, slot.repair, &slot)) return;
    }
  }
  if (!drain_list(now, writer, any_, nullptr)) return;
  // Paths whose span is full of what was lost take back the lowest of it (MR-PATH-008): nothing
  // else would ever free them.
  for (uint32_t i = 0; i < tx_paths_ && any_.size > 0; ++i) {
    PathSlot& slot = *paths_[i];
    while (slot.tx.is_good() && slot.tx.lowest_is_lost() && slot.tx.has_room(payload_ + 64)) {
      if (writer.full() || !resend_lowest(now, writer, slot)) break;
    }
  }
}

void Connection::transmit_copies(Time now, RunWriter& writer) {
  // MR-LOSS-060, MR-LOSS-061: with nothing new to send, what would end the transfer late is sent
  // once more on another path: repairs, and the last packet of each path, whose loss no later
  // packet would show. Only where loss was seen, never while the fabric marks.
  if (tx_paths_ < 2 || window_->size() == 0 || sender_.bytes_waiting() > 0) return;
  if (now - marked_at_ < smallest_srtt()) return;
  uint32_t loss = 0;
  for (uint32_t i = 0; i < tx_paths_; ++i) {
    loss = std::max(loss, paths_[i]->tx.loss_fraction());
  }
  if (loss < 16) return;
  const uint32_t scan = std::min(window_->size(), shared_.settings.copy_scan);
  for (uint32_t i = 1; i <= scan && !writer.full(); ++i) {
    const uint32_t cpsn = window_->next() - i;
    SendEntry& entry = window_->at(cpsn);
    if (entry.state != SendEntry::State::kUndecided || entry.copied || entry.voided ||
        entry.control || entry.live != 1 || entry.list != kNoList) {
      continue;
    }
    const path::PathSender& tx = paths_[entry.path]->tx;
    if (!entry.repaired && tx.next_seq() != entry.seq + 1) continue;
    PathSlot* slot = choose_path(now, entry_size(entry), entry.path);
    if (slot == nullptr) return;
    entry.copied = true;
    if (!send_entry(now, writer, *slot, cpsn, entry, true, true)) return;
  }
}

// --- control ---

bool Connection::has_control_slot() const {
  return window_->room(true) > 0 && shared_.chunks.available() > 0 &&
         shared_.controls.available() > 0 && controls_used_ < kControlsPerConnection;
}

uint32_t Connection::queue_control(const wire::ControlPacket& body, uint16_t id) {
  if (!has_control_slot()) return kNoList;
  uint32_t cpsn = 0;
  SendEntry* entry = window_->create(cpsn);
  if (entry == nullptr) return kNoList;
  const uint32_t slot = shared_.controls.allocate();
  ++controls_used_;
  shared_.controls[slot] = body;
  entry->control = true;
  entry->fragment.send = slot;
  queue_repair(cpsn, *entry, id);
  return slot;
}

void Connection::send_resets() {
  uint16_t stream = 0;
  uint32_t final_msn = 0;
  bool halt = false;
  while (has_control_slot() && sender_.next_reset(stream, final_msn, halt)) {
    wire::ControlPacket reset;
    reset.opcode = wire::ControlOpcode::kReset;
    reset.stream = stream;
    reset.generation = halt;
    reset.value = final_msn;
    queue_control(reset, kControlList);
  }
}

}  // namespace metaroce::connection
