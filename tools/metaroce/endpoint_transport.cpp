#include "endpoint_transport.h"

#include "driver/common/clock.h"
#include "driver/common/socket_address.h"
#include "endpoint_news.h"

namespace metaroce::tool {
namespace {

constexpr uint64_t kReceiveBit = uint64_t{1} << 63;
constexpr uint32_t kControlBuffers = 64;
constexpr uint32_t kDataBuffers = 16;  // a stream; the sender has fewer slots than all of them

}  // namespace

EndpointTransport::EndpointTransport(std::unique_ptr<api::Endpoint> endpoint, Role role,
                                     Duration death_timeout)
    : endpoint_(std::move(endpoint)), role_(role), death_timeout_(death_timeout) {}

EndpointTransport::~EndpointTransport() = default;

Expected<Link, api::Error> EndpointTransport::connect(std::span<const SocketAddress> peer,
                                                      Duration timeout) {
  auto connected = endpoint_->connect(peer, timeout);
  if (!connected) return unexpected(connected.error());
  open_link(*connected);
  return *connected;
}

void EndpointTransport::record(Duration interval) {
  interval_ = interval;
  next_sample_ = driver::now();
}

// ---- out ----------------------------------------------------------------------------------------

uint64_t EndpointTransport::new_request(Request request) {
  request.used = true;
  if (free_requests_.empty()) {
    requests_.push_back(std::move(request));
    return requests_.size() - 1;
  }
  const uint64_t id = free_requests_.back();
  free_requests_.pop_back();
  requests_[id] = std::move(request);
  return id;
}

void EndpointTransport::send(Link link, uint16_t stream, Bytes message) {
  const auto found = links_.find(link);
  if (found == links_.end() || found->second.closing) return;
  ++found->second.unfinished;
  api::WorkRequest work;
  work.id = new_request({true, false, 0, std::move(message)});
  work.connection = link;
  work.stream = stream;
  work.operation = engine::Operation::kSend;
  // Moving a vector keeps its bytes where they are, so the table may grow under a posted send.
  work.local = requests_[work.id].message.data();
  work.length = requests_[work.id].message.size();
  post(work);
}

void EndpointTransport::write(Link link, uint16_t stream, std::span<const std::byte> from,
                              uint32_t key, uint64_t address, uint64_t id) {
  const auto found = links_.find(link);
  if (found == links_.end() || found->second.closing) return;
  ++found->second.unfinished;
  api::WorkRequest work;
  work.id = new_request({true, true, id, {}});
  work.connection = link;
  work.stream = stream;
  work.operation = engine::Operation::kWrite;
  work.local = from.data();
  work.length = from.size();
  work.remote_address = address;
  work.remote_key = key;
  post(work);
}

void EndpointTransport::post(const api::WorkRequest& work) {
  backlog_.push_back(work);
  drain_backlog();
}

void EndpointTransport::drain_backlog() {
  while (!backlog_.empty()) {
    Status status = Status::kOk;
    const api::WorkRequest work = backlog_.front();
    if (endpoint_->post({&work, 1}, status) == 1) {
      backlog_.pop_front();
      continue;
    }
    if (status == Status::kFull) return;  // order is kept: nothing behind it may overtake
    backlog_.pop_front();
    api::Completion failed;
    failed.id = work.id;
    failed.connection = work.connection;
    failed.stream = work.stream;
    failed.operation = work.operation;
    failed.status = status;
    take_completion(failed);
  }
  while (!receive_backlog_.empty()) {
    const uint64_t id = receive_backlog_.front();
    const Receive& receive = receives_[id];
    receive_backlog_.pop_front();
    if (links_.count(receive.link) == 0) continue;
    const size_t before = receive_backlog_.size();
    post_receive(id);
    if (receive_backlog_.size() > before) return;
  }
}

Expected<SharedMemory, std::string> EndpointTransport::share(std::span<std::byte> memory) {
  const auto region = endpoint_->register_region(memory, memory::access::kRemoteWrite);
  if (!region) return unexpected(region.error().text);
  return SharedMemory{region->key, region->address, region->index};
}

void EndpointTransport::unshare(const SharedMemory& memory) {
  endpoint_->deregister_region({memory.handle, memory.key, memory.address});
}

bool EndpointTransport::flushed(Link link) const {
  const auto found = links_.find(link);
  return found == links_.end() || found->second.unfinished == 0;
}

void EndpointTransport::close(Link link) {
  const auto found = links_.find(link);
  if (found == links_.end() || found->second.closing) return;
  found->second.closing = true;
  std::erase_if(backlog_, [&](const api::WorkRequest& work) { return work.connection == link; });
  endpoint_->close(link);
}

// ---- in -----------------------------------------------------------------------------------------

void EndpointTransport::open_link(Link link) {
  LinkState& state = links_[link];
  const uint32_t streams = role_ == Role::kReceiver ? kDataStreams : 0;
  state.memory.resize(kControlBuffers * kMaxControlBytes +
                      size_t{streams} * kDataBuffers * kMaxDataMessageBytes);
  std::byte* at = state.memory.data();
  const auto add = [&](uint16_t stream, uint32_t length) {
    receives_.push_back({link, stream, at, length});
    at += length;
    post_receive(receives_.size() - 1);
  };
  for (uint32_t i = 0; i < kControlBuffers; ++i) {
    add(kControlStream, static_cast<uint32_t>(kMaxControlBytes));
  }
  for (uint16_t stream = 1; stream <= streams; ++stream) {
    for (uint32_t i = 0; i < kDataBuffers; ++i) {
      add(stream, static_cast<uint32_t>(kMaxDataMessageBytes));
    }
  }
}

void EndpointTransport::post_receive(uint64_t id) {
  const Receive& receive = receives_[id];
  engine::ReceiveRequest request;
  request.id = id | kReceiveBit;
  request.connection = receive.link;
  request.stream = receive.stream;
  request.buffer = receive.buffer;
  request.length = receive.length;
  Status status = Status::kOk;
  if (endpoint_->post_receive({&request, 1}, status) == 0 && status == Status::kFull) {
    receive_backlog_.push_back(id);
  }
}

void EndpointTransport::take_completion(const api::Completion& completion) {
  Event event;
  event.link = completion.connection;
  event.stream = completion.stream;
  event.status = completion.status;
  if ((completion.id & kReceiveBit) != 0) {
    const uint64_t id = completion.id & ~kReceiveBit;
    const Receive& receive = receives_[id];
    if (completion.status != Status::kOk || links_.count(receive.link) == 0) return;
    event.kind = EventKind::kMessage;
    event.message.assign(receive.buffer, receive.buffer + completion.bytes);
    events_.push_back(std::move(event));
    post_receive(id);
    return;
  }
  Request& request = requests_[completion.id];
  if (request.is_write) {
    event.kind = EventKind::kWritten;
    event.id = request.user_id;
    events_.push_back(std::move(event));
  }
  request = {};
  free_requests_.push_back(completion.id);
  const auto link = links_.find(completion.connection);
  if (link != links_.end()) --link->second.unfinished;
}

void EndpointTransport::take_connection_event(const api::ConnectionEvent& event) {
  Event out;
  out.link = event.connection;
  out.status = event.status;
  switch (event.kind) {
    case api::ConnectionEventKind::kAccepted:
      open_link(event.connection);
      out.kind = EventKind::kLinkUp;
      out.text = driver::to_string(event.peer);
      break;
    case api::ConnectionEventKind::kClosed:
    case api::ConnectionEventKind::kLost:
    case api::ConnectionEventKind::kFailed: {
      const auto found = links_.find(event.connection);
      if (found == links_.end()) return;
      // Flushed receives only name their entry; their memory is not touched any more.
      links_.erase(found);
      std::erase_if(backlog_,
                    [&](const api::WorkRequest& w) { return w.connection == event.connection; });
      out.kind = EventKind::kLinkDown;
      out.text = api::describe_loss(event, death_timeout_);
      break;
    }
    default:
      return;
  }
  events_.push_back(std::move(out));
}

bool EndpointTransport::next(Event& event) {
  if (events_.empty()) {
    const size_t n = take_news(
        *endpoint_, [this](const api::ConnectionEvent& event) { take_connection_event(event); },
        [this](std::span<const api::Completion> done) {
          for (const api::Completion& c : done) take_completion(c);
        });
    if (n != 0) drain_backlog();
    const Time now = driver::now();
    if (now >= next_sample_) sample_now(now);
  }
  if (events_.empty()) return false;
  event = std::move(events_.front());
  events_.pop_front();
  return true;
}

void EndpointTransport::wait(Duration timeout) {
  if (!events_.empty()) return;
  const Time now = driver::now();
  if (now >= next_sample_) sample_now(now);
  if (next_sample_ != kNever && next_sample_ - now < timeout) timeout = next_sample_ - now;
  endpoint_->wait(timeout);
}

// ---- figures ------------------------------------------------------------------------------------

void EndpointTransport::sample_now(Time now) {
  Sample sample;
  sample.when = now;
  sample.bytes = samples_.empty() ? 0 : samples_.back().bytes;
  sample.lost = endpoint_->rx_tally().lost() + endpoint_->tx_tally().lost();
  if (!links_.empty()) {
    api::ConnectionStatus status;
    if (endpoint_->connection_status(links_.begin()->first, status)) {
      sample.bytes =
          role_ == Role::kReceiver ? status.counters.bytes_received : status.counters.bytes_sent;
    }
  }
  samples_.push_back(sample);
  next_sample_ = now + interval_;
}

void EndpointTransport::note_end(Link link) {
  LinkFigures figures;
  if (!endpoint_->connection_status(link, figures.connection)) return;
  figures.paths.resize(kMaxPaths);
  figures.paths.resize(endpoint_->path_status(link, figures.paths));
  figures_ = std::move(figures);
}

}  // namespace metaroce::tool
