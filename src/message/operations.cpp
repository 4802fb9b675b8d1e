// The part of Sender that deals with Reads and atomics: what comes back for our own, and the
// responses to those of the peer.
#include <algorithm>

#include "base/assert.h"
#include "base/seq.h"
#include "message/send_stream.h"
#include "message/sender.h"

namespace metaroce::message {

namespace {

bool answers(wire::Opcode request, wire::Opcode response) {
  return (request == wire::Opcode::kReadRequest) == (response == wire::Opcode::kReadResponse);
}

Status status_of(wire::Refusal reason) {
  switch (reason) {
    case wire::Refusal::kKey:
    case wire::Refusal::kBounds:
    case wire::Refusal::kAccess:
      return Status::kAccess;
    case wire::Refusal::kUnsupported:
      return Status::kUnsupported;
    default:
      return Status::kPeerFailed;
  }
}

}  // namespace

// --- what we asked for ---

void Sender::set_peer_outstanding(uint32_t count) { max_outstanding_ = std::max(count, 1u); }

void Sender::note_outstanding(SendRecord& r) {
  if (r.outstanding) return;
  r.outstanding = true;
  ++outstanding_;
  MR_DASSERT(outstanding_ <= max_outstanding_);  // MR-MSG-044
  ++pools_.streams()[r.stream].outstanding;
}

void Sender::no_longer_outstanding(SendRecord& r) {
  r.outstanding = false;
  --outstanding_;
  --pools_.streams()[r.stream].outstanding;
  // One more may go out.
  while (!waiting_.empty()) {
    const uint32_t index = waiting_.head;
    refresh(index);
    if (pools_.streams()[index].active) break;
  }
}

/// A request of the stream that went out and has not ended. Only these are looked at, however much
/// is posted behind them: the peer chooses the number.
uint32_t Sender::find_unfinished(const SendStream& s, uint32_t msn) const {
  uint32_t i = s.head;
  if (i == kNoIndex || msn - pools_.sends()[i].msn >= span_) return kNoIndex;
  while (i != kNoIndex && pools_.sends()[i].msn != msn) i = pools_.sends()[i].next;
  return i;
}

ResponseAdmission Sender::admit_response(const wire::DataPacket& d) const {
  ResponseAdmission a;
  a.reason = wire::Refusal::kStreamClosed;
  const uint32_t index = find_stream(d.stream);
  if (index == kNoIndex) return a;
  const SendStream& s = pools_.streams()[index];
  uint32_t send = cached_answer_;
  if (send == kNoIndex || pools_.sends()[send].stream != index ||
      pools_.sends()[send].msn != d.msn) {
    send = find_unfinished(s, d.msn);
    if (send == kNoIndex) return a;
    cached_answer_ = send;
  }
  const SendRecord& r = pools_.sends()[send];
  if (!r.outstanding || !r.awaits || (s.failed && seq_ge(r.msn, s.fail_msn))) return a;
  a.send = send;
  a.atomic = d.opcode == wire::Opcode::kAtomicResponse;
  a.reason = wire::Refusal::kLength;
  const uint64_t end = uint64_t{d.offset} + d.payload_length;
  if (!answers(r.opcode, d.opcode) || end > r.response_length ||
      d.last() != (end == r.response_length) ||
      uint64_t{r.response_bytes} + d.payload_length > r.response_length ||
      (d.payload_length == 0 && r.response_length != 0)) {
    return a;
  }
  a.accepted = true;
  return a;
}

std::span<const Segment> Sender::landing(uint32_t send, Segment& single) const {
  const SendRecord& r = pools_.sends()[send];
  if (r.segments != kNoIndex) {
    const SegmentList& list = pools_.segments()[r.segments];
    return {list.segment, list.count};
  }
  single = {r.result, r.response_length};
  return {&single, 1};
}

void Sender::commit_response(const wire::DataPacket& d, uint32_t send, uint64_t old_value) {
  SendRecord& r = pools_.sends()[send];
  r.response_bytes += d.payload_length;
  if (d.opcode == wire::Opcode::kAtomicResponse) r.operand = old_value;
  if (r.response_bytes < r.response_length) return;
  const uint32_t index = r.stream;
  r.awaits = false;
  no_longer_outstanding(r);  // MR-MSG-044
  settle(send);
  refresh(index);  // what a fence held back
}

void Sender::on_response_error(uint16_t stream, uint32_t msn, wire::Refusal reason) {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) return;
  const SendStream& s = pools_.streams()[index];
  const uint32_t i = find_unfinished(s, msn);
  if (i == kNoIndex) return;
  const SendRecord& r = pools_.sends()[i];
  if (!r.outstanding || !r.awaits || (s.failed && seq_ge(msn, s.fail_msn))) return;
  fail(i, status_of(reason));
}

// --- what the peer asks for ---

uint32_t Sender::find_responses(uint16_t id) const {
  return pools_.index().find(response_key(stream_key(connection_, id)));
}

bool Sender::can_accept_request(uint16_t stream, bool parked) const {
  const uint32_t all = pools_.max_pending + pools_.max_responses;
  if (dead_ || pools_.responses >= all) return false;
  // MR-MSG-065: an answer takes its place until the peer has acknowledged it, so an honest peer may
  // be a little above what it may ask.
  if (answers_ >= 2 * max_asked_) return false;
  const uint32_t index = find_responses(stream);
  if (index == kNoIndex &&
      pools_.streams().available() <= pools_.max_streams - pools_.streams_used) {
    return false;
  }
  if (!parked) return pools_.responses - pools_.parked < pools_.max_responses;
  // MR-MSG-041: a quarter for each stream, and the last entry for one that has none.
  const uint32_t own = index == kNoIndex ? 0 : pools_.streams()[index].parked;
  const uint32_t free = pools_.max_pending - pools_.parked;
  return own < std::max(pools_.max_pending / 4, 1u) && (free > 1 || (free == 1 && own == 0));
}

uint32_t Sender::accept_request(const wire::DataPacket& d, bool parked) {
  if (!can_accept_request(d.stream, parked)) return kNoIndex;
  uint32_t index = find_responses(d.stream);
  if (index == kNoIndex) {
    index = make_record(response_key(stream_key(connection_, d.stream)), d.stream);
    MR_ASSERT(index != kNoIndex);
    pools_.streams()[index].responses = true;
  }
  const uint32_t i = pools_.sends().allocate();
  MR_ASSERT(i != kNoIndex);
  SendStream& s = pools_.streams()[index];
  SendRecord& r = pools_.sends()[i];
  ++pools_.responses;
  ++answers_;
  ++s.operations;
  if (parked) {
    ++s.parked;
    ++pools_.parked;
  }
  const bool read = d.opcode == wire::Opcode::kReadRequest;
  r.opcode = read ? wire::Opcode::kReadResponse : wire::Opcode::kAtomicResponse;
  r.asked = d.opcode;
  r.length = read ? d.read_length : 8;
  r.remote_key = d.key;
  r.remote_address = d.address;
  r.operand = d.operand;
  r.swap = d.swap;
  r.msn = d.msn;
  r.stream = index;
  r.stream_id = d.stream;
  r.parked = parked;
  return i;
}

RemoteOperation Sender::operation(uint32_t index) const {
  const SendRecord& r = pools_.sends()[index];
  return {r.asked, r.remote_key, r.remote_address, r.length, r.operand, r.swap};
}

void Sender::start(uint32_t i) {
  SendRecord& r = pools_.sends()[i];
  SendStream& s = pools_.streams()[r.stream];
  if (r.parked) {
    r.parked = false;
    --s.parked;
    --pools_.parked;
  }
  r.next = kNoIndex;
  (s.tail == kNoIndex ? s.head : pools_.sends()[s.tail].next) = i;
  s.tail = i;
  ++unfinished_;
  bytes_waiting_ += r.length;
  if (s.cut == kNoIndex) s.cut = i;
  refresh(r.stream);
}

void Sender::start_read(uint32_t i, const std::byte* source) {
  pools_.sends()[i].local = source;  // MR-MSG-047: read when it is sent, each time
  start(i);
}

void Sender::defer(uint32_t i) {
  pools_.sends()[i].next = kNoIndex;
  (deferred_.empty() ? deferred_.head : pools_.sends()[deferred_.tail].next) = i;
  deferred_.tail = i;
}

uint32_t Sender::next_deferred() {
  const uint32_t i = deferred_.head;
  if (i == kNoIndex) return i;
  deferred_.head = pools_.sends()[i].next;
  if (deferred_.head == kNoIndex) deferred_.tail = kNoIndex;
  return i;
}

void Sender::start_atomic(uint32_t i, uint64_t old_value) {
  SendRecord& r = pools_.sends()[i];
  // MR-MSG-047: it lies here, in wire order, until the peer has it.
  wire::store64(reinterpret_cast<std::byte*>(&r.operand), old_value);
  r.local = reinterpret_cast<const std::byte*>(&r.operand);
  start(i);
}

void Sender::refuse_operation(uint32_t i, wire::Refusal reason) {
  start(i);
  abort_response(i, reason);
}

void Sender::drop_operation(uint32_t i) {
  SendRecord& r = pools_.sends()[i];
  const uint32_t index = r.stream;
  SendStream& s = pools_.streams()[index];
  if (r.parked) {
    --s.parked;
    --pools_.parked;
  }
  --s.operations;
  --pools_.responses;
  --answers_;
  release(i);
  settle_responses(index);
}

bool Sender::is_aborted(uint32_t send) const { return pools_.sends()[send].aborted; }

/// Nothing of it is sent any more; what is under way is waited for.
void Sender::give_up(uint32_t send) {
  SendRecord& r = pools_.sends()[send];
  SendStream& s = pools_.streams()[r.stream];
  r.aborted = true;
  if (!r.cut_done) bytes_waiting_ -= r.length - r.cut;
  while (s.cut != kNoIndex && pools_.sends()[s.cut].aborted) s.cut = pools_.sends()[s.cut].next;
  drop_retries_of(s, send);
}

void Sender::abort_response(uint32_t send, wire::Refusal reason) {
  SendRecord& r = pools_.sends()[send];
  if (r.aborted) return;
  const uint32_t index = r.stream;
  give_up(send);
  if (reason != wire::Refusal::kUnknown) {
    r.error = reason;
    r.next_error = kNoIndex;
    (first_error_ == kNoIndex ? first_error_ : pools_.sends()[last_error_].next_error) = send;
    last_error_ = send;
  }
  reschedule(index);
  advance(index);
  refresh(index);
  settle_responses(index);
}

void Sender::drop_responses(uint16_t stream, wire::Refusal reason) {
  const uint32_t index = find_responses(stream);
  if (index == kNoIndex) return;
  for (uint32_t i = pools_.streams()[index].head; i != kNoIndex;) {
    const uint32_t next = pools_.sends()[i].next;
    if (reason != wire::Refusal::kUnknown) {
      abort_response(i, reason);  // it stays until it was told
    } else if (!pools_.sends()[i].aborted) {
      give_up(i);
    }
    i = next;
  }
  if (find_responses(stream) == kNoIndex) return;
  reschedule(index);
  advance(index);
  refresh(index);
  settle_responses(index);
}

/// A stream of responses goes with the last of them: the peer chooses how many it uses.
void Sender::settle_responses(uint32_t index) {
  const SendStream& s = pools_.streams()[index];
  if (s.operations != 0) return;
  pools_.streams()[index].backing_off = false;
  reschedule(index);
  refresh(index);
  release_stream(index);
}

bool Sender::next_response_error(uint16_t& stream, uint32_t& msn, wire::Refusal& reason) {
  if (first_error_ == kNoIndex) return false;
  const uint32_t send = first_error_;
  SendRecord& r = pools_.sends()[send];
  stream = r.stream_id;
  msn = r.msn;
  reason = r.error;
  r.error = wire::Refusal::kUnknown;
  first_error_ = r.next_error;
  settle(send);
  return true;
}

bool Sender::reads_region(const Fragment& f, uint32_t& key, uint64_t& address) const {
  const SendRecord& r = pools_.sends()[f.send];
  if (r.opcode != wire::Opcode::kReadResponse || f.length == 0) return false;
  key = r.remote_key;
  address = r.remote_address + f.offset;
  return true;
}

}  // namespace metaroce::message
