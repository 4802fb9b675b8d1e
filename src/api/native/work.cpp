// Posting and polling.
#include <fmt/core.h>

#include <array>

#include "api/native/context.h"
#include "api/native/versioned.h"

namespace metaroce::api::native {
namespace {

constexpr size_t kBatch = 64;
// What the first version of an element needs at least to say anything.
constexpr size_t kLeastWork = offsetof(mr_work, region);
constexpr size_t kLeastReceive = offsetof(mr_receive, region);
constexpr size_t kLeastCompletion = offsetof(mr_completion, immediate);

static_assert(MR_WRITE == static_cast<int>(engine::Operation::kWrite));
static_assert(MR_WRITE_IMM == static_cast<int>(engine::Operation::kWriteImm));
static_assert(MR_SEND == static_cast<int>(engine::Operation::kSend));
static_assert(MR_SEND_IMM == static_cast<int>(engine::Operation::kSendImm));
static_assert(MR_RECEIVE == static_cast<int>(engine::Operation::kReceive));

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

mr_status take(Context& c, const mr_work& in, size_t position, WorkRequest& out) {
  if (in.operation > MR_SEND_IMM) {
    return c.fail(MR_INVALID, fmt::format("work[{}].operation is {}; it must be MR_WRITE, "
                                          "MR_WRITE_IMM, MR_SEND or MR_SEND_IMM (0 to 3)",
                                          position, in.operation));
  }
  if ((in.flags & ~MR_WORK_SOLICITED) != 0) {
    return c.fail(MR_INVALID, fmt::format("work[{}].flags is {:#x}; this version knows {:#x}",
                                          position, in.flags, +MR_WORK_SOLICITED));
  }
  uint32_t record = 0;
  const mr_status status =
      c.admit(in.connection, in.stream, in.memory, in.length, in.region, in.id, position, record);
  if (status != MR_OK) return status;
  out.id = record;
  out.connection = in.connection;
  out.stream = in.stream;
  out.operation = static_cast<engine::Operation>(in.operation);
  out.solicited = (in.flags & MR_WORK_SOLICITED) != 0;
  out.local = static_cast<const std::byte*>(in.memory);
  out.length = in.length;
  out.remote_address = in.remote_address;
  out.remote_key = in.remote_key;
  out.immediate = in.immediate;
  return MR_OK;
}

mr_status take(Context& c, const mr_receive& in, size_t position, ReceiveRequest& out) {
  uint32_t record = 0;
  const mr_status status =
      c.admit(in.connection, in.stream, in.memory, in.length, in.region, in.id, position, record);
  if (status != MR_OK) return status;
  out.id = record;
  out.connection = in.connection;
  out.stream = in.stream;
  out.buffer = static_cast<std::byte*>(in.memory);
  out.length = in.length;
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
                                         "streams, and one of these is used up; poll completions, "
                                         "or raise max_sends, max_receives or max_streams",
                                         c.settings().max_sends, c.settings().max_receives,
                                         c.settings().max_streams));
    case Status::kNotConnected:
    case Status::kUnknownHandle:
      return c.fail(MR_NOT_CONNECTED,
                    fmt::format("connection {:#x} is closing or gone; its event (mr_next_event) "
                                "says why",
                                connection));
    default:
      return c.fail(to_c(status),
                    fmt::format("connection {:#x}: {}", connection, mr_status_text(to_c(status))));
  }
}

/// Both kinds of requests: batches to the engine, records back for what it did not take.
template <class Request, class In>
mr_status post_all(Context& c, const In* list, size_t count, size_t each, size_t least,
                   const char* what, size_t& taken) {
  std::array<Request, kBatch> batch{};
  mr_status status = MR_OK;
  while (taken < count && status == MR_OK) {
    size_t n = 0;
    while (n < kBatch && taken + n < count && status == MR_OK) {
      In in;
      if (!take_struct(element(list, taken + n, each), each, least, in)) {
        status = bad_element(c, what, each, least, sizeof in);
      } else {
        status = take(c, in, taken + n, batch[n]);
      }
      if (status == MR_OK) ++n;
    }
    Status refused = Status::kOk;
    const size_t done = give(c, std::span<const Request>(batch.data(), n), refused);
    taken += done;
    if (done < n) {
      status = explain(c, refused, batch[done].connection);
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
      if (record.connection != 0) {  // else: its connection was aborted
        mr_completion completion{};
        completion.id = record.id;
        completion.connection = in.connection;
        completion.stream = in.stream;
        completion.operation = static_cast<uint8_t>(in.operation);
        completion.flags = static_cast<uint8_t>((in.has_immediate ? MR_COMPLETION_IMMEDIATE : 0) |
                                                (in.solicited ? MR_COMPLETION_SOLICITED : 0));
        completion.bytes = in.bytes;
        completion.status = to_c(in.status);
        completion.immediate = in.immediate;
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

mr_status Context::admit(ConnectionHandle connection, uint16_t stream, const void* memory,
                         uint64_t length, mr_region region, uint64_t id, size_t position,
                         uint32_t& index) {
  if (find(connection) == nullptr) return unknown(connection);
  StreamRecord* s = find_stream(connection, stream);
  if (s == nullptr) {
    return fail(MR_UNKNOWN_HANDLE,
                fmt::format("request {}: stream {} of connection {:#x} is not open; call "
                            "mr_stream_open",
                            position, stream, connection));
  }
  if (length > kMaxMessageBytes) {
    return fail(MR_INVALID, fmt::format("request {}: length is {}; it must be 0 to {}", position,
                                        length, kMaxMessageBytes));
  }
  if (memory == nullptr && length != 0) {
    return fail(MR_INVALID, fmt::format("request {}: memory is NULL and length is {}; it must be "
                                        "0 then",
                                        position, length));
  }
  uint32_t region_index = 0;
  RegionRecord* r = nullptr;
  if (region != 0) {
    r = find_region(region, region_index);
    if (r == nullptr) {
      return fail(MR_UNKNOWN_HANDLE,
                  fmt::format("request {}: there is no region {:#x}", position, region));
    }
    const uint64_t offset =
        reinterpret_cast<uint64_t>(memory) - reinterpret_cast<uint64_t>(r->memory);
    if (length != 0 && (offset > r->length || length > r->length - offset)) {
      return fail(MR_INVALID,
                  fmt::format("request {}: {} bytes at {} are not inside its region, "
                              "{} bytes at {}",
                              position, length, memory, r->length, static_cast<void*>(r->memory)));
    }
  }
  index = posted_->allocate();
  if (index == Slab<PostedRecord>::kNone) return explain(*this, Status::kFull, connection);
  (*posted_)[index] = {id, connection, r == nullptr ? 0 : region_index + 1, stream};
  ++s->posted;
  if (r != nullptr) ++r->posted;
  return MR_OK;
}

void Context::release(uint32_t index) {
  const PostedRecord record = (*posted_)[index];
  posted_->release(index);
  if (record.region != 0) --regions_[record.region - 1].posted;
  if (record.connection == 0) return;
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
