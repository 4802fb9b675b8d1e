#include "message/sender.h"

#include <algorithm>

#include "base/assert.h"
#include "base/seq.h"
#include "base/types.h"
#include "message/send_stream.h"

namespace metaroce::message {

namespace {

wire::Opcode opcode_of(Operation operation) {
  switch (operation) {
    case Operation::kWriteImm:
      return wire::Opcode::kWriteImm;
    case Operation::kSend:
      return wire::Opcode::kSend;
    case Operation::kSendImm:
      return wire::Opcode::kSendImm;
    case Operation::kSendInv:
      return wire::Opcode::kSendInv;
    case Operation::kRead:
      return wire::Opcode::kReadRequest;
    case Operation::kFetchAdd:
      return wire::Opcode::kFetchAdd;
    case Operation::kCompareSwap:
      return wire::Opcode::kCompareSwap;
    case Operation::kWrite:
    case Operation::kReceive:
      break;
  }
  return wire::Opcode::kWrite;
}

bool consumes_receive(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kSendImm ||
         operation == Operation::kSendInv || operation == Operation::kWriteImm;
}

bool wants_response(Operation operation) {
  return operation == Operation::kRead || operation == Operation::kFetchAdd ||
         operation == Operation::kCompareSwap;
}

bool is_write(wire::Opcode opcode) {
  return opcode == wire::Opcode::kWrite || opcode == wire::Opcode::kWriteImm;
}

uint32_t milliseconds_of(Time t) { return static_cast<uint32_t>(t.ns / 1'000'000); }

bool dead(const SendStream& stream, const SendRecord& record) {
  if (stream.responses) return record.aborted;
  return stream.failed && seq_ge(record.msn, stream.fail_msn);
}

uint32_t claims_for(const Settings& settings) {
  // A connection has at most a quarter of its CPSN window in flight (MR-CPSN); more than 2^18 in
  // an engine do not pay, the rule of one fragment for each request takes over there.
  const uint64_t in_flight = uint64_t{settings.max_connections} * (settings.cpsn_window / 4);
  return static_cast<uint32_t>(
      std::max<uint64_t>(settings.max_retries_queued, std::min<uint64_t>(in_flight, 1u << 18)));
}

}  // namespace

SendPools::SendPools(const Settings& settings)
    : max_sends(settings.max_sends),
      max_streams(settings.max_streams),
      max_pending(settings.max_pending),
      max_responses(settings.max_responses),
      max_shared_claims(claims_for(settings)),
      gather_(std::make_unique<GatherSpace>(settings.max_payload)) {
  // Responses have records and streams that no request of ours can take: two ends that ask each
  // other for all they have must not wait for each other (MR-MSG-045).
  const uint32_t all = max_pending + max_responses;
  const uint32_t records = max_sends + all;
  const uint32_t streams = max_streams + std::min(max_streams, all);
  sends_ = std::make_unique<Slab<SendRecord>>(records);
  streams_ = std::make_unique<Slab<SendStream>>(streams);
  // One range for each request, all shared ones, and one more for each request that was cut
  // smaller when the shared ones were gone (Sender::claim).
  retries_ = std::make_unique<Slab<RetryRecord>>(max_shared_claims + 2 * records);
  segments_ = std::make_unique<Slab<SegmentList>>(settings.max_segment_lists);
  copies_ = std::make_unique<Slab<InlineCopy>>(settings.max_copied);
  index_ = std::make_unique<FlatMap>(streams);
}

SendPools::~SendPools() = default;

Sender::Sender(SendPools& pools, const Settings& settings, ConnectionHandle connection)
    : pools_(pools),
      connection_(connection),
      span_(settings.message_span),
      max_asked_(settings.max_outstanding) {}

Sender::~Sender() {
  fail_all(Status::kClosed);
  while (!deferred_.empty()) drop_operation(next_deferred());
  while (!done_.empty()) {
    const uint32_t next = pools_.sends()[done_.head].next;
    release(done_.head);
    --pools_.posted;
    done_.head = next;
  }
  while (streams_ != kNoIndex) release_stream(streams_);
}

uint32_t Sender::find_stream(uint16_t id) const {
  if (cached_id_ == id) return cached_index_;
  const uint32_t index = pools_.index().find(stream_key(connection_, id));
  if (index != FlatMap::kNone) {
    cached_id_ = id;
    cached_index_ = index;
  }
  return index;
}

uint32_t Sender::get_stream(uint16_t id) {
  const uint32_t index = find_stream(id);
  return index != kNoIndex ? index : make_stream(id);
}

uint32_t Sender::make_stream(uint16_t id) {
  if (pools_.streams_used == pools_.max_streams) return kNoIndex;
  const uint32_t index = make_record(stream_key(connection_, id), id);
  if (index == kNoIndex) return kNoIndex;
  ++pools_.streams_used;
  SendStream& stream = pools_.streams()[index];
  stream.failed = stream.error_given = stream.reset_told = dead_;
  cached_id_ = id;
  cached_index_ = index;
  return index;
}

uint32_t Sender::make_record(uint64_t key, uint16_t id) {
  const uint32_t index = pools_.streams().allocate();
  if (index == kNoIndex) return kNoIndex;
  const bool inserted = pools_.index().insert(key, index);
  MR_ASSERT(inserted);
  SendStream& stream = pools_.streams()[index];
  stream.id = id;
  stream.next_stream = streams_;
  if (streams_ != kNoIndex) pools_.streams()[streams_].prev_stream = index;
  streams_ = index;
  return index;
}

void Sender::release_stream(uint32_t index) {
  const SendStream& stream = pools_.streams()[index];
  MR_DASSERT(!stream.active && !stream.blocked && stream.wake == kNever);
  const uint64_t key = stream_key(connection_, stream.id);
  const bool erased = pools_.index().erase(stream.responses ? response_key(key) : key);
  MR_ASSERT(erased);
  if (!stream.responses) --pools_.streams_used;
  (stream.prev_stream == kNoIndex ? streams_ : pools_.streams()[stream.prev_stream].next_stream) =
      stream.next_stream;
  if (stream.next_stream != kNoIndex) {
    pools_.streams()[stream.next_stream].prev_stream = stream.prev_stream;
  }
  pools_.streams().release(index);
}

void Sender::release(uint32_t send) {
  SendRecord& r = pools_.sends()[send];
  if (r.segments != kNoIndex) pools_.segments().release(r.segments);
  if (r.copy != kNoIndex) pools_.copies().release(r.copy);
  if (cached_answer_ == send) cached_answer_ = kNoIndex;
  pools_.sends().release(send);
}

/// Lengths, segments and copies of a request; nothing is taken unless all of it is.
Status Sender::take_memory(const WorkRequest& request, SendRecord& r) {
  uint64_t length = request.length;
  if (!request.segments.empty()) {
    if (request.segments.size() > kMaxSegments) return Status::kInvalid;
    length = 0;
    for (const Segment& s : request.segments) {
      if (s.length > kMaxMessageBytes) return Status::kInvalid;
      length += s.length;
    }
  }
  if (length > kMaxMessageBytes) return Status::kInvalid;  // MR-MSG-011
  const bool atomic =
      request.operation == Operation::kFetchAdd || request.operation == Operation::kCompareSwap;
  if (atomic && !request.segments.empty()) return Status::kInvalid;
  const bool copied = request.copied && !wants_response(request.operation);
  if (copied && length > kMaxInline) return Status::kInvalid;
  if (copied && pools_.copies().available() == 0) return Status::kFull;
  const bool list = !copied && request.segments.size() > 1;
  if (list && pools_.segments().available() == 0) return Status::kFull;
  r.local = request.local;
  r.result = request.result;
  if (request.segments.size() == 1) r.local = r.result = request.segments[0].address;
  if (list) {
    r.segments = pools_.segments().allocate();
    SegmentList& l = pools_.segments()[r.segments];
    std::copy(request.segments.begin(), request.segments.end(), l.segment);
    l.count = static_cast<uint32_t>(request.segments.size());
  }
  if (copied) {
    r.copy = pools_.copies().allocate();
    std::byte* out = pools_.copies()[r.copy].bytes;
    const bool whole = request.segments.empty() && request.local != nullptr && pools_.memory;
    if (whole) std::copy_n(request.local, length, out);
    for (const Segment& s : request.segments) {
      if (s.address != nullptr && pools_.memory) out = std::copy_n(s.address, s.length, out);
    }
    r.local = pools_.copies()[r.copy].bytes;
  }
  r.awaits = wants_response(request.operation);
  r.length = r.awaits ? 0 : static_cast<uint32_t>(length);
  r.response_length = r.awaits ? atomic ? 8 : static_cast<uint32_t>(length) : 0;
  return Status::kOk;
}

Status Sender::post(const WorkRequest& request, Time now) {
  if (request.operation == Operation::kReceive) return Status::kInvalid;
  if (pools_.posted == pools_.max_sends) return Status::kFull;
  const uint32_t index = get_stream(request.stream);
  if (index == kNoIndex) return Status::kFull;
  SendStream& stream = pools_.streams()[index];
  if (stream.draining) return Status::kClosed;
  const uint32_t send = pools_.sends().allocate();
  SendRecord& r = pools_.sends()[send];
  const Status memory = take_memory(request, r);
  if (memory != Status::kOk) {
    pools_.sends().release(send);
    return memory;
  }
  ++pools_.posted;
  r.id = request.id;
  r.posted_ms = milliseconds_of(now);
  r.remote_address = request.remote_address;
  r.remote_key = request.remote_key;
  r.immediate = request.immediate;
  r.operand = request.operand;
  r.swap = request.swap;
  r.stream = index;
  r.stream_id = request.stream;
  r.operation = request.operation;
  r.opcode = opcode_of(request.operation);
  r.last_extra = static_cast<uint8_t>(wire::data_header_bytes(r.opcode, true) -
                                      wire::data_header_bytes(r.opcode, false));
  r.solicited = request.solicited;
  r.fence = request.fence;
  r.unordered = request.unordered;
  r.signalled = request.signalled;
  r.ordered = stream.in_order;
  r.msn = stream.next_msn++;  // MR-MSG-003
  r.consumes = consumes_receive(request.operation);
  if (r.consumes) r.rq_seq = stream.next_rq++;  // MR-MSG-020
  (stream.tail == kNoIndex ? stream.head : pools_.sends()[stream.tail].next) = send;
  stream.tail = send;
  ++unfinished_;
  if (stream.failed) {
    advance(index);
    return Status::kOk;
  }
  bytes_waiting_ += r.length;
  if (stream.cut == kNoIndex) stream.cut = send;
  if (!stream.active) refresh(index);
  return Status::kOk;
}

void Sender::set_peer_span(uint32_t span) {
  span_ = std::max(span, 1u);
  for (uint32_t i = streams_; i != kNoIndex; i = pools_.streams()[i].next_stream) refresh(i);
}

/// Not by the network and not by credit, but by what of the stream is still under way.
bool Sender::held_back(const SendStream& stream, const SendRecord& r) const {
  if (r.fence && stream.outstanding > 0) return true;   // MR-MSG-043
  return r.awaits && outstanding_ >= max_outstanding_;  // MR-MSG-044
}

bool Sender::cuttable(const SendStream& stream) const {
  if (stream.cut == kNoIndex) return false;
  if (stream.responses) return true;  // MR-MSG-045
  const SendRecord& r = pools_.sends()[stream.cut];
  if (stream.undecided > 0 || held_back(stream, r)) return false;
  if (r.msn - pools_.sends()[stream.head].msn >= span_) return false;  // MR-MSG-012
  return !r.consumes || seq_lt(r.rq_seq, stream.limit);                // MR-MSG-021
}

bool Sender::wants_credit(const SendStream& stream) const {
  if (stream.cut == kNoIndex || stream.responses) return false;
  const SendRecord& r = pools_.sends()[stream.cut];
  return r.consumes && !seq_lt(r.rq_seq, stream.limit);
}

/// Brings the membership in the lists of active and of credit-blocked streams up to date.
void Sender::refresh(uint32_t index) {
  auto& streams = pools_.streams();
  SendStream& s = streams[index];
  // In-order mode has one run under way (MR-MSG-060), repeated bytes included.
  const bool active = !s.backing_off && ((!s.ready.empty() && s.undecided == 0) || cuttable(s));
  if (active != s.active) {
    s.active = active;
    if (active) {
      list_push_back<&SendStream::active_link>(streams, active_, index);
    } else {
      list_remove<&SendStream::active_link>(streams, active_, index);
    }
  }
  const bool waiting = s.cut != kNoIndex && !s.responses && pools_.sends()[s.cut].awaits &&
                       outstanding_ >= max_outstanding_;
  if (waiting != s.waiting) {
    s.waiting = waiting;
    if (waiting) {
      list_push_back<&SendStream::waiting_link>(streams, waiting_, index);
    } else {
      list_remove<&SendStream::waiting_link>(streams, waiting_, index);
    }
  }
  const bool blocked = wants_credit(s);
  if (blocked != s.blocked) {
    s.blocked = blocked;
    if (blocked) {
      list_push_back<&SendStream::blocked_link>(streams, blocked_, index);
    } else {
      list_remove<&SendStream::blocked_link>(streams, blocked_, index);
    }
  }
}

/// Puts the stream to its place in the timed list.
void Sender::reschedule(uint32_t index) {
  auto& streams = pools_.streams();
  SendStream& s = streams[index];
  Time wake = s.backing_off ? s.backoff_until : kNever;
  if (!s.delayed.empty()) wake = earlier(wake, pools_.retries()[s.delayed.head].due);
  if (wake == s.wake) return;
  if (s.wake != kNever) list_remove<&SendStream::timed_link>(streams, timed_, index);
  s.wake = wake;
  if (wake == kNever) return;
  uint32_t after = timed_.tail;
  while (after != kNoIndex && streams[after].wake > wake) after = streams[after].timed_link.prev;
  list_insert_after<&SendStream::timed_link>(streams, timed_, after, index);
}

void Sender::expire(Time now) {
  auto& streams = pools_.streams();
  auto& retries = pools_.retries();
  while (timed_.head != kNoIndex && streams[timed_.head].wake <= now) {
    const uint32_t index = timed_.head;
    SendStream& s = streams[index];
    if (s.backing_off && s.backoff_until <= now) s.backing_off = s.wants_credit = false;
    while (!s.delayed.empty() && retries[s.delayed.head].due <= now) {
      const uint32_t retry = s.delayed.head;
      list_remove<&RetryRecord::link>(retries, s.delayed, retry);
      list_push_back<&RetryRecord::link>(retries, s.ready, retry);
    }
    reschedule(index);
    refresh(index);
  }
}

bool Sender::can_claim(const SendRecord& record) const {
  if (record.claims == 0 || pools_.shared_claims < pools_.max_shared_claims) return true;
  // Cut smaller than before and nothing in flight: without this the ranges of all requests could
  // hold every claim while none may be split.
  return record.undecided == 0 &&
         pools_.shared_claims < pools_.max_shared_claims + pools_.sends().capacity();
}

uint32_t Sender::claim(SendRecord& record, uint32_t wanted) {
  if (wanted == 0 || !can_claim(record)) return 0;
  const uint32_t own = record.claims == 0 ? 1 : 0;
  const uint32_t limit = pools_.max_shared_claims;
  const uint32_t free = limit > pools_.shared_claims ? limit - pools_.shared_claims : 0;
  const uint32_t n = std::max(std::min(wanted, own + free), 1u);
  record.claims += n;
  pools_.shared_claims += n - own;
  return n;
}

void Sender::unclaim(SendRecord& record) {
  if (--record.claims > 0) --pools_.shared_claims;
}

bool Sender::claimable(uint32_t index) const {
  const SendStream& s = pools_.streams()[index];
  if (s.ready.empty()) return can_claim(pools_.sends()[s.cut]);
  const RetryRecord& retry = pools_.retries()[s.ready.head];
  return retry.length <= last_payload_ || can_claim(pools_.sends()[retry.send]);
}

bool Sender::ready(Time now) {
  expire(now);
  if (active_.empty()) return false;
  if (pools_.shared_claims < pools_.max_shared_claims) return true;
  for (uint32_t i = active_.head; i != kNoIndex; i = pools_.streams()[i].active_link.next) {
    if (claimable(i)) return true;
  }
  return false;
}

size_t Sender::take(Time now, uint32_t payload, std::span<Fragment> out) {
  MR_ASSERT(payload > 0);
  expire(now);
  if (active_.empty() || out.empty()) return 0;
  last_payload_ = payload;
  auto& streams = pools_.streams();
  const uint32_t last = active_.tail;
  for (;;) {
    const uint32_t index = active_.head;
    SendStream& s = streams[index];
    const bool fresh = s.ready.empty();
    const uint32_t cut = s.cut;
    // Another stream may have taken the last operation that may be outstanding.
    const bool may = !fresh || !pools_.sends()[cut].awaits || cuttable(s);
    const size_t n = may ? take_from(index, payload, out) : 0;
    const bool same = fresh && may && s.cut == cut;  // what could be cut, and can be still
    if (s.undecided > 0 || (s.ready.empty() && !same && !cuttable(s))) {
      refresh(index);
    } else if (active_.head != active_.tail) {
      list_remove<&SendStream::active_link>(streams, active_, index);
      list_push_back<&SendStream::active_link>(streams, active_, index);
    }
    if (n > 0 || index == last) return n;
  }
}

size_t Sender::take_from(uint32_t index, uint32_t payload, std::span<Fragment> out) {
  SendStream& s = pools_.streams()[index];
  if (!s.ready.empty()) {
    const uint32_t retry_index = s.ready.head;
    RetryRecord& retry = pools_.retries()[retry_index];
    const uint32_t end = retry.offset + retry.length;
    uint32_t begin = retry.offset;
    const size_t n = cut_pieces(retry.send, begin, end, payload, true, out);
    bytes_waiting_ -= begin - retry.offset;
    retry.offset = begin;
    retry.length = end - begin;
    if (n > 0 && retry.length == 0) {
      list_remove<&RetryRecord::link>(pools_.retries(), s.ready, retry_index);
      pools_.retries().release(retry_index);
    }
    return n;
  }
  const uint32_t send = s.cut;
  SendRecord& r = pools_.sends()[send];
  uint32_t begin = r.cut;
  const size_t n = cut_pieces(send, begin, r.length, payload, false, out);
  bytes_waiting_ -= begin - r.cut;
  r.cut = begin;
  if (n > 0 && begin == r.length) {
    r.cut_done = true;
    s.cut = r.next;
    while (s.responses && s.cut != kNoIndex && pools_.sends()[s.cut].aborted) {
      s.cut = pools_.sends()[s.cut].next;
    }
    if (r.awaits) note_outstanding(r);
  }
  return n;
}

/// Cuts [begin, end) from the front; `range`: the bytes hold a claim, which the piece that ends
/// them takes over.
size_t Sender::cut_pieces(uint32_t send, uint32_t& begin, uint32_t end, uint32_t payload,
                          bool range, std::span<Fragment> out) {
  SendRecord& r = pools_.sends()[send];
  const uint32_t bytes = end - begin;
  uint32_t n = static_cast<uint32_t>(
      std::min<uint64_t>(out.size(), (uint64_t{bytes} + payload - 1) / payload));
  n = std::max(n, 1u);  // an empty message is one piece
  const uint32_t rest = bytes - std::min(bytes, (n - 1) * payload);
  // All packets of a run are equal, only the last may be shorter (spec chapter 3).
  if (n > 1 && rest <= payload && end == r.length && rest + r.last_extra > payload) --n;
  const bool takes_over = range && uint64_t{n} * payload >= bytes;
  const uint32_t claimed = claim(r, takes_over ? n - 1 : n);
  n = std::min(n, claimed + (takes_over && claimed == n - 1 ? 1 : 0));
  if (n == 0) return 0;
  for (uint32_t i = 0; i + 1 < n; ++i, begin += payload) out[i] = Fragment{send, begin, payload};
  const uint32_t length = std::min(payload, end - begin);
  out[n - 1] = Fragment{send, begin, length};
  begin += length;
  r.undecided += n;
  if (r.ordered) pools_.streams()[r.stream].undecided += n;
  return n;
}

/// The bytes of a fragment of several segments: where they lie, or side by side in the gather
/// space.
const std::byte* Sender::gather(const SendRecord& r, const Fragment& fragment) const {
  const SegmentList& list = pools_.segments()[r.segments];
  uint64_t skip = fragment.offset;
  uint32_t left = fragment.length;
  std::byte* gathered = nullptr;
  std::byte* out = nullptr;
  for (uint32_t i = 0; i < list.count && left > 0; ++i) {
    const Segment& s = list.segment[i];
    if (skip >= s.length) {
      skip -= s.length;
      continue;
    }
    if (s.address == nullptr || !pools_.memory) return nullptr;
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(left, s.length - skip));
    if (n == fragment.length) return s.address + skip;
    if (gathered == nullptr) gathered = out = pools_.gather().take();
    out = std::copy_n(s.address + skip, n, out);
    left -= n;
    skip = 0;
  }
  return gathered;
}

FragmentTraits Sender::traits(const Fragment& f) const {
  const SendRecord& r = pools_.sends()[f.send];
  return {static_cast<uint32_t>(header_bytes(f)), r.segments != kNoIndex,
          r.opcode == wire::Opcode::kReadResponse && f.length > 0, r.asking};
}

const std::byte* Sender::describe(const Fragment& fragment, wire::DataPacket& packet) const {
  const SendRecord& r = pools_.sends()[fragment.send];
  const bool last = fragment.offset + fragment.length == r.length;
  packet.stream = r.stream_id;
  packet.opcode = r.opcode;
  packet.message_flags = 0;
  if (fragment.offset == 0) packet.message_flags |= wire::message_flag::kFirst;  // MR-WIRE-029
  if (r.fence) packet.message_flags |= wire::message_flag::kFence;
  if (r.unordered) packet.message_flags |= wire::message_flag::kUnordered;
  packet.rq_seq = r.consumes && (last || !is_write(r.opcode)) ? r.rq_seq : 0;
  packet.immediate = 0;
  if (last) {
    packet.message_flags |= wire::message_flag::kLast;
    if (r.solicited) packet.message_flags |= wire::message_flag::kSolicited;  // MR-MSG-018
    if (r.opcode != wire::Opcode::kWrite && r.opcode != wire::Opcode::kSend) {
      packet.immediate = r.immediate;
    }
  }
  packet.msn = r.msn;
  packet.offset = fragment.offset;
  packet.key = 0;
  packet.address = 0;
  if (is_write(r.opcode) || wants_response(r.operation)) {
    packet.key = r.remote_key;
    packet.address = r.remote_address + fragment.offset;
  }
  if (r.operation != Operation::kWrite) {
    packet.read_length = r.response_length;
    packet.operand = r.operand;
    packet.swap = r.swap;
  }
  if (r.segments != kNoIndex) return gather(r, fragment);
  return r.local == nullptr ? nullptr : r.local + fragment.offset;
}

size_t Sender::header_bytes(const Fragment& fragment) const {
  const SendRecord& r = pools_.sends()[fragment.send];
  return wire::data_header_bytes(r.opcode, fragment.offset + fragment.length == r.length);
}

bool Sender::ends_message(const Fragment& fragment) const {
  return fragment.offset + fragment.length == pools_.sends()[fragment.send].length;
}

uint16_t Sender::stream_of(const Fragment& fragment) const {
  return pools_.sends()[fragment.send].stream_id;
}

void Sender::on_accepted(uint32_t send, uint32_t count) {
  SendRecord& r = pools_.sends()[send];
  MR_DASSERT(r.undecided >= count && r.claims >= count);
  r.undecided -= count;
  r.claims -= count;
  pools_.shared_claims -= r.claims > 0 ? count : count - 1;
  r.doublings = 0;
  if (r.ordered || r.consumes) [[unlikely]] {
    SendStream& s = pools_.streams()[r.stream];
    s.rnr_tries = 0;
    if (r.ordered) s.undecided -= count;
    if (r.ordered && s.undecided == 0) refresh(r.stream);
  }
  if (r.undecided == 0) settle(send);
}

/// A request without undecided fragments may end, and with it later ones.
void Sender::settle(uint32_t send) {
  const uint32_t index = pools_.sends()[send].stream;
  const SendStream& s = pools_.streams()[index];
  if (s.head != send) return;
  const SendRecord& r = pools_.sends()[send];
  if (!r.cut_done && !dead(s, r)) return;  // nothing of it can end yet
  if (advance(index)) refresh(index);
  if (s.responses) settle_responses(index);
}

void Sender::note_asked(uint16_t stream, uint8_t path, uint32_t seq) {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) return;
  SendStream& s = pools_.streams()[index];
  s.asked = true;
  s.asked_path = path;
  s.asked_seq = seq;
}

bool Sender::oldest(Time now, uint64_t& id, uint32_t& age_ms) const {
  bool any = false;
  uint32_t looked_at = 0;
  for (uint32_t i = streams_; i != kNoIndex && looked_at < 1024; ++looked_at) {
    const SendStream& stream = pools_.streams()[i];
    i = stream.next_stream;
    if (stream.head == kNoIndex || stream.responses) continue;
    const SendRecord& r = pools_.sends()[stream.head];
    const uint32_t age = milliseconds_of(now) - r.posted_ms;
    if (any && age <= age_ms) continue;
    any = true;
    age_ms = age;
    id = r.id;
  }
  return any;
}

/// What the peer has as a whole it has delivered, though we may flush it: both sides go on from
/// there when the stream is opened anew (MR-MSG-007).
void Sender::note_known(SendStream& s, const SendRecord& r) {
  s.known = s.known && r.cut_done && !r.torn;
  if (!s.known) return;
  s.known_msn = r.msn + 1;
  if (r.consumes) s.known_rq = r.rq_seq + 1;
}

/// Completes from the head what is complete or failed; true if anything was.
bool Sender::advance(uint32_t index) {
  SendStream& s = pools_.streams()[index];
  bool moved = false;
  while (s.head != kNoIndex) {  // MR-MSG-014
    const SendRecord& r = pools_.sends()[s.head];
    if (dead(s, r)) {
      if (r.undecided != 0) break;  // MR-MSG-030: the driver may still read its memory
      if (r.error != wire::Refusal::kUnknown) break;  // the peer does not know yet
      const Status cause = r.status == Status::kOk ? Status::kFlushed : r.status;
      note_known(s, r);
      finish(s, s.error_given ? Status::kFlushed : cause);
      s.error_given = true;
    } else {
      if (!r.cut_done || r.claims != 0 || r.awaits) break;
      if (!s.responses) ++accepted_;
      note_known(s, r);
      finish(s, Status::kOk);
    }
    moved = true;
  }
  if (moved) hasten_oldest(index);
  // Messages before the failed one are still delivered, so RESET waits for them (MR-MSG-006). It
  // waits for the fate of all others too: who heard it may open the stream anew, and a packet of
  // its past must not be taken for one of the new messages (MR-MSG-007).
  if (s.draining && !s.failed && s.head == kNoIndex) {
    s.failed = true;
    s.error_given = true;
    s.fail_msn = s.next_msn;
  }
  if (s.failed && !s.responses && s.head == kNoIndex) tell_end(index);
  return moved;
}

/// MR-MSG-061: for want of a receive the peer is told only to drop what it holds of the stream; the
/// RESET that ends it for good comes when somebody wants it, and not before that was heard: what
/// arrives later would concern the stream's next life.
void Sender::tell_end(uint32_t index) {
  SendStream& s = pools_.streams()[index];
  if (dead_) return;
  if (s.silent_reset) {
    if (s.halt_told) return;
    s.halt_told = true;
  } else {
    if (s.reset_told || (s.halt_told && !s.halt_accepted)) return;
    s.reset_told = true;
  }
  queue_reset(index);
}

void Sender::queue_reset(uint32_t index) {
  pools_.streams()[index].next_reset = kNoIndex;
  (first_reset_ == kNoIndex ? first_reset_ : pools_.streams()[last_reset_].next_reset) = index;
  last_reset_ = index;
}

/// Ends the oldest request of a stream.
void Sender::finish(SendStream& s, Status status) {
  const uint32_t send = s.head;
  SendRecord& r = pools_.sends()[send];
  s.head = r.next;
  if (s.head == kNoIndex) s.tail = kNoIndex;
  if (s.responses) {
    --pools_.responses;
    --answers_;
    --s.operations;
    --unfinished_;
    release(send);
    return;
  }
  if (r.outstanding) no_longer_outstanding(r);
  if (cached_answer_ == send) cached_answer_ = kNoIndex;  // its number may come again
  --unfinished_;
  if (!r.signalled && status == Status::kOk) {
    --pools_.posted;
    release(send);
    return;
  }
  r.status = status;
  r.next = kNoIndex;
  (done_.tail == kNoIndex ? done_.head : pools_.sends()[done_.tail].next) = send;
  done_.tail = send;
}

size_t Sender::poll(std::span<Completion> out) {
  size_t n = 0;
  while (n < out.size() && done_.head != kNoIndex) {
    const SendRecord& r = pools_.sends()[done_.head];
    Completion& c = out[n++];
    c = Completion{};
    c.id = r.id;
    c.connection = connection_;
    c.stream = r.stream_id;
    c.operation = r.operation;
    c.status = r.status;
    c.bytes = r.length + r.response_length;
    if (r.opcode == wire::Opcode::kFetchAdd || r.opcode == wire::Opcode::kCompareSwap) {
      c.old_value = r.status == Status::kOk ? r.operand : 0;
    }
    const uint32_t next = r.next;
    release(done_.head);
    --pools_.posted;
    done_.head = next;
  }
  if (done_.head == kNoIndex) done_.tail = kNoIndex;
  return n;
}

bool Sender::on_limit16(const wire::AckPacket& ack) {
  const uint16_t low = ack.f.limit;
  const uint32_t index = find_stream(ack.f.stream);
  if (index == kNoIndex) return false;
  SendStream& s = pools_.streams()[index];
  const auto rise = static_cast<int16_t>(static_cast<uint16_t>(low - s.limit));  // MR-ACK-031
  if (rise > 0) {
    raise_limit(index, s.limit + static_cast<uint32_t>(rise));
    return false;
  }
  // MR-MSG-061: it was asked for credit and has none. An ACK from before that says nothing.
  if (!s.asked || !s.blocked || ack.f.path != s.asked_path) return false;
  const int32_t ahead = seq_diff(s.asked_seq, ack.f.base);
  if (ahead >= 0 && (ahead > 255 || !ack.map.test(static_cast<uint32_t>(ahead)))) return false;
  s.asked = false;
  if (s.rnr_retry == kRetryForEver || s.rnr_tries++ < s.rnr_retry) return false;
  fail(s.cut, Status::kNotReady);
  return true;
}

void Sender::on_limit(uint16_t stream, uint32_t limit) {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) return;
  if (seq_gt(limit, pools_.streams()[index].limit)) raise_limit(index, limit);  // MR-MSG-024
}

void Sender::raise_limit(uint32_t index, uint32_t limit) {
  SendStream& s = pools_.streams()[index];
  s.limit = limit;
  s.rnr_tries = 0;
  s.asked = false;
  if (s.wants_credit && seq_gt(limit, s.refused_rq)) {  // MR-MSG-023
    s.backing_off = s.wants_credit = false;
    reschedule(index);
  }
  refresh(index);
}

Time Sender::next_wakeup() const {
  return timed_.empty() ? kNever : pools_.streams()[timed_.head].wake;
}

bool Sender::credit_blocked(uint16_t& stream) const {
  if (blocked_.empty()) return false;
  const uint32_t index = blocked_.head;
  stream = pools_.streams()[index].id;
  list_remove<&SendStream::blocked_link>(pools_.streams(), blocked_, index);
  list_push_back<&SendStream::blocked_link>(pools_.streams(), blocked_, index);
  return true;
}

}  // namespace metaroce::message
