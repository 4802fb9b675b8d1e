// The way of a packet up: path, CPSN, message, memory, decision, placement, arrival (MR-CPSN-030).
#include <algorithm>
#include <cstring>

#include "connection/connection.h"
#include "wire/minifloat.h"

namespace metaroce::connection {

using wire::DropReason;
using wire::Refusal;

PathSlot* Connection::incoming_path(const wire::Sequenced& s) {
  if (state_ == ConnectionState::kAccepting) {  // MR-CONN-014
    shared_.drop(DropReason::kNotConfirmed);
    return nullptr;
  }
  if (s.path >= paths_.size()) {
    shared_.drop(DropReason::kUnknownPath);
    return nullptr;
  }
  wake();
  if (!paths_[s.path]->rx.is_open()) {
    shared_.drop(DropReason::kUnknownPath);
    return nullptr;
  }
  PathSlot& slot = *paths_[s.path];
  // MR-PATH-024, MR-PATH-025: too far away, or above the map after its own floor.
  if (!slot.rx.in_reach(s.path_seq) || !slot.rx.fits(s.path_seq, s.floor)) {
    shared_.drop(DropReason::kPathWindow);
    return nullptr;
  }
  return &slot;
}

void Connection::note(Time now, PathSlot& slot, const RxPacket& rx, const wire::Sequenced& s,
                      Fate fate, bool ack_now, bool fresh_refusal, uint16_t stream) {
  path::Arrival a;
  a.seq = s.path_seq;
  a.stamp = s.stamp;
  a.floor = s.floor;
  a.epoch = s.epoch;
  a.refused = fate == Fate::kRefused || fate == Fate::kVoided;
  a.voided = fate == Fate::kVoided;
  a.ack_now = ack_now || (s.flags & wire::flag::kAckRequest) != 0;
  a.new_refusal = fresh_refusal;
  a.ce = rx.ecn == Ecn::kCe;
  a.stream = stream;
  heard_at_ = now;
  last_rx_path_ = s.path;
  ++slot.tx.counters->rx_packets;
  shared_.telemetry.emit(EventKind::packet_received, handle_, s.path, s.path_seq, s.cpsn,
                         static_cast<uint64_t>(fate));
  slot.rx.note(now, a, shared_.settings, slot.tx.srtt());
  owe_ack(slot);
}

bool Connection::on_data(Time now, const RxPacket& rx, Placement& placement) {
  const auto decoded = wire::decode_data(rx.bytes);
  if (!decoded) {
    shared_.drop(decoded.error());
    return false;
  }
  const wire::DataPacket& d = *decoded;
  PathSlot* slot = incoming_path(d.s);
  if (slot == nullptr) return false;
  if (!filter_->in_range(d.s.cpsn)) {  // MR-CPSN-004
    shared_.drop(DropReason::kCpsnWindow);
    return false;
  }
  const Fate known = filter_->lookup(d.s.cpsn);
  if (known != Fate::kUnseen) {  // MR-CPSN-007: the same answer, nothing is placed again
    ++slot->tx.counters->rx_duplicates;
    if (known == Fate::kRefused) repeat_refusal(d, *slot);
    note(now, *slot, rx, d.s, known, d.last(), false, d.stream);
    return false;
  }
  if (state_ == ConnectionState::kTimeWait) {  // MR-CONN-031: copies only
    shared_.drop(DropReason::kNoState);
    return false;
  }
  if (d.opcode == wire::Opcode::kReadResponse || d.opcode == wire::Opcode::kAtomicResponse) {
    return on_response(now, d, rx, *slot, placement);
  }
  message::Admission admission;
  memory::Target target;
  const Refusal reason = admit(d, admission, target);
  if (!admission.accepted) {
    if (reason == Refusal::kKey && !may_guess_key(now)) {  // MR-SEC-013
      shared_.drop(DropReason::kKeyGuess);
      return false;
    }
    refuse(now, d, rx, *slot, reason, admission.rq_seq);
    return false;
  }
  uint32_t operation = message::kNoIndex;
  if (admission.operation) operation = sender_.accept_request(d, admission.parks);
  filter_->decide(d.s.cpsn, Fate::kAccepted);
  const bool placed = place(d, admission, target, placement);  // MR-CPSN-032
  receiver_.commit(d, admission, operation);
  note_accepted(now, d, rx, *slot);
  if (placed && admission.check_memory && !d.last()) begin_receive_run(d, *slot, target);
  return placed;
}

void Connection::note_accepted(Time now, const wire::DataPacket& d, const RxPacket& rx,
                               PathSlot& slot) {
  completions_hint_ = true;
  ++slot.tx.counters->rx_accepted;
  slot.tx.counters->rx_bytes += d.payload_length;
  counters_.bytes_received += d.payload_length;
  note(now, slot, rx, d.s, Fate::kAccepted, d.last(), false, d.stream);
}

void Connection::refuse(Time now, const wire::DataPacket& d, const RxPacket& rx, PathSlot& slot,
                        Refusal reason, uint32_t rq_seq) {
  filter_->decide(d.s.cpsn, Fate::kRefused);
  ++slot.tx.counters->rx_refused;
  shared_.telemetry.emit(EventKind::packet_refused, handle_, d.s.path, d.s.path_seq, d.s.cpsn,
                         static_cast<uint64_t>(reason));
  const bool wait = reason == Refusal::kNotReady || reason == Refusal::kStreamNotReady;
  const uint8_t delay =
      wait ? wire::encode_delay(nanoseconds(shared_.settings.rnr_delay)) : uint8_t{0};
  refusals_[next_refusal_++ % refusals_.size()] = {d.s.cpsn, rq_seq, d.stream, reason, delay};
  slot.rx.set_refusal(d.s.path_seq, reason, d.stream, rq_seq, delay);
  note(now, slot, rx, d.s, Fate::kRefused, false, true, d.stream);
}

void Connection::repeat_refusal(const wire::DataPacket& d, PathSlot& slot) {
  for (const RecentRefusal& r : refusals_) {
    if (r.cpsn != d.s.cpsn || r.stream != d.stream) continue;
    if (r.reason == Refusal::kUnknown) return;  // an entry that was never used
    slot.rx.set_refusal(d.s.path_seq, r.reason, r.stream, r.rq_seq, r.delay);
    return;
  }
}

namespace {

Refusal refusal_of(memory::AccessError error) {
  switch (error) {
    case memory::AccessError::kKey:
      return Refusal::kKey;
    case memory::AccessError::kBounds:
      return Refusal::kBounds;
    case memory::AccessError::kRights:
      return Refusal::kAccess;
  }
  return Refusal::kKey;
}

/// Fills where `length` bytes at `offset` of a list of segments go.
void scatter(std::span<const message::Segment> list, uint64_t offset, uint32_t length,
             Placement& placement) {
  while (!list.empty() && offset >= list.front().length) {
    offset -= list.front().length;
    list = list.subspan(1);
  }
  if (list.empty()) return;
  const message::Segment& s = list.front();
  placement.address = s.address == nullptr ? nullptr : s.address + offset;
  if (s.length - offset >= length) return;
  placement.first = static_cast<uint32_t>(s.length - offset);
  placement.rest = list.subspan(1);
}

}  // namespace

Refusal Connection::admit(const wire::DataPacket& d, message::Admission& admission,
                          memory::Target& target) {
  // CLOSE is on its way and tells why it ends; a refusal for good would tell something else.
  if (state_ == ConnectionState::kClosing) return Refusal::kNoResource;
  if (state_ != ConnectionState::kOpen) return Refusal::kStreamClosed;
  admission = receiver_.admit(d);
  if (!admission.accepted) return admission.reason;
  if (admission.check_memory) {
    const auto checked = shared_.regions.check(d.key, d.address, d.payload_length,
                                               memory::access::kRemoteWrite, domain_);
    if (!checked) {
      admission.accepted = false;
      return refusal_of(checked.error());
    }
    target = *checked;
  }
  if (admission.operation) return admit_operation(d, admission);
  if (admission.invalidates && !shared_.regions.may_invalidate(d.immediate, domain_)) {
    admission.accepted = false;  // MR-MEM-008
    return Refusal::kKey;
  }
  return Refusal::kUnknown;
}

Refusal Connection::admit_operation(const wire::DataPacket& d, message::Admission& admission) {
  const bool read = d.opcode == wire::Opcode::kReadRequest;
  admission.accepted = false;
  if (!read && d.address % 8 != 0) return Refusal::kUnsupported;  // MR-MSG-049
  const auto checked = shared_.regions.check(
      d.key, d.address, read ? d.read_length : 8,
      read ? memory::access::kRemoteRead : memory::access::kRemoteAtomic, domain_);
  if (!checked) return refusal_of(checked.error());
  if (!sender_.can_accept_request(d.stream, admission.parks)) return Refusal::kNoPending;
  admission.accepted = true;
  return Refusal::kUnknown;
}

bool Connection::place(const wire::DataPacket& d, const message::Admission& admission,
                       const memory::Target& target, Placement& placement) {
  if (d.payload_length == 0) return false;
  placement.payload_begin = d.payload_begin;
  placement.length = d.payload_length;  // MR-PMTU-009
  placement.rest = {};
  if (admission.check_memory) {
    placement.region = target.region;
    placement.offset = target.offset;
    placement.address = target.address;
  } else {
    placement.region = kReceiveBuffer;
    placement.offset = admission.offset;
    placement.address = admission.address;
    const auto segments = receiver_.segments_of(admission.receive);
    if (!segments.empty()) scatter(segments, admission.offset, d.payload_length, placement);
  }
  return true;
}

/// Bytes or old values that the peer sends because we asked (MR-MSG-045).
bool Connection::on_response(Time now, const wire::DataPacket& d, const RxPacket& rx,
                             PathSlot& slot, Placement& placement) {
  const message::ResponseAdmission a = sender_.admit_response(d);
  if (!a.accepted) {
    refuse(now, d, rx, slot, a.reason, 0);
    return false;
  }
  filter_->decide(d.s.cpsn, Fate::kAccepted);
  message::Segment single;
  const auto landing = sender_.landing(a.send, single);
  uint64_t old_value = 0;
  if (a.atomic) {
    old_value = wire::load64(rx.bytes.data() + d.payload_begin);
    if (single.address != nullptr && shared_.sends.memory) {
      std::memcpy(single.address, &old_value, sizeof old_value);
    }
  } else if (d.payload_length > 0) {
    placement = Placement{};
    placement.payload_begin = d.payload_begin;
    placement.length = d.payload_length;
    placement.region = kReceiveBuffer;
    placement.offset = d.offset;
    scatter(landing, d.offset, d.payload_length, placement);
  }
  sender_.commit_response(d, a.send, old_value);
  note_accepted(now, d, rx, slot);
  return !a.atomic && d.payload_length > 0;
}

void Connection::on_control(Time now, const RxPacket& rx) {
  const auto decoded = wire::decode_control(rx.bytes);
  if (!decoded) return shared_.drop(decoded.error());
  PathSlot* slot = incoming_path(decoded->s);
  if (slot == nullptr) return;
  const uint32_t cpsn = decoded->s.cpsn;
  if (!filter_->in_range(cpsn)) return shared_.drop(DropReason::kCpsnWindow);
  Fate fate = filter_->lookup(cpsn);
  const bool fresh = fate == Fate::kUnseen;
  if (fresh && state_ == ConnectionState::kTimeWait) return shared_.drop(DropReason::kNoState);
  ++(fresh ? slot->tx.counters->rx_control : slot->tx.counters->rx_duplicates);
  if (fresh) {
    fate = execute_control(now, *decoded, rx) ? Fate::kAccepted : Fate::kRefused;
    filter_->decide(cpsn, fate);
    if (fate == Fate::kRefused) {
      slot->rx.set_refusal(decoded->s.path_seq, Refusal::kNoResource, 0, 0, 0);
    }
  }
  note(now, *slot, rx, decoded->s, fate, true, fresh && fate == Fate::kRefused, 0);
}

bool Connection::execute_control(Time now, const wire::ControlPacket& packet, const RxPacket& rx) {
  switch (packet.opcode) {
    case wire::ControlOpcode::kPathOpen:
      // MR-PATH-041: not beyond what was negotiated.
      if (packet.path >= std::min(announced_paths(), peer_max_paths_)) return false;
      if (packet.plane >= shared_.local.size()) return false;
      open_incoming(packet, rx);
      return true;
    case wire::ControlOpcode::kPathClose:
      if (packet.path < paths_.size() &&
          paths_[packet.path]->rx.generation == static_cast<uint16_t>(packet.generation)) {
        paths_[packet.path]->rx.close();  // MR-PATH-047
      }
      return true;
    case wire::ControlOpcode::kCredit:
      sender_.on_limit(packet.stream, packet.value);  // MR-MSG-050
      return true;
    case wire::ControlOpcode::kReset:
      if (packet.generation != 0) {
        receiver_.on_halt(packet.stream);
      } else {
        receiver_.on_reset(packet.stream);
      }
      sender_.drop_responses(packet.stream);
      completions_hint_ = true;
      return true;
    case wire::ControlOpcode::kPortStatus:
      on_port_status(now, packet);
      return true;
    case wire::ControlOpcode::kClose:
      if (state_ == ConnectionState::kOpen || state_ == ConnectionState::kClosing) {
        close_code_ = packet.value;
        const uint32_t kind = packet.value & 0xFFFF0000u;
        const bool orderly =
            kind == wire::close_code::kNormal || kind == wire::close_code::kShutdown;
        fail(now, orderly ? Status::kClosed : Status::kPeerFailed, ConnectionEventKind::kClosed);
      }
      return true;
    case wire::ControlOpcode::kAddAddr:
      on_add_addr(now, packet);
      return true;
    case wire::ControlOpcode::kKeyUpdate:
      // Its own tag has led to the new key already; a plain connection has none.
      return session_ != nullptr;
    case wire::ControlOpcode::kResponseError:
      sender_.on_response_error(packet.stream, packet.generation, packet.reason);
      completions_hint_ = true;
      return true;
  }
  return false;
}

void Connection::open_incoming(const wire::ControlPacket& packet, const RxPacket&) {
  while (paths_.size() <= packet.path) paths_.add();
  path::PathReceiver& rx = paths_[packet.path]->rx;
  const auto generation = static_cast<uint16_t>(packet.generation);
  // MR-PATH-041: an old or repeated generation changes nothing.
  if (rx.is_open() && static_cast<int16_t>(generation - rx.generation) <= 0) return;
  SocketAddress peer = packet.address[0];
  if (peer.family == 0 || peer.is_any()) peer = peer_[packet.plane];
  peer.scope = peer_[packet.plane].scope;
  if (peer_[packet.plane].family == 0) peer_[packet.plane] = peer;
  rx.open(packet.plane, generation, packet.start, peer);
  if (session_ != nullptr) session_->open_receive_path(packet.path, generation, packet.start);
}

void Connection::on_probe(Time now, const RxPacket& rx) {
  const auto decoded = wire::decode_probe(rx.bytes);
  if (!decoded) return shared_.drop(decoded.error());
  PathSlot* slot = incoming_path(decoded->s);
  if (slot == nullptr) return;
  // MR-CPSN-004: the CPSN it names was sent; a made-up one is as far off as that of made-up data.
  if (!filter_->in_range(decoded->s.cpsn)) return shared_.drop(DropReason::kCpsnWindow);
  ++slot->tx.counters->rx_probes;
  if (decoded->stream != 0) receiver_.on_credit_asked(decoded->stream);
  note(now, *slot, rx, decoded->s, Fate::kUnseen, true, false, decoded->stream);
}

void Connection::on_void(Time now, const RxPacket& rx) {
  const auto decoded = wire::decode_void(rx.bytes);
  if (!decoded) return shared_.drop(decoded.error());
  PathSlot* slot = incoming_path(decoded->s);
  if (slot == nullptr) return;
  const uint32_t target = decoded->s.cpsn;
  if (!filter_->in_range(target)) return shared_.drop(DropReason::kCpsnWindow);
  Fate fate = filter_->lookup(target);
  const bool fresh = fate == Fate::kUnseen;
  if (fresh && state_ == ConnectionState::kTimeWait) return shared_.drop(DropReason::kNoState);
  ++slot->tx.counters->rx_control;
  if (fresh) {  // MR-CPSN-020
    fate = Fate::kVoided;
    filter_->decide(target, fate);
  }
  note(now, *slot, rx, decoded->s, fate, false, fresh, 0);  // MR-CPSN-021
}

}  // namespace metaroce::connection
