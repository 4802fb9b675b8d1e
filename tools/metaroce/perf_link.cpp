#include "perf_link.h"

namespace metaroce::tool {

bool PerfLink::open() {
  buffers_.resize(kBuffers * kMaxPerfMessage);
  for (size_t i = 0; i < kBuffers; ++i) {
    if (!post_receive(i)) return false;
  }
  return true;
}

bool PerfLink::post_receive(size_t index) {
  api::ReceiveRequest r;
  r.id = index;
  r.connection = connection_;
  r.buffer = buffers_.data() + index * kMaxPerfMessage;
  r.length = kMaxPerfMessage;
  Status status = Status::kOk;
  return endpoint_.post_receive({&r, 1}, status) == 1;
}

void PerfLink::send(const PerfMessage& message) {
  waiting_.push_back(encode(message));
  progress();
}

void PerfLink::progress() {
  while (posted_ < waiting_.size()) {
    api::WorkRequest w;
    w.connection = connection_;
    w.operation = engine::Operation::kSend;
    w.local = waiting_[posted_].data();
    w.length = waiting_[posted_].size();
    Status status = Status::kOk;
    if (endpoint_.post({&w, 1}, status) == 1) {
      ++posted_;
      continue;
    }
    // Anything but a full table means that the connection is gone, and its event says so.
    if (status != Status::kFull) waiting_.resize(posted_);
    return;
  }
}

PerfLink::Heard PerfLink::on_completion(const api::Completion& c) {
  if (c.operation != engine::Operation::kReceive) {
    if (posted_ > 0) {
      waiting_.pop_front();
      --posted_;
    }
    return {};
  }
  if (c.status != Status::kOk) return {};
  Heard heard = decode_perf({buffers_.data() + c.id * kMaxPerfMessage, c.bytes});
  post_receive(c.id);
  return heard;
}

}  // namespace metaroce::tool
