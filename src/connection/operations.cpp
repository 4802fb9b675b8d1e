// Reads, atomics and streams that end: what the message layer cannot do alone because it knows
// neither memory nor the packets that are under way.
#include "connection/connection.h"

namespace metaroce::connection {

using wire::Refusal;

/// The operation is next in its stream. Its memory is looked up again: the region may be gone since
/// the request was found good.
void Connection::on_turn(uint32_t operation) {
  const message::RemoteOperation op = sender_.operation(operation);
  if (op.opcode != wire::Opcode::kReadRequest) {
    // The placements of the packets before it may not be carried out yet (MR-MSG-040).
    sender_.defer(operation);
    if (atomics_due_) return;
    atomics_due_ = true;
    shared_.atomics.push(handle_);
    return;
  }
  const auto target =
      shared_.regions.check(op.key, op.address, op.length, memory::access::kRemoteRead, domain_);
  if (!target) return sender_.refuse_operation(operation, Refusal::kKey);
  sender_.start_read(operation, target->address);  // MR-MSG-046
}

/// Its stream ended first. When that was our doing the peer still waits for an answer.
void Connection::on_never(uint32_t operation) {
  if (!resetting_) return sender_.drop_operation(operation);
  sender_.refuse_operation(operation, Refusal::kStreamClosed);
}

void Connection::execute_atomics() {
  wake();
  atomics_due_ = false;
  for (;;) {
    const uint32_t operation = sender_.next_deferred();
    if (operation == message::kNoIndex) return;
    const message::RemoteOperation op = sender_.operation(operation);
    const auto target =
        shared_.regions.check(op.key, op.address, 8, memory::access::kRemoteAtomic, domain_);
    if (!target) {
      sender_.refuse_operation(operation, Refusal::kKey);
      continue;
    }
    sender_.start_atomic(operation, perform(op, target->address));  // MR-MSG-046
  }
}

/// MR-MSG-049: in the byte order of this host, atomic for all threads of it.
uint64_t Connection::perform(const message::RemoteOperation& op, std::byte* address) {
  if (address == nullptr || !shared_.sends.memory) return 0;  // a region without memory
  auto* value = reinterpret_cast<uint64_t*>(address);
  if (op.opcode == wire::Opcode::kFetchAdd) {
    return __atomic_fetch_add(value, op.operand, __ATOMIC_ACQ_REL);
  }
  uint64_t expected = op.operand;
  __atomic_compare_exchange_n(value, &expected, op.swap, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}

/// False: the region that a response reads from is gone; nothing of it is sent any more.
bool Connection::is_readable(const message::Fragment& fragment) {
  uint32_t key = 0;
  uint64_t address = 0;
  if (!sender_.reads_region(fragment, key, address)) return true;
  if (!sender_.is_aborted(fragment.send)) {
    if (shared_.regions.check(key, address, fragment.length, memory::access::kRemoteRead,
                              domain_)) {
      return true;
    }
    sender_.abort_response(fragment.send, Refusal::kKey);  // MR-MSG-048
  }
  return false;
}

void Connection::send_response_errors() {
  wire::ControlPacket error;
  error.opcode = wire::ControlOpcode::kResponseError;
  while (has_control_slot() &&
         sender_.next_response_error(error.stream, error.generation, error.reason)) {
    queue_control(error, kControlList);
  }
}

Status Connection::set_stream_options(uint16_t stream, const message::StreamOptions& options) {
  // Both directions, or neither.
  Status status = sender_.may_set_options(stream, options);
  if (status == Status::kOk) status = receiver_.set_options(stream, options);
  return status == Status::kOk ? sender_.set_options(stream, options) : status;
}

Status Connection::reset_stream(uint16_t stream) {
  wake();
  completions_hint_ = true;
  const Status sends = sender_.reset(stream);
  resetting_ = true;
  const Status receives = receiver_.close(stream);
  resetting_ = false;
  sender_.drop_responses(stream, Refusal::kStreamClosed);
  void_stream(stream);
  return sends != Status::kOk ? sends : receives;
}

Status Connection::drain_stream(uint16_t stream) {
  wake();
  return sender_.drain(stream);
}

bool Connection::reopen_stream(uint16_t stream) {
  // Both directions, or neither.
  return sender_.may_reopen(stream) && !tells_errors_of(stream) && receiver_.reopen(stream) &&
         sender_.reopen(stream);
}

/// A RESPONSE_ERROR of the stream is under way: in its next life it would end another request.
bool Connection::tells_errors_of(uint16_t stream) const {
  if (!window_ || controls_used_ == 0) return false;
  for (uint32_t c = window_->lowest_undecided(); c != window_->next(); ++c) {
    const SendEntry& e = window_->at(c);
    if (!e.control || e.state != SendEntry::State::kUndecided) continue;
    const wire::ControlPacket& body = shared_.controls[e.fragment.send];
    if (body.opcode == wire::ControlOpcode::kResponseError && body.stream == stream) return true;
  }
  return false;
}

void Connection::on_queue_filled(uint16_t stream) {
  wake();
  receiver_.on_queue_filled(stream);
}

/// What the peer may not have seen of a stream that was reset is asked about, not sent again
/// (MR-MSG-006).
void Connection::void_stream(uint16_t stream) {
  if (!window_) return;
  for (uint32_t c = window_->lowest_undecided(); c != window_->next(); ++c) {
    SendEntry& e = window_->at(c);
    if (e.state != SendEntry::State::kUndecided || e.control || e.voided) continue;
    if (sender_.stream_of(e.fragment) != stream) continue;
    e.voided = true;  // MR-CPSN-023
    if (e.list == kNoList) queue_repair(c, e, kAnyList);
  }
}

}  // namespace metaroce::connection
