// Posting and polling.
#include <fmt/core.h>

#include <array>

#include "api/native/context.h"
#include "api/native/versioned.h"

namespace metaroce::api::native {
namespace {

constexpr size_t kBatch = 64;
using Segments = std::array<engine::Segment, MR_MAX_SEGMENTS>;
static_assert(MR_MAX_SEGMENTS == engine::kMaxSegments && MR_MAX_COPIED == engine::kMaxInline);
// What the first version of an element needs at least to say anything.
constexpr size_t kLeastWork = offsetof(mr_work, region);
constexpr size_t kLeastReceive = offsetof(mr_receive, region);
constexpr size_t kLeastCompletion = offsetof(mr_completion, immediate);

static_assert(MR_WRITE == static_cast<int>(engine::Operation::kWrite));
static_assert(MR_WRITE_IMM == static_cast<int>(engine::Operation::kWriteImm));
static_assert(MR_SEND == static_cast<int>(engine::Operation::kSend));
static_assert(MR_SEND_IMM == static_cast<int>(engine::Operation::kSendImm));
static_assert(MR_RECEIVE == static_cast<int>(engine::Operation::kReceive));
static_assert(MR_SEND_INV == static_cast<int>(engine::Operation::kSendInv));
static_assert(MR_READ == static_cast<int>(engine::Operation::kRead));
static_assert(MR_FETCH_ADD == static_cast<int>(engine::Operation::kFetchAdd));
static_assert(MR_COMPARE_SWAP == static_cast<int>(engine::Operation::kCompareSwap));

// Whom a receive of a shared queue belongs to; no connection has this handle.
constexpr ConnectionHandle kNobody = 0xFFFFFFFFu;

template <class T>
const std::byte* element(const T* list, size_t i, size_t each) {
  return reinterpret_cast<const std::byte*>(list) + i * each;
}

mr_status bad_element(Context& c, const char* what, size_t each, size_t least, size_t ours) {
  return c.fail(MR_INVALID,
                fmt::format("each is {}; it must be sizeof({}), {} in this version and at least "
                            "{}, and fields that this version does not know must be 0",
                            each, what, ours, least));
}

constexpr uint32_t kKnownFlags =
    MR_WORK_SOLICITED | MR_WORK_FENCE | MR_WORK_UNORDERED | MR_WORK_COPIED | MR_WORK_UNSIGNALLED;

bool is_atomic(uint8_t operation) {
  return operation == MR_FETCH_ADD || operation == MR_COMPARE_SWAP;
}

/// The memory of a request as a list: its own one piece, or the caller's segments.
template <class In>
mr_status memory_of(Context& c, const In& in, size_t position, mr_segment& single,
                    std::span<const mr_segment>& out) {
  if (in.segments == nullptr && in.segment_count != 0) {
    return c.fail(MR_INVALID, fmt::format("request {}: segments is NULL and segment_count is {}",
                                          position, in.segment_count));
  }
  if (in.segments != nullptr && in.segment_count == 0) {
    single = {};  // a list of nothing
    out = {&single, 1};
    return MR_OK;
  }
  if (in.segments == nullptr) {
    single = {const_cast<void*>(static_cast<const void*>(in.memory)), in.length, in.region};
    out = {&single, 1};
    return MR_OK;
  }
  if (in.segment_count > MR_MAX_SEGMENTS) {
    return c.fail(MR_INVALID, fmt::format("request {}: segment_count is {}; at most {}", position,
                                          in.segment_count, MR_MAX_SEGMENTS));
  }
  out = {in.segments, in.segment_count};
  return MR_OK;
}

/// The engine's view of a list of segments, in storage that lives until the batch is given.
std::span<const engine::Segment> segments_of(std::span<const mr_segment> list, Segments& out) {
  if (list.size() < 2) return {};
  for (size_t i = 0; i < list.size(); ++i) {
    out[i] = {static_cast<std::byte*>(list[i].memory), list[i].length};
  }
  return {out.data(), list.size()};
}

mr_status check_work(Context& c, const mr_work& in, size_t position) {
  if (in.operation > MR_COMPARE_SWAP || in.operation == MR_RECEIVE) {
    return c.fail(MR_INVALID,
                  fmt::format("work[{}].operation is {}; it must be MR_WRITE to MR_SEND_IMM (0 to "
                              "3) or MR_SEND_INV to MR_COMPARE_SWAP (5 to 8)",
                              position, in.operation));
  }
  if ((in.flags & ~kKnownFlags) != 0) {
    return c.fail(MR_INVALID, fmt::format("work[{}].flags is {:#x}; this version knows {:#x}",
                                          position, in.flags, kKnownFlags));
  }
  if ((in.flags & MR_WORK_COPIED) != 0 && in.operation >= MR_READ) {
    return c.fail(MR_INVALID, fmt::format("work[{}]: MR_WORK_COPIED is for what is sent; a Read or "
                                          "an atomic writes to its memory until it completes",
                                          position));
  }
  if (is_atomic(in.operation) && (in.segment_count != 0 || in.remote_address % 8 != 0)) {
    return c.fail(MR_INVALID,
                  fmt::format("work[{}]: an atomic has no segments, and its remote_address, {:#x}, "
                              "must be a multiple of 8",
                              position, in.remote_address));
  }
  return MR_OK;
}

mr_status take(Context& c, const mr_work& in, size_t position, WorkRequest& out,
               Segments& storage) {
  mr_status status = check_work(c, in, position);
  mr_segment single;
  std::span<const mr_segment> memory;
  if (status == MR_OK) status = memory_of(c, in, position, single, memory);
  if (status != MR_OK) return status;
  if (is_atomic(in.operation)) single.length = in.memory == nullptr ? 0 : 8;
  uint32_t record = 0;
  const bool copied = (in.flags & MR_WORK_COPIED) != 0;
  Context::Posting posting;
  posting.id = in.id;
  posting.connection = in.connection;
  posting.stream = in.stream;
  posting.silent = (in.flags & MR_WORK_UNSIGNALLED) != 0;
  posting.position = position;
  posting.memory = memory;
  posting.limit = copied ? MR_MAX_COPIED : kMaxMessageBytes;
  status = c.admit(posting, record);
  if (status != MR_OK) return status;
  out = WorkRequest{};
  out.id = record;
  out.connection = in.connection;
  out.stream = in.stream;
  out.operation = static_cast<engine::Operation>(in.operation);
  out.solicited = (in.flags & MR_WORK_SOLICITED) != 0;
  out.fence = (in.flags & MR_WORK_FENCE) != 0;
  out.unordered = (in.flags & MR_WORK_UNORDERED) != 0;
  out.copied = copied;
  out.local = static_cast<const std::byte*>(memory[0].memory);
  out.result = static_cast<std::byte*>(memory[0].memory);
  for (const mr_segment& m : memory) out.length += m.length;
  out.segments = segments_of(memory, storage);
  out.remote_address = in.remote_address;
  out.remote_key = in.remote_key;
  out.immediate = in.immediate;
  out.operand = in.operand;
  out.swap = in.swap;
  return MR_OK;
}

mr_status take(Context& c, const mr_receive& in, size_t position, ReceiveRequest& out,
               Segments& storage) {
  mr_segment single;
  Context::Posting posting;
  mr_status status = memory_of(c, in, position, single, posting.memory);
  if (status != MR_OK) return status;
  uint32_t record = 0;
  posting.id = in.id;
  posting.connection = in.queue != 0 ? kNobody : in.connection;
  posting.stream = in.stream;
  posting.queue = in.queue;
  posting.position = position;
  posting.limit = kMaxMessageBytes;
  status = c.admit(posting, record);
  if (status != MR_OK) return status;
  out = ReceiveRequest{};
  out.id = record;
  out.connection = in.connection;
  out.stream = in.stream;
  out.shared_queue = in.queue;
  out.buffer = static_cast<std::byte*>(posting.memory[0].memory);
  for (const mr_segment& m : posting.memory) out.length += m.length;
  out.segments = segments_of(posting.memory, storage);
  return MR_OK;
}

size_t give(Context& c, std::span<const WorkRequest> batch, Status& status) {
  return c.endpoint().post(batch, status);
}
size_t give(Context& c, std::span<const ReceiveRequest> batch, Status& status) {
  return c.endpoint().post_receive(batch, status);
}

mr_status explain(Context& c, Status status, uint32_t connection) {
  switch (status) {
    case Status::kFull:
      return c.fail(MR_FULL, fmt::format("the context has room for {} sends, {} receives and {} "
                                         "streams, and one of these (or max_segment_lists, "
                                         "max_copied) is used up; poll completions, or raise "
                                         "max_sends, max_receives or max_streams",
                                         c.settings().max_sends, c.settings().max_receives,
                                         c.settings().max_streams));
    case Status::kClosed:
      return c.fail(MR_CLOSED, "the stream was drained (mr_stream_drain) and takes no more work");
    case Status::kInvalid:
      return c.fail(MR_INVALID, "receives of this stream are posted to its shared queue");
    case Status::kNotConnected:
    case Status::kUnknownHandle:
      if (connection == kNobody) {
        return c.fail(MR_UNKNOWN_HANDLE, "there is no such shared queue (mr_queue_create)");
      }
      return c.fail(MR_NOT_CONNECTED, fmt::format("connection {:#x} is closing or gone; its event "
                                                  "(mr_next_event) says why",
                                                  connection));
    default:
      return c.fail(to_c(status),
                    fmt::format("connection {:#x}: {}", connection, mr_status_text(to_c(status))));
  }
}

ConnectionHandle owner_of(const WorkRequest& request) { return request.connection; }
ConnectionHandle owner_of(const ReceiveRequest& request) {
  return request.shared_queue != 0 ? kNobody : request.connection;
}

/// Both kinds of requests: batches to the engine, records back for what it did not take.
template <class Request, class In>
mr_status post_all(Context& c, const In* list, size_t count, size_t each, size_t least,
                   const char* what, size_t& taken) {
  std::array<Request, kBatch> batch{};
  std::array<Segments, kBatch> segments;
  mr_status status = MR_OK;
  while (taken < count && status == MR_OK) {
    size_t n = 0;
    while (n < kBatch && taken + n < count && status == MR_OK) {
      In in;
      if (!take_struct(element(list, taken + n, each), each, least, in)) {
        status = bad_element(c, what, each, least, sizeof in);
      } else {
        status = take(c, in, taken + n, batch[n], segments[n]);
      }
      if (status == MR_OK) ++n;
    }
    Status refused = Status::kOk;
    const size_t done = give(c, std::span<const Request>(batch.data(), n), refused);
    taken += done;
    if (done < n) {
      status = explain(c, refused, owner_of(batch[done]));
      for (size_t i = done; i < n; ++i) c.release(static_cast<uint32_t>(batch[i].id));
    }
  }
  // With a progress thread the caller may not come back soon; what can go out goes out now.
  if (taken != 0 && c.threaded()) c.step();
  return status;
}

mr_status poll(Context& c, mr_completion* out, size_t count, size_t each, size_t& got) {
  c.note_polled();
  std::array<Completion, kBatch> batch;
  if (count == 0) c.step();
  while (got < count) {
    const size_t n = c.endpoint().poll({batch.data(), std::min(kBatch, count - got)});
    for (size_t i = 0; i < n; ++i) {
      const Completion& in = batch[i];
      const auto index = static_cast<uint32_t>(in.id);
      const PostedRecord& record = c.posted()[index];
      // Else its connection was aborted, or nobody wants to hear of it.
      if (record.connection != 0 && !(record.silent && in.status == Status::kOk)) {
        mr_completion completion{};
        completion.id = record.id;
        completion.connection = in.connection;
        completion.stream = in.stream;
        completion.operation = static_cast<uint8_t>(in.operation);
        completion.flags = static_cast<uint8_t>((in.has_immediate ? MR_COMPLETION_IMMEDIATE : 0) |
                                                (in.solicited ? MR_COMPLETION_SOLICITED : 0) |
                                                (in.invalidated ? MR_COMPLETION_INVALIDATED : 0));
        completion.bytes = in.bytes;
        completion.status = to_c(in.status);
        completion.immediate = in.immediate;
        completion.old_value = in.old_value;
        give_struct(completion, reinterpret_cast<std::byte*>(out) + got * each, each);
        ++got;
      }
      c.release(index);
    }
    if (n == 0) break;
  }
  c.drain_events();
  return MR_OK;
}

}  // namespace

mr_status Context::hold(const mr_segment& m, size_t position, uint32_t& region) {
  region = 0;
  if (m.memory == nullptr && m.length != 0) {
    return fail(MR_INVALID, fmt::format("request {}: memory is NULL and length is {}; it must be "
                                        "0 then",
                                        position, m.length));
  }
  if (m.region == 0) return MR_OK;
  uint32_t index = 0;
  RegionRecord* r = find_region(m.region, index);
  if (r == nullptr) {
    return fail(MR_UNKNOWN_HANDLE,
                fmt::format("request {}: there is no region {:#x}", position, m.region));
  }
  const uint64_t offset =
      reinterpret_cast<uint64_t>(m.memory) - reinterpret_cast<uint64_t>(r->memory);
  if (m.length != 0 && (offset > r->length || m.length > r->length - offset)) {
    return fail(MR_INVALID, fmt::format("request {}: {} bytes at {} are not inside its region, "
                                        "{} bytes at {}",
                                        position, m.length, m.memory, r->length,
                                        static_cast<void*>(r->memory)));
  }
  region = index + 1;
  return MR_OK;
}

mr_status Context::admit(const Posting& p, uint32_t& index) {
  StreamRecord* s = nullptr;
  if (p.queue == 0) {
    if (find(p.connection) == nullptr) return unknown(p.connection);
    s = find_stream(p.connection, p.stream);
    if (s == nullptr) {
      return fail(MR_UNKNOWN_HANDLE,
                  fmt::format("request {}: stream {} of connection {:#x} is not open; call "
                              "mr_stream_open",
                              p.position, p.stream, p.connection));
    }
  }
  uint64_t length = 0;
  for (const mr_segment& m : p.memory) length += std::min(m.length, kMaxMessageBytes + 1);
  if (length > p.limit) {
    return fail(MR_INVALID, fmt::format("request {}: length is {}; it must be 0 to {}", p.position,
                                        length, p.limit));
  }
  index = Slab<PostedRecord>::kNone;
  for (const mr_segment& m : p.memory) {
    uint32_t region = 0;
    const mr_status status = hold(m, p.position, region);
    const bool record = index == Slab<PostedRecord>::kNone || region != 0;
    const uint32_t i = status == MR_OK && record ? posted_->allocate() : 0;
    if (status != MR_OK || i == Slab<PostedRecord>::kNone) {
      let_go(index);
      return status != MR_OK ? status : explain(*this, Status::kFull, p.connection);
    }
    if (!record) continue;
    (*posted_)[i] = {p.id, p.connection, region, index, p.queue, p.stream, p.silent};
    if (region != 0) ++regions_[region - 1].posted;
    index = i;
  }
  if (s != nullptr) ++s->posted;
  return MR_OK;
}

/// The records of one request, and what they hold.
void Context::let_go(uint32_t index) {
  while (index != Slab<PostedRecord>::kNone) {
    const PostedRecord& record = (*posted_)[index];
    const uint32_t next = record.next;
    if (record.region != 0) --regions_[record.region - 1].posted;
    posted_->release(index);
    index = next;
  }
}

void Context::release(uint32_t index) {
  const PostedRecord record = (*posted_)[index];
  let_go(index);
  if (record.connection == 0 || record.queue != 0) return;
  StreamRecord* s = find_stream(record.connection, record.stream);
  if (s != nullptr && s->posted > 0) --s->posted;
}

void Context::disown(ConnectionHandle connection) {
  for (uint32_t i = 0; i < posted_->capacity(); ++i) {
    if (!posted_->is_used(i)) continue;
    PostedRecord& record = (*posted_)[i];
    if (record.connection != connection) continue;
    if (record.region != 0) --regions_[record.region - 1].posted;
    record.region = 0;
    record.connection = 0;
  }
}

/// Requests of the queue whose completions have not been polled.
uint32_t Context::posted_to(mr_queue queue) const {
  uint32_t records = 0, further = 0;
  for (uint32_t i = 0; i < posted_->capacity(); ++i) {
    if (!posted_->is_used(i) || (*posted_)[i].queue != queue) continue;
    ++records;
    further += (*posted_)[i].next != Slab<PostedRecord>::kNone;  // each holds one region more
  }
  return records - further;
}

void Context::disown_queue(mr_queue queue) {
  // Records that hold further regions of a request carry its queue too; each is given back alone.
  for (uint32_t i = 0; i < posted_->capacity(); ++i) {
    if (!posted_->is_used(i) || (*posted_)[i].queue != queue) continue;
    (*posted_)[i].next = Slab<PostedRecord>::kNone;
    let_go(i);
  }
}

}  // namespace metaroce::api::native

namespace native = metaroce::api::native;
using native::Context;
using native::guarded;

extern "C" {

mr_status mr_post(mr_context* context, const mr_work* work, size_t count, size_t each,
                  size_t* taken) {
  size_t n = 0;
  const mr_status status = guarded(context, [&](Context& c) {
    if (each < native::kLeastWork || (work == nullptr && count != 0)) {
      return native::bad_element(c, "mr_work", each, native::kLeastWork, sizeof *work);
    }
    return native::post_all<metaroce::api::WorkRequest>(c, work, count, each, native::kLeastWork,
                                                        "mr_work", n);
  });
  if (taken != nullptr) *taken = n;
  return status;
}

mr_status mr_post_receive(mr_context* context, const mr_receive* receives, size_t count,
                          size_t each, size_t* taken) {
  size_t n = 0;
  const mr_status status = guarded(context, [&](Context& c) {
    if (each < native::kLeastReceive || (receives == nullptr && count != 0)) {
      return native::bad_element(c, "mr_receive", each, native::kLeastReceive, sizeof *receives);
    }
    return native::post_all<metaroce::api::ReceiveRequest>(c, receives, count, each,
                                                           native::kLeastReceive, "mr_receive", n);
  });
  if (taken != nullptr) *taken = n;
  return status;
}

mr_status mr_poll(mr_context* context, mr_completion* completions, size_t count, size_t each,
                  size_t* got) {
  size_t n = 0;
  const mr_status status = guarded(context, [&](Context& c) {
    if (each < native::kLeastCompletion || (completions == nullptr && count != 0)) {
      return native::bad_element(c, "mr_completion", each, native::kLeastCompletion,
                                 sizeof *completions);
    }
    return native::poll(c, completions, count, each, n);
  });
  if (got != nullptr) *got = n;
  return status;
}

}  // extern "C"
