// The face of the engine: what its users call, with the time it is told.
#include "engine/engine.h"

#include "engine/impl.h"

namespace metaroce::engine {

Expected<uint32_t, Status> Engine::create_shared_queue() {
  return impl_->shared_.receives.create_queue();
}
Status Engine::destroy_shared_queue(uint32_t queue) {
  return impl_->shared_.receives.destroy_queue(queue);
}
Status Engine::arm_shared_queue(uint32_t queue, uint32_t count) {
  const Status status = impl_->shared_.receives.arm_low(queue, count);
  impl_->tell_low_queues();
  return status;
}
uint32_t Engine::shared_queue_length(uint32_t queue) const {
  return impl_->shared_.receives.queue_length(queue);
}

Status Engine::set_stream_options(ConnectionHandle handle, uint16_t stream,
                                  const StreamOptions& options) {
  Connection* c = impl_->find(handle);
  return c == nullptr ? Status::kUnknownHandle : c->set_stream_options(stream, options);
}

Status Engine::reset_stream(Time now, ConnectionHandle handle, uint16_t stream) {
  impl_->shared_.telemetry.set_time(now);
  Connection* c = impl_->find(handle);
  if (c == nullptr) return Status::kUnknownHandle;
  const Status status = c->reset_stream(stream);
  impl_->touch(handle >> 16);
  impl_->settle_touched();
  return status;
}

Status Engine::drain_stream(Time now, ConnectionHandle handle, uint16_t stream) {
  impl_->shared_.telemetry.set_time(now);
  Connection* c = impl_->find(handle);
  if (c == nullptr) return Status::kUnknownHandle;
  const Status status = c->drain_stream(stream);
  impl_->touch(handle >> 16);
  impl_->settle_touched();
  return status;
}

Status Engine::reopen_stream(ConnectionHandle handle, uint16_t stream) {
  Connection* c = impl_->find(handle);
  if (c == nullptr) return Status::kUnknownHandle;
  return c->reopen_stream(stream) ? Status::kOk : Status::kFull;
}

Status Engine::set_domain(ConnectionHandle handle, memory::Domain domain) {
  Connection* c = impl_->find(handle);
  if (c == nullptr) return Status::kUnknownHandle;
  c->set_domain(domain);
  return Status::kOk;
}

Engine::Engine(EngineConfig config, Rng rng)
    : impl_(std::make_unique<Impl>(std::move(config), rng)) {}
Engine::~Engine() = default;

size_t Engine::on_packets(Time now, std::span<const RxPacket> packets,
                          std::span<Placement> placements) {
  return impl_->on_packets(now, packets, placements);
}
Opening Engine::open(Time now, std::span<std::byte> datagram, const SocketAddress& from,
                     uint8_t plane, size_t& body) {
  return impl_->open(now, datagram, from, plane, body);
}
size_t Engine::poll_transmit(Time now, std::span<TxRun> runs) {
  return impl_->poll_transmit(now, runs);
}
Time Engine::next_deadline() const { return impl_->next_deadline(); }
void Engine::on_deadline(Time now) { impl_->on_deadline(now); }

size_t Engine::post(Time now, std::span<const WorkRequest> requests, Status& status) {
  impl_->shared_.telemetry.set_time(now);
  status = Status::kOk;
  size_t n = 0;
  for (const WorkRequest& r : requests) {
    Connection* c = impl_->find(r.connection);
    status = c == nullptr ? Status::kUnknownHandle : c->post(r);
    if (status != Status::kOk) break;
    impl_->touch(r.connection >> 16);
    ++n;
  }
  impl_->settle_touched();
  return n;
}

size_t Engine::post_receives(Time now, std::span<const ReceiveRequest> requests, Status& status) {
  impl_->shared_.telemetry.set_time(now);
  status = Status::kOk;
  size_t n = 0;
  for (const ReceiveRequest& r : requests) {
    if (r.shared_queue != 0) {
      status = impl_->post_shared(r);
      if (status != Status::kOk) break;
      ++n;
      continue;
    }
    Connection* c = impl_->find(r.connection);
    status = c == nullptr ? Status::kUnknownHandle : c->post_receive(now, r);
    if (status != Status::kOk) break;
    impl_->touch(r.connection >> 16);
    ++n;
  }
  impl_->settle_touched();
  return n;
}

size_t Engine::poll_completions(std::span<Completion> out) { return impl_->poll_completions(out); }
size_t Engine::poll_events(std::span<ConnectionEvent> out) { return impl_->poll_events(out); }
size_t Engine::poll_path_events(std::span<PathEvent> out) { return impl_->poll_path_events(out); }
memory::Regions& Engine::regions() { return impl_->shared_.regions; }

Expected<ConnectionHandle, Status> Engine::connect(Time now, const ConnectRequest& request) {
  impl_->shared_.telemetry.set_time(now);
  if (request.peer.empty() || request.peer[0].family == 0 || request.peer[0].port == 0) {
    return unexpected(Status::kInvalid);
  }
  bool known = true;
  auto security = connection::choose_security(impl_->shared_.security, request.identity,
                                              request.peer_key, known);
  if (!known) return unexpected(Status::kInvalid);
  Connection* c = impl_->create();
  if (c == nullptr) return unexpected(Status::kFull);
  c->start_connect(now, request.peer, std::move(security));
  impl_->touch(c->handle() >> 16);
  impl_->settle_touched();
  return c->handle();
}

void Engine::close(Time now, ConnectionHandle handle, uint32_t code) {
  impl_->shared_.telemetry.set_time(now);
  Connection* c = impl_->find(handle);
  if (c == nullptr) return;
  c->close(now, code);
  impl_->touch(handle >> 16);
  impl_->settle_touched();
}

void Engine::on_network_hint(Time now, ConnectionHandle handle, uint8_t path, NetworkHint hint,
                             uint32_t value) {
  impl_->shared_.telemetry.set_time(now);
  Connection* c = impl_->find(handle);
  if (c == nullptr) return;
  c->on_network_hint(now, path, hint, value);
  impl_->touch(handle >> 16);
  impl_->settle_touched();
}

void Engine::on_plane_state(Time now, uint8_t plane, bool up) {
  impl_->shared_.telemetry.set_time(now);
  if (plane >= kMaxPlanes || impl_->shared_.plane_up[plane] == up) return;
  impl_->shared_.plane_up[plane] = up;
  for (uint32_t i = 0; i < impl_->table_.size(); ++i) {
    if (impl_->table_[i] == nullptr) continue;
    impl_->table_[i]->on_plane_state(now, plane, up);
    impl_->touch(i);
  }
  impl_->settle_touched();
}

void Engine::set_local_address(Time now, uint8_t plane, const SocketAddress& address) {
  if (plane >= impl_->shared_.local.size()) return;
  impl_->shared_.telemetry.set_time(now);
  SocketAddress& local = impl_->shared_.local[plane];
  if (address.family != 0 && address.family != local.family) return;  // peers asked for the other
  impl_->shared_.plane_up[plane] = address.family != 0;
  if (address.family != 0) {
    const uint16_t port = local.port;
    local = address;
    if (local.port == 0) local.port = port;
  }
  for (uint32_t i = 0; i < impl_->table_.size(); ++i) {
    if (impl_->table_[i] == nullptr) continue;
    impl_->table_[i]->on_local_address(now, plane, address.family != 0);
    impl_->touch(i);
  }
  impl_->settle_touched();
}

bool Engine::change_port(Time now, ConnectionHandle handle, uint8_t path, uint16_t port) {
  impl_->shared_.telemetry.set_time(now);
  Connection* c = impl_->find(handle);
  return c != nullptr && c->change_port(now, path, port);
}

bool Engine::connection_status(ConnectionHandle handle, ConnectionStatus& out) const {
  return connection_status(impl_->shared_.telemetry.now(), handle, out);
}

bool Engine::connection_status(Time now, ConnectionHandle handle, ConnectionStatus& out) const {
  const Connection* c = impl_->find(handle);
  if (c == nullptr) return false;
  c->fill_status(now, out);
  return true;
}

size_t Engine::connections(std::span<ConnectionHandle> out) const {
  size_t n = 0;
  for (const auto& c : impl_->table_) {
    if (c == nullptr) continue;
    if (n < out.size()) out[n] = c->handle();
    ++n;
  }
  return n;
}

EngineTotals Engine::totals() const {
  const connection::Shared& shared = impl_->shared_;
  EngineTotals sum{shared.counters, shared.gone_paths, shared.gone_connections};
  for (const auto& c : impl_->table_) {
    if (c != nullptr) c->add_counters(sum.paths, sum.connections);
  }
  return sum;
}

EngineMemory Engine::memory() const {
  EngineMemory m;
  for (const auto& c : impl_->table_) {
    if (c == nullptr) continue;
    ++m.connections;
    m.resting += c->resting();
    m.state_bytes += c->state_bytes();
    m.counter_bytes += c->counter_bytes();
  }
  m.awake_paths = impl_->shared_.paths.used();
  m.awake_paths_most = impl_->shared_.paths.touched();
  m.path_bytes = sizeof(connection::PathSlot);
  message::SendPools& sends = impl_->shared_.sends;
  message::ReceivePools& receives = impl_->shared_.receives;
  m.pools = {sends.posted, sends.responses, sends.parked, sends.retries().used(),
             sends.shared_claims, sends.copies().used(), sends.segments().used(),
             receives.segments().used(), receives.messages().used(), receives.receives().used()};
  return m;
}

size_t Engine::path_status(ConnectionHandle handle, std::span<PathStatus> out) const {
  const Connection* c = impl_->find(handle);
  return c == nullptr ? 0 : c->fill_path_status(out);
}

std::span<const uint64_t> Engine::drops() const { return impl_->shared_.drops; }

bool Engine::idle() const {
  for (const auto& c : impl_->table_) {
    if (c != nullptr && !c->idle()) return false;
  }
  return true;
}

uint64_t Engine::state_hash() const {
  uint64_t h = 0;
  for (const auto& c : impl_->table_) {
    if (c != nullptr) h = h * 0x100000001b3ull ^ c->hash();
  }
  return h;
}

}  // namespace metaroce::engine
