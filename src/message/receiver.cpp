#include "message/receiver.h"

#include <algorithm>

#include "base/assert.h"
#include "base/seq.h"
#include "message/open_message.h"

namespace metaroce::message {

namespace {

// ACKs carry the low 16 bits of a limit: it must not run further ahead of what the peer knows
// (MR-ACK-033).
constexpr uint32_t kMostAhead = 32767;
constexpr uint32_t kMostShared = 4096;

uint64_t stream_key(ConnectionHandle connection, uint16_t stream) {
  return uint64_t{connection} << 16 | stream;
}
uint64_t pair_key(uint32_t stream, uint32_t number) { return uint64_t{stream} << 32 | number; }

bool is_send(wire::Opcode opcode) {
  return opcode == wire::Opcode::kSend || opcode == wire::Opcode::kSendImm ||
         opcode == wire::Opcode::kSendInv;
}
bool is_request(wire::Opcode opcode) {
  return opcode == wire::Opcode::kReadRequest || opcode == wire::Opcode::kFetchAdd ||
         opcode == wire::Opcode::kCompareSwap;
}
bool is_unordered(const wire::DataPacket& packet) {
  return (packet.message_flags & wire::message_flag::kUnordered) != 0;
}
bool is_write(wire::Opcode opcode) {
  return opcode == wire::Opcode::kWrite || opcode == wire::Opcode::kWriteImm;
}
/// A Write with immediate takes its receive with its LAST packet only.
bool takes_receive(const wire::DataPacket& packet) {
  return is_send(packet.opcode) || (packet.opcode == wire::Opcode::kWriteImm && packet.last());
}
bool has_immediate(wire::Opcode opcode) {
  return opcode == wire::Opcode::kWriteImm || opcode == wire::Opcode::kSendImm;
}
bool is_solicited(const wire::DataPacket& packet) {
  return (packet.message_flags & wire::message_flag::kSolicited) != 0;
}
bool whole(const wire::DataPacket& packet) { return packet.offset == 0 && packet.last(); }

bool refuse(Admission& admission, wire::Refusal reason) {
  admission.reason = reason;
  return false;
}

}  // namespace

Receiver::Receiver(ReceivePools& pools, const Settings& settings, ConnectionHandle connection,
                   OperationHost* host)
    : pools_(pools), host_(host), connection_(connection), span_(settings.message_span) {}

Receiver::~Receiver() {
  fail_all(Status::kClosed);
  while (!done_.empty()) {
    const uint32_t i = done_.head;
    list_remove<&PostedReceive::link>(pools_.receives(), done_, i);
    pools_.release_receive(i);
  }
  while (streams_ != kNoIndex) {
    const ReceiveStream& stream = pools_.streams()[streams_];
    if (stream.queue != 0) --pools_.queue(stream.queue)->streams;
    const uint32_t next = stream.next_stream;
    const bool erased = pools_.stream_index().erase(stream_key(connection_, stream.id));
    MR_ASSERT(erased);
    pools_.streams().release(streams_);
    streams_ = next;
  }
}

uint32_t Receiver::find_stream(uint16_t id) const {
  if (cached_id_ == id) return cached_index_;
  const uint32_t index = pools_.stream_index().find(stream_key(connection_, id));
  if (index != FlatMap::kNone) {
    cached_id_ = id;
    cached_index_ = index;
  }
  return index;
}

/// Finds or creates; kNoIndex when there is no record left.
uint32_t Receiver::get_stream(uint16_t id) {
  const uint32_t found = find_stream(id);
  if (found != kNoIndex) return found;
  const uint32_t index = pools_.streams().allocate();
  if (index == kNoIndex) return kNoIndex;
  const bool inserted = pools_.stream_index().insert(stream_key(connection_, id), index);
  MR_ASSERT(inserted);
  ReceiveStream& stream = pools_.streams()[index];
  stream.id = id;
  stream.connection = connection_;
  stream.closed = dead_;
  stream.next_stream = streams_;
  streams_ = index;
  cached_id_ = id;
  cached_index_ = index;
  return index;
}

Status Receiver::post(const ReceiveRequest& request) {
  const uint32_t index = get_stream(request.stream);
  if (index == kNoIndex) return Status::kFull;
  ReceiveStream& stream = pools_.streams()[index];
  if (stream.queue != 0) return Status::kInvalid;
  Status status = Status::kOk;
  const uint32_t i = pools_.take_receive(request, status);
  if (status != Status::kOk) return status;
  PostedReceive& receive = pools_.receives()[i];
  receive.stream = request.stream;
  if (stream.closed) {
    finish(i, Status::kFlushed);
    return Status::kOk;
  }
  receive.rq_seq = stream.posted++;
  list_push_back<&PostedReceive::link>(pools_.receives(), stream.receives, i);
  const bool inserted = pools_.receive_index().insert(pair_key(index, receive.rq_seq), i);
  MR_ASSERT(inserted);
  // MR-MSG-025: the sender has no credit when it used or was refused all there was.
  if (stream.starved || stream.used == receive.rq_seq) add_news(index);
  return Status::kOk;
}

void Receiver::add_news(uint32_t index) {
  ReceiveStream& stream = pools_.streams()[index];
  stream.starved = false;
  if (stream.news) return;
  stream.news = true;
  list_push_back<&ReceiveStream::news_link>(pools_.streams(), news_, index);
}

bool Receiver::credit_news(uint16_t& stream) {
  if (news_.empty()) return false;
  const uint32_t index = news_.head;
  list_remove<&ReceiveStream::news_link>(pools_.streams(), news_, index);
  pools_.streams()[index].news = false;
  stream = pools_.streams()[index].id;
  return true;
}

void Receiver::on_credit_asked(uint16_t stream) {
  const uint32_t index = find_stream(stream);  // a probe must not take a record of the pool
  if (index != kNoIndex) note_starved(index);
}

uint32_t Receiver::limit(uint16_t stream) const {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) return 0;
  const ReceiveStream& s = pools_.streams()[index];
  // Of a shared queue every stream may take all there is; who comes late is refused and asks again.
  ReceiveStream& told = pools_.streams()[index];
  if (s.closed) return told.told;
  const uint32_t most = s.queue != 0 ? s.used + std::min(pools_.queue(s.queue)->count, kMostShared)
                                     : s.completed + std::min(s.posted - s.completed, kMostAhead);
  if (seq_gt(most, told.told)) told.told = most;
  return most;
}

Admission Receiver::admit(const wire::DataPacket& packet) {
  Admission a;
  const uint32_t index = get_stream(packet.stream);
  if (index == kNoIndex) {
    a.reason = wire::Refusal::kNoResource;  // MR-MSG-028
    return a;
  }
  const ReceiveStream& s = pools_.streams()[index];
  a.stream = index;
  if (s.closed) {
    a.reason = wire::Refusal::kStreamClosed;  // MR-MSG-007
    return a;
  }
  const uint32_t ahead = packet.msn - s.delivered;
  if (ahead >= span_) {
    const bool below = seq_lt(packet.msn, s.delivered);
    if (below) ++stale_;
    a.reason = below ? wire::Refusal::kUnknown : wire::Refusal::kSpan;  // MR-MSG-012
    return a;
  }
  const bool write = is_write(packet.opcode);
  a.operation = is_request(packet.opcode) && host_ != nullptr && whole(packet);
  if (!write && !is_send(packet.opcode) && !a.operation) {
    a.reason = wire::Refusal::kUnsupported;
    return a;
  }
  if (cached_stream_ == index && cached_msn_ == packet.msn) {
    a.message = cached_message_;
  } else if (s.open_count > 0) {
    a.message = pools_.index().find(pair_key(index, packet.msn));
  }
  if (!admit_message(packet, a)) return a;
  if (s.in_order && out_of_turn(packet, ahead, a.message)) {  // MR-MSG-060
    a.reason = wire::Refusal::kSpan;
    return a;
  }
  if (takes_receive(packet) && !admit_receive(packet, s, a)) {
    if (a.reason == wire::Refusal::kNotReady) note_starved(index);
    return a;
  }
  // MR-MSG-027: the last entry is for a message that nothing of its stream can hold up. One that
  // is whole and next needs no entry.
  if (a.message == kNoIndex && !(ahead == 0 && whole(packet))) {
    const uint32_t available = pools_.messages().available();
    if (available == 0 || (available == 1 && ahead != 0)) {
      a.reason = wire::Refusal::kNoOpenMessage;
      return a;
    }
  }
  a.accepted = true;
  a.check_memory = write;
  a.parks = a.operation && ahead != 0 && !is_unordered(packet);
  a.invalidates = packet.opcode == wire::Opcode::kSendInv && packet.last();
  return a;
}

bool Receiver::out_of_turn(const wire::DataPacket& packet, uint32_t ahead, uint32_t message) const {
  const uint64_t accepted = message == kNoIndex ? 0 : pools_.messages()[message].accepted;
  return ahead != 0 || packet.offset != accepted;
}

/// The packet against what is known of its message.
bool Receiver::admit_message(const wire::DataPacket& packet, Admission& a) const {
  if (a.message == kNoIndex) return true;
  const OpenMessage& m = pools_.messages()[a.message];
  if (m.opcode != packet.opcode) return refuse(a, wire::Refusal::kUnsupported);
  const uint32_t end = packet.offset + packet.payload_length;
  const uint64_t accepted = m.accepted + packet.payload_length;
  if (m.given || is_request(m.opcode)) return refuse(a, wire::Refusal::kUnsupported);
  // MR-MSG-016, and more bytes than the message has: the sender cut something twice.
  if (m.last) {
    if (packet.last() || end > m.total || accepted > m.total || m.complete()) {
      return refuse(a, wire::Refusal::kLength);
    }
  } else if (packet.last() && (end < m.highest_end || accepted > end)) {
    return refuse(a, wire::Refusal::kLength);
  }
  if (is_send(packet.opcode)) {
    if (packet.rq_seq != m.rq_seq) return refuse(a, wire::Refusal::kUnsupported);
    a.receive = m.receive;
  }
  return true;
}

/// The packet against the posted receives of its stream.
bool Receiver::admit_receive(const wire::DataPacket& packet, const ReceiveStream& s, Admission& a) {
  a.rq_seq = packet.rq_seq;
  if (a.receive == kNoIndex) {
    if (s.queue == 0 && seq_ge(packet.rq_seq, s.posted)) {  // MR-MSG-022
      return refuse(a, wire::Refusal::kNotReady);
    }
    // The k-th receive cannot belong to a message before the k-th.
    if (seq_lt(packet.rq_seq, s.completed) ||
        packet.rq_seq - s.completed > packet.msn - s.delivered) {
      return refuse(a, wire::Refusal::kUnsupported);
    }
    a.receive = pools_.receive_index().find(pair_key(a.stream, packet.rq_seq));
    // A second message with the same number.
    const bool taken = a.receive == kNoIndex ? s.queue == 0 : pools_.receives()[a.receive].bound;
    if (taken) return refuse(a, wire::Refusal::kUnsupported);
    if (a.receive == kNoIndex && !admit_shared(packet, s, a)) return false;
  }
  if (!is_send(packet.opcode)) return true;  // the buffer of an immediate is not written
  PostedReceive& receive = pools_.receives()[a.receive];
  const uint64_t end = uint64_t{packet.offset} + packet.payload_length;
  if (end > receive.length) {  // MR-MSG-026
    receive.overrun = receive.queue == 0 || receive.bound;
    return refuse(a, wire::Refusal::kLength);
  }
  if (receive.buffer != nullptr) a.address = receive.buffer + packet.offset;
  a.offset = packet.offset;
  return true;
}

/// The buffer that a message of a stream with a shared queue would take (MR-MSG-027).
bool Receiver::admit_shared(const wire::DataPacket& packet, const ReceiveStream& s, Admission& a) {
  const SharedQueue& q = *pools_.queue(s.queue);
  if (q.count == 0) return refuse(a, wire::Refusal::kNotReady);
  // The last one is for a message that nothing of its stream can hold up.
  if (q.count == 1 && packet.msn != s.delivered) {
    note_starved(a.stream);
    return refuse(a, wire::Refusal::kNoOpenMessage);
  }
  a.receive = q.receives.head;
  return true;
}

/// The message takes its receive, for good.
void Receiver::bind(const wire::DataPacket& packet, const Admission& a) {
  ReceiveStream& s = pools_.streams()[a.stream];
  PostedReceive& receive = pools_.receives()[a.receive];
  if (receive.queue != 0 && !receive.bound) {
    SharedQueue& q = *pools_.queue(receive.queue);
    list_remove<&PostedReceive::link>(pools_.receives(), q.receives, a.receive);
    pools_.note_bound(receive.queue);
    receive.stream = s.id;
    receive.rq_seq = packet.rq_seq;
    uint32_t after = s.receives.tail;
    while (after != kNoIndex && seq_gt(pools_.receives()[after].rq_seq, packet.rq_seq)) {
      after = pools_.receives()[after].link.prev;
    }
    list_insert_after<&PostedReceive::link>(pools_.receives(), s.receives, after, a.receive);
    const bool inserted =
        pools_.receive_index().insert(pair_key(a.stream, packet.rq_seq), a.receive);
    MR_ASSERT(inserted);
  }
  receive.bound = true;
  receive.msn = packet.msn;
  if (seq_ge(packet.rq_seq, s.used)) s.used = packet.rq_seq + 1;
}

std::span<const Segment> Receiver::segments_of(uint32_t receive) const {
  const uint32_t list = pools_.receives()[receive].segments;
  if (list == kNoIndex) return {};
  const ReceiveSegments& l = pools_.segments()[list];
  return {l.segment, l.count};
}

uint32_t Receiver::open(const wire::DataPacket& packet, uint32_t stream) {
  const uint32_t i = pools_.messages().allocate();
  MR_ASSERT(i != kNoIndex);
  OpenMessage& m = pools_.messages()[i];
  m.msn = packet.msn;
  m.stream = stream;
  m.opcode = packet.opcode;
  m.rq_seq = packet.rq_seq;
  const bool inserted = pools_.index().insert(pair_key(stream, packet.msn), i);
  MR_ASSERT(inserted);
  ReceiveStream& s = pools_.streams()[stream];
  list_push_back<&OpenMessage::link>(pools_.messages(), s.open, i);
  ++s.open_count;
  return i;
}

void Receiver::close_message(uint32_t i) {
  const OpenMessage& m = pools_.messages()[i];
  if (m.operation != kNoIndex) host_->on_never(m.operation);
  ReceiveStream& s = pools_.streams()[m.stream];
  const bool erased = pools_.index().erase(pair_key(m.stream, m.msn));
  MR_ASSERT(erased);
  list_remove<&OpenMessage::link>(pools_.messages(), s.open, i);
  --s.open_count;
  if (cached_message_ == i) cached_stream_ = cached_message_ = kNoIndex;
  pools_.messages().release(i);
}

void Receiver::commit(const wire::DataPacket& packet, const Admission& a, uint32_t operation) {
  MR_DASSERT(a.accepted);
  ReceiveStream& s = pools_.streams()[a.stream];
  s.bytes += packet.payload_length;
  if (takes_receive(packet)) bind(packet, a);
  if (a.operation && !a.parks) {
    host_->on_turn(operation);
    operation = kNoIndex;
  }
  uint32_t i = a.message;
  if (i == kNoIndex) {
    if (packet.msn == s.delivered && whole(packet)) {
      const Ending ending{packet.payload_length, packet.immediate, packet.opcode,
                          is_solicited(packet)};
      if (deliver(a.stream, a.receive, ending)) advance(a.stream);
      return;
    }
    i = open(packet, a.stream);
  }
  OpenMessage& m = pools_.messages()[i];
  m.accepted += packet.payload_length;
  m.highest_end = std::max(m.highest_end, packet.offset + packet.payload_length);
  m.operation = operation;
  m.unordered = m.unordered || is_unordered(packet);
  if (a.receive != kNoIndex) m.receive = a.receive;
  if (packet.last()) {
    m.last = true;
    m.solicited = is_solicited(packet);
    m.total = packet.offset + packet.payload_length;
    m.immediate = packet.immediate;
    m.rq_seq = packet.rq_seq;
  }
  cached_stream_ = a.stream;
  cached_msn_ = packet.msn;
  cached_message_ = i;
  if (!m.complete()) return;
  if (packet.msn == s.delivered) {
    advance(a.stream);  // MR-MSG-010
  } else if (m.unordered && m.receive != kNoIndex) {
    give_early(i);
  }
}

uint32_t Receiver::open_run() const {
  if (cached_message_ == kNoIndex) return kNoIndex;
  return pools_.messages()[cached_message_].last ? kNoIndex : cached_message_;
}

void Receiver::commit_run(uint32_t message, uint32_t bytes, uint32_t end) {
  OpenMessage& m = pools_.messages()[message];
  m.accepted += bytes;
  m.highest_end = std::max(m.highest_end, end);
  pools_.streams()[m.stream].bytes += bytes;
}

/// The completion of a receive.
void Receiver::give(uint32_t index, uint32_t receive, const Ending& ending) {
  ReceiveStream& s = pools_.streams()[index];
  PostedReceive& r = pools_.receives()[receive];
  r.bytes = ending.bytes;
  r.has_immediate = has_immediate(ending.opcode);
  r.invalidated = ending.opcode == wire::Opcode::kSendInv;
  r.immediate = r.has_immediate || r.invalidated ? ending.immediate : 0;
  r.solicited = ending.solicited;                                                 // MR-MSG-018
  if (r.invalidated && host_ != nullptr) host_->on_invalidate(ending.immediate);  // MR-MEM-008
  list_remove<&PostedReceive::link>(pools_.receives(), s.receives, receive);
  const bool erased = pools_.receive_index().erase(pair_key(index, r.rq_seq));
  MR_ASSERT(erased);
  finish(receive, Status::kOk);
}

/// MR-MSG-017: the program has it now; the order of the stream moves over it when its turn comes.
void Receiver::give_early(uint32_t message) {
  OpenMessage& m = pools_.messages()[message];
  give(m.stream, m.receive, {m.total, m.immediate, m.opcode, m.solicited});
  m.given = true;
}

/// The next message in order is placed; false if that showed a broken peer and closed the stream.
bool Receiver::deliver(uint32_t index, uint32_t receive, const Ending& ending) {
  ReceiveStream& s = pools_.streams()[index];
  if (receive != kNoIndex) {
    if (pools_.receives()[receive].rq_seq != s.completed) {
      // Receives were numbered in another order than messages: nothing of it can be trusted.
      close_stream(index, Status::kPeerFailed);
      return false;
    }
    ++s.completed;
    give(index, receive, ending);  // MR-MSG-013
  }
  ++s.delivered;
  ++delivered_;
  return true;
}

/// Delivers what is complete from the next MSN on.
void Receiver::advance(uint32_t index) {
  ReceiveStream& s = pools_.streams()[index];
  while (s.open_count > 0) {
    const bool cached = cached_stream_ == index && cached_msn_ == s.delivered;
    const uint32_t i = cached ? cached_message_ : pools_.index().find(pair_key(index, s.delivered));
    if (i == kNoIndex) return;
    const OpenMessage m = pools_.messages()[i];
    if (!m.complete()) return;
    if (m.operation != kNoIndex) host_->on_turn(m.operation);  // MR-MSG-040
    pools_.messages()[i].operation = kNoIndex;
    close_message(i);
    s.completed += m.given;
    const Ending ending{m.total, m.immediate, m.opcode, m.solicited};
    if (!deliver(index, m.given ? kNoIndex : m.receive, ending)) return;
  }
}

void Receiver::finish(uint32_t receive, Status status) {
  pools_.receives()[receive].status = status;
  list_push_back<&PostedReceive::link>(pools_.receives(), done_, receive);
}

/// Drops what is open and flushes what is posted; the oldest receive gets `first`.
void Receiver::close_stream(uint32_t index, Status first) {
  ReceiveStream& s = pools_.streams()[index];
  s.closed = true;
  if (s.queued) {
    s.queued = false;
    list_remove<&ReceiveStream::starved_link>(pools_.streams(), pools_.queue(s.queue)->starved,
                                              index);
  }
  while (!s.open.empty()) close_message(s.open.head);
  flush_receives(index, first);
}

void Receiver::flush_receives(uint32_t index, Status first) {
  ReceiveStream& s = pools_.streams()[index];
  while (!s.receives.empty()) {
    const uint32_t i = s.receives.head;
    const bool erased = pools_.receive_index().erase(pair_key(index, pools_.receives()[i].rq_seq));
    MR_ASSERT(erased);
    list_remove<&PostedReceive::link>(pools_.receives(), s.receives, i);
    // What was too long for a buffer is told to both sides (MR-MSG-026).
    const bool overrun = pools_.receives()[i].overrun;
    finish(i, overrun ? Status::kLength : first);
    first = Status::kFlushed;
  }
}

void Receiver::on_reset(uint16_t stream) {
  // What is complete in order was delivered when it completed; a message behind a hole is never
  // delivered, so nothing of the rest depends on the final MSN (MR-MSG-006).
  const uint32_t index = get_stream(stream);
  if (index == kNoIndex) return;
  ReceiveStream& s = pools_.streams()[index];
  s.reset_heard = true;
  if (!s.closed) close_stream(index, Status::kFlushed);
}

void Receiver::on_halt(uint16_t stream) {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex || pools_.streams()[index].closed) return;
  ReceiveStream& s = pools_.streams()[index];
  while (!s.open.empty()) close_message(s.open.head);
  // What was posted to the stream waits for its next life. What it took from a shared queue would
  // be lost to all others.
  if (s.queue != 0) flush_receives(index, Status::kFlushed);
}

Status Receiver::close(uint16_t stream) {
  const uint32_t index = get_stream(stream);
  if (index == kNoIndex) return Status::kFull;
  if (pools_.streams()[index].closed) return Status::kOk;
  close_stream(index, Status::kFlushed);
  // Who waits for credit may send one more: its refusal tells that the stream is closed.
  ++pools_.streams()[index].told;
  if (!dead_) add_news(index);
  return Status::kOk;
}

bool Receiver::reopen(uint16_t stream) {
  const uint32_t index = find_stream(stream);
  if (index == kNoIndex) return !dead_;
  ReceiveStream& s = pools_.streams()[index];
  if (dead_ || !s.closed || !s.reset_heard) return false;
  s.closed = s.reset_heard = s.starved = false;
  s.posted = s.completed;
  s.used = s.completed;  // MR-MSG-007: the numbers go on, the sender knows what was delivered
  return true;
}

void Receiver::note_starved(uint32_t index) {
  ReceiveStream& s = pools_.streams()[index];
  if (s.closed) return;  // a probe that was under way; nothing would take it off the list again
  s.starved = true;
  if (s.queue == 0 || s.queued) return;
  s.queued = true;
  list_push_back<&ReceiveStream::starved_link>(pools_.streams(), pools_.queue(s.queue)->starved,
                                               index);
}

void Receiver::on_queue_filled(uint16_t stream) {
  const uint32_t index = find_stream(stream);
  if (index != kNoIndex) add_news(index);
}

void Receiver::fail_all(Status first) {
  dead_ = true;
  for (uint32_t i = streams_; i != kNoIndex; i = pools_.streams()[i].next_stream) {
    if (!pools_.streams()[i].closed) close_stream(i, first);
  }
  while (!news_.empty()) {
    const uint32_t i = news_.head;
    pools_.streams()[i].news = false;
    list_remove<&ReceiveStream::news_link>(pools_.streams(), news_, i);
  }
}

size_t Receiver::poll(std::span<Completion> out) {
  size_t n = 0;
  while (n < out.size() && !done_.empty()) {
    const uint32_t i = done_.head;
    const PostedReceive& r = pools_.receives()[i];
    Completion& c = out[n++];
    c = Completion{};
    c.id = r.id;
    c.connection = connection_;
    c.stream = r.stream;
    c.operation = Operation::kReceive;
    c.status = r.status;
    c.has_immediate = r.has_immediate;
    c.invalidated = r.invalidated;
    c.solicited = r.solicited;
    c.immediate = r.immediate;
    c.bytes = r.bytes;
    list_remove<&PostedReceive::link>(pools_.receives(), done_, i);
    pools_.release_receive(i);
  }
  return n;
}

bool Receiver::has_order_hole() const {
  uint32_t looked_at = 0;
  for (uint32_t i = streams_; i != kNoIndex && looked_at < 1024; ++looked_at) {
    const ReceiveStream& stream = pools_.streams()[i];
    i = stream.next_stream;
    for (uint32_t m = stream.open.head; m != kNoIndex && looked_at < 1024; ++looked_at) {
      const OpenMessage& message = pools_.messages()[m];
      if (message.complete()) return true;  // what is next is delivered at once
      m = message.link.next;
    }
  }
  return false;
}

uint64_t Receiver::messages_delivered() const { return delivered_; }

uint64_t Receiver::hash() const {
  uint64_t sum = 0;
  for (uint32_t i = streams_; i != kNoIndex; i = pools_.streams()[i].next_stream) {
    const ReceiveStream& s = pools_.streams()[i];
    uint64_t h = (uint64_t{s.id} << 32 | s.delivered) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (h >> 29) ^ s.bytes) * 0xbf58476d1ce4e5b9ull;
    sum += h ^ (h >> 32);
  }
  return sum;
}

}  // namespace metaroce::message
