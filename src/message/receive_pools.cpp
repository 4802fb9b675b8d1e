// The pools behind Receiver, and the shared receive queues in them.
#include <algorithm>

#include "base/assert.h"
#include "message/open_message.h"
#include "message/receiver.h"

namespace metaroce::message {

ReceivePools::ReceivePools(const Settings& settings)
    : messages_(std::make_unique<Slab<OpenMessage>>(settings.max_open_messages)),
      streams_(std::make_unique<Slab<ReceiveStream>>(settings.max_streams)),
      receives_(std::make_unique<Slab<PostedReceive>>(settings.max_receives)),
      index_(std::make_unique<FlatMap>(settings.max_open_messages)),
      stream_index_(std::make_unique<FlatMap>(settings.max_streams)),
      receive_index_(std::make_unique<FlatMap>(settings.max_receives)),
      segments_(std::make_unique<Slab<ReceiveSegments>>(settings.max_segment_lists)),
      queues_(settings.max_shared_queues),
      low_(settings.max_shared_queues) {}

ReceivePools::~ReceivePools() = default;

uint32_t ReceivePools::take_receive(const ReceiveRequest& request, Status& status) {
  status = Status::kInvalid;
  if (request.segments.size() > kMaxSegments) return kNoIndex;
  const bool list = request.segments.size() > 1;
  status = Status::kFull;
  if (receives_->available() == 0 || (list && segments_->available() == 0)) return kNoIndex;
  status = Status::kOk;
  const uint32_t i = receives_->allocate();
  PostedReceive& r = (*receives_)[i];
  r.id = request.id;
  r.buffer = request.buffer;
  r.length = request.length;
  if (request.segments.size() == 1) r.buffer = request.segments[0].address;
  if (!request.segments.empty()) r.length = 0;
  for (const Segment& s : request.segments) r.length += s.length;
  if (list) {
    r.segments = segments_->allocate();
    ReceiveSegments& l = (*segments_)[r.segments];
    std::copy(request.segments.begin(), request.segments.end(), l.segment);
    l.count = static_cast<uint32_t>(request.segments.size());
  }
  return i;
}

void ReceivePools::release_receive(uint32_t index) {
  const uint32_t list = (*receives_)[index].segments;
  if (list != kNoIndex) segments_->release(list);
  receives_->release(index);
}

SharedQueue* ReceivePools::queue(uint32_t id) {
  if (id == 0 || id > queues_.size() || !queues_[id - 1].used) return nullptr;
  return &queues_[id - 1];
}

Expected<uint32_t, Status> ReceivePools::create_queue() {
  for (uint32_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].used) continue;
    queues_[i] = SharedQueue{};
    queues_[i].used = true;
    return i + 1;
  }
  return unexpected(Status::kFull);
}

Status ReceivePools::destroy_queue(uint32_t id) {
  SharedQueue* q = queue(id);
  if (q == nullptr) return Status::kUnknownHandle;
  if (q->streams > 0) return Status::kFull;
  while (!q->receives.empty()) {
    const uint32_t i = q->receives.head;
    list_remove<&PostedReceive::link>(*receives_, q->receives, i);
    release_receive(i);
  }
  q->used = false;
  return Status::kOk;
}

Status ReceivePools::post_shared(const ReceiveRequest& request) {
  SharedQueue* q = queue(request.shared_queue);
  if (q == nullptr) return Status::kUnknownHandle;
  Status status = Status::kOk;
  const uint32_t i = take_receive(request, status);
  if (status != Status::kOk) return status;
  (*receives_)[i].queue = request.shared_queue;
  list_push_back<&PostedReceive::link>(*receives_, q->receives, i);
  ++q->count;
  return Status::kOk;
}

Status ReceivePools::arm_low(uint32_t id, uint32_t count) {
  SharedQueue* q = queue(id);
  if (q == nullptr) return Status::kUnknownHandle;
  q->low = count;
  q->armed = count > 0;
  tell_if_low(id, *q);  // short already
  return Status::kOk;
}

uint32_t ReceivePools::queue_length(uint32_t id) const {
  const SharedQueue* q = queue(id);
  return q == nullptr ? 0 : q->count;
}

void ReceivePools::note_bound(uint32_t id) {
  SharedQueue& q = *queue(id);
  --q.count;
  tell_if_low(id, q);
}

void ReceivePools::tell_if_low(uint32_t id, SharedQueue& q) {
  if (!q.armed || q.count >= q.low) return;
  q.armed = false;  // MR-MSG-062: once
  if (!low_.full()) low_.push(id);
}

bool ReceivePools::nearly_full() const {
  return uint64_t{messages_->used()} * 4 > uint64_t{messages_->capacity()} * 3;
}

uint32_t ReceivePools::take_low() {
  if (low_.empty()) return 0;
  const uint32_t id = low_.front();
  low_.pop();
  return id;
}

bool ReceivePools::take_starved(uint32_t id, ConnectionHandle& connection, uint16_t& stream) {
  SharedQueue* q = queue(id);
  if (q == nullptr || q->starved.empty()) return false;
  const uint32_t index = q->starved.head;
  ReceiveStream& s = (*streams_)[index];
  list_remove<&ReceiveStream::starved_link>(*streams_, q->starved, index);
  s.queued = false;
  connection = s.connection;
  stream = s.id;
  return true;
}

Status Receiver::set_options(uint16_t stream, const StreamOptions& options) {
  SharedQueue* q = pools_.queue(options.shared_queue);
  if (options.shared_queue != 0 && q == nullptr) return Status::kUnknownHandle;
  const uint32_t index = get_stream(stream);
  if (index == kNoIndex) return Status::kFull;
  ReceiveStream& s = pools_.streams()[index];
  if (s.queue != options.shared_queue) {
    // Its numbers are bound to the queue it began with.
    if (s.posted != 0 || s.used != 0 || s.queue != 0) return Status::kInvalid;
    ++q->streams;
    s.queue = options.shared_queue;
  }
  if (s.in_order != options.in_order && s.open_count != 0) return Status::kInvalid;
  s.in_order = options.in_order;
  return Status::kOk;
}

}  // namespace metaroce::message
