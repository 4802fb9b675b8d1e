// Many connections behind one face: demultiplexing, batching, deadlines.
#include "engine/engine.h"

#include "base/deadline_heap.h"
#include "base/flat_map.h"
#include "connection/connection.h"

namespace metaroce::engine {

using connection::Connection;
using connection::ConnectionState;
using connection::Shared;
using wire::DropReason;
using wire::PacketType;

namespace {

// A HELLO flood must not fill the table; COOKIE takes over beyond it (MR-CONN-007).
constexpr uint32_t kMaxHalfOpen = 64;
constexpr Duration kUnknownInterval = milliseconds(10);  // MR-CONN-021: at most 100 a second

}  // namespace

class Engine::Impl {
 public:
  Impl(EngineConfig config, Rng rng)
      : config_(std::move(config)),
        shared_(config_.settings, config_.local, config_.plane_mtu, rng.fork("engine")),
        ids_(rng.fork("ids")),
        table_(config_.settings.max_connections),
        deadlines_(config_.settings.max_connections),
        ready_(config_.settings.max_connections + 1),
        is_ready_(config_.settings.max_connections, false),
        touched_(config_.settings.max_connections),
        is_touched_(config_.settings.max_connections, false),
        by_nonce_(config_.settings.max_connections) {
    shared_.next_port = config_.first_source_port;
    shared_.telemetry.set_sink(config_.events);
  }

  // --- packets in ---

  size_t on_packets(Time now, std::span<const RxPacket> packets, std::span<Placement> placements) {
    MR_ASSERT(placements.size() >= packets.size());
    size_t placed = 0;
    Connection* running = nullptr;
    shared_.telemetry.set_time(now);
    shared_.counters.rx_datagrams += packets.size();
    for (size_t i = 0; i < packets.size(); ++i) {
      if (running != nullptr) {
        if (running->continue_run(packets[i], placements[placed])) {
          placements[placed++].packet = static_cast<uint32_t>(i);
          continue;
        }
        running->end_run(now);
        running = nullptr;
      }
      const auto common = wire::decode_common(packets[i].bytes);
      if (!common) {
        shared_.drop(common.error());
        continue;
      }
      const uint64_t dropped = shared_.counters.rx_dropped;
      if (common->connection == 0 || common->type == PacketType::kUnknownConnection) {
        on_outside(now, *common, packets[i]);
        count_setup(dropped);
        continue;
      }
      Connection* c = find(common->connection);
      if (c == nullptr) {
        on_unknown(now, *common, packets[i]);
        continue;
      }
      if (dispatch(now, *c, *common, packets[i], placements[placed])) {
        placements[placed++].packet = static_cast<uint32_t>(i);
      }
      if (common->type > PacketType::kAckWideRefused) count_setup(dropped);
      touch(c->handle() >> 16);
      if (c->in_run()) running = c;
    }
    if (running != nullptr) running->end_run(now);
    settle_touched();
    return placed;
  }

  bool dispatch(Time now, Connection& c, const wire::Common& common, const RxPacket& rx,
                Placement& placement) {
    const bool set_up = c.state() == ConnectionState::kOpen ||
                        c.state() == ConnectionState::kClosing ||
                        c.state() == ConnectionState::kTimeWait;
    if (common.type <= PacketType::kAckWideRefused && !set_up) {
      c.repeat_accept();
      shared_.drop(c.state() == ConnectionState::kAccepting ? DropReason::kNotConfirmed
                                                            : DropReason::kNoState);
      return false;
    }
    switch (common.type) {
      case PacketType::kData:
        return c.on_data(now, rx, placement);
      case PacketType::kControl:
        c.on_control(now, rx);
        return false;
      case PacketType::kProbe:
        c.on_probe(now, rx);
        return false;
      case PacketType::kVoid:
        c.on_void(now, rx);
        return false;
      case PacketType::kAck:
      case PacketType::kAckLong:
        c.on_ack(now, rx);
        return false;
      case PacketType::kAccept:
        return on_setup(now, c, wire::decode_hello(rx.bytes), &Connection::on_accept, rx);
      case PacketType::kConfirm:
        return on_setup(now, c, wire::decode_confirm(rx.bytes), &Connection::on_confirm, rx);
      case PacketType::kCookie: {
        const auto cookie = wire::decode_cookie(rx.bytes);
        if (cookie) {
          c.on_cookie(now, *cookie);
        } else {
          shared_.drop(cookie.error());
        }
        return false;
      }
      default:
        // Wide ACKs are only sent to who announced them, and this engine does not.
        shared_.drop(DropReason::kNoState);
        return false;
    }
  }

  /// A packet of the set-up was dropped, or taken.
  void count_setup(uint64_t dropped_before) {
    shared_.counters.rx_setup += shared_.counters.rx_dropped == dropped_before;
  }

  template <class Packet>
  bool on_setup(Time now, Connection& c, const wire::Decoded<Packet>& packet,
                void (Connection::*handler)(Time, const Packet&, const RxPacket&),
                const RxPacket& rx) {
    if (packet) {
      (c.*handler)(now, *packet, rx);
    } else {
      shared_.drop(packet.error());
    }
    return false;
  }

  void on_outside(Time now, const wire::Common& common, const RxPacket& rx) {
    if (common.type == PacketType::kHello) return on_hello(now, rx);
    if (common.type == PacketType::kUnknownConnection) {
      const auto packet = wire::decode_unknown_connection(rx.bytes);
      if (!packet) return shared_.drop(packet.error());
      // It echoes the id that the peer used; which of our connections speaks to it?
      for (uint32_t i = 0; i < table_.size(); ++i) {
        if (table_[i] == nullptr) continue;
        if (table_[i]->on_unknown_connection(now, *packet)) touch(i);
      }
      return;
    }
    shared_.drop(DropReason::kNoState);
  }

  void on_hello(Time now, const RxPacket& rx) {
    const auto hello = wire::decode_hello(rx.bytes);
    if (!hello) return shared_.drop(hello.error());
    if (!config_.accept) return shared_.drop(DropReason::kNoState);
    // MR-CONN-018
    if ((hello->params.versions & 1) == 0) return shared_.drop(DropReason::kBadVersion);
    const uint32_t known = by_nonce_.find(hello->nonce);
    if (known != FlatMap::kNone) {  // MR-CONN-004
      table_[known]->on_hello_again(now, rx);
      touch(known);
      return;
    }
    if (half_open() >= std::min<size_t>(kMaxHalfOpen, (table_.size() + 1) / 2))
      return shared_.drop(DropReason::kTableFull);
    Connection* c = create();
    if (c == nullptr) return shared_.drop(DropReason::kTableFull);
    const uint32_t index = c->handle() >> 16;
    by_nonce_.insert(hello->nonce, index);
    c->start_accept(now, *hello, rx);
    touch(index);
  }

  void on_unknown(Time now, const wire::Common& common, const RxPacket& rx) {
    shared_.drop(DropReason::kUnknownConnection);
    // MR-CONN-021: only to packets that a live peer would want answered, and not often.
    if (common.type > PacketType::kVoid || rx.bytes.size() < 32) return;
    if (now - last_unknown_ < kUnknownInterval || unknown_pending_) return;
    last_unknown_ = now;
    unknown_pending_ = true;
    unknown_to_ = rx.from;
    unknown_plane_ = rx.plane;
    unknown_.word1 = wire::load32(rx.bytes.data() + 4);
    unknown_.word2 = wire::load32(rx.bytes.data() + 8);
  }

  // --- packets out ---

  size_t poll_transmit(Time now, std::span<TxRun> runs) {
    size_t used = 0;
    shared_.telemetry.set_time(now);
    if (unknown_pending_ && used < runs.size()) send_unknown(runs[used++]);
    const uint32_t turns = ready_.size();
    for (uint32_t i = 0; i < turns && used < runs.size(); ++i) {
      const uint32_t index = ready_.front();
      ready_.pop();
      is_ready_[index] = false;
      Connection* c = table_[index].get();
      if (c == nullptr) continue;
      const std::span<TxRun> rest = runs.subspan(used);
      const size_t n = c->transmit(now, rest);
      used += n;
      if (n == rest.size()) make_ready(index);  // it may have more
      c->update_deadline(now);
      deadlines_.set(index, c->deadline());
    }
    count_sent(runs.first(used));
    return used;
  }

  void count_sent(std::span<const TxRun> runs) {  // MR-TEL-018
    for (const TxRun& run : runs) {
      shared_.counters.tx_datagrams += run.count;
      const auto type = std::to_integer<uint8_t>(run.headers[0]) & 0x3F;
      if (type > static_cast<int>(PacketType::kAckWideRefused)) {
        shared_.counters.tx_setup += run.count;
      }
    }
  }

  void send_unknown(TxRun& run) {
    unknown_pending_ = false;
    run.from = shared_.local[unknown_plane_];
    run.to = unknown_to_;
    run.plane = unknown_plane_;
    run.path = 0xFF;
    run.count = 1;
    run.trailer = wire::kCrcBytes;
    run.ecn = Ecn::kNotEct;
    run.is_data = false;
    run.needs_df = false;
    run.connection = 0;
    run.header_length[0] = static_cast<uint16_t>(wire::encode(unknown_, run.headers));
    run.payload_length[0] = 0;
    run.payload[0] = nullptr;
  }

  // --- time ---

  void on_deadline(Time now) {
    shared_.telemetry.set_time(now);
    while (!deadlines_.empty() && deadlines_.earliest() <= now) {
      const uint32_t index = deadlines_.earliest_index();
      Connection& c = *table_[index];
      deadlines_.set(index, kNever);
      c.on_deadline(now);
      touch(index);
    }
    settle_touched();
  }

  Time next_deadline() const {
    return ready_.empty() && !unknown_pending_ ? deadlines_.earliest() : Time{0};
  }

  // --- tables ---

  Connection* find(uint32_t id) {
    const uint32_t index = id >> 16;
    if (index >= table_.size() || table_[index] == nullptr) return nullptr;
    return table_[index]->handle() == id ? table_[index].get() : nullptr;  // MR-SEC-001
  }
  const Connection* find(uint32_t id) const { return const_cast<Impl*>(this)->find(id); }

  Connection* create() {
    for (uint32_t n = 0; n < table_.size(); ++n) {
      const uint32_t index = (next_index_ + n) % static_cast<uint32_t>(table_.size());
      if (table_[index] != nullptr) continue;
      next_index_ = index + 1;
      // MR-CONN-032: fresh random bits whenever an index is used again; never 0 as a whole.
      const auto random = static_cast<uint32_t>(1 + ids_.below(0xFFFF));  // MR-WIRE-009
      ++shared_.counters.connections_opened;
      table_[index] = std::make_unique<Connection>(shared_, (index << 16) | random);
      return table_[index].get();
    }
    return nullptr;
  }

  uint32_t half_open() const {
    uint32_t n = 0;
    for (const auto& c : table_) n += c != nullptr && c->state() == ConnectionState::kAccepting;
    return n;
  }

  void touch(uint32_t index) {
    if (is_touched_[index]) return;
    is_touched_[index] = true;
    touched_.push(index);
  }

  void make_ready(uint32_t index) {
    if (is_ready_[index]) return;
    is_ready_[index] = true;
    ready_.push(index);
  }

  void settle_touched() {
    while (!touched_.empty()) {
      const uint32_t index = touched_.front();
      touched_.pop();
      is_touched_[index] = false;
      Connection& c = *table_[index];
      if (c.state() == ConnectionState::kDead) {
        remove(index);
        continue;
      }
      // Its deadline is computed when it was asked for packets: until then next_deadline() is
      // "now".
      make_ready(index);
    }
  }

  void remove(uint32_t index) {
    Connection& c = *table_[index];
    deadlines_.set(index, kNever);
    // Completions that nobody polled yet outlive the connection. When they do not all fit, it
    // stays until poll_completions has taken the rest.
    Completion done[16];
    for (size_t n = c.has_completions() ? 1 : 0; n > 0;) {
      if (leftovers_.capacity() - leftovers_.size() < std::size(done)) return;
      n = c.poll(done);
      for (size_t i = 0; i < n; ++i) leftovers_.push(done[i]);
    }
    c.add_counters(shared_.gone_paths, shared_.gone_connections);
    ++shared_.counters.connections_gone;
    by_nonce_.erase(c.peer_nonce());
    table_[index].reset();
  }

  size_t poll_completions(std::span<Completion> out) {
    size_t n = 0;
    while (n < out.size() && !leftovers_.empty()) {
      out[n++] = leftovers_.front();
      leftovers_.pop();
    }
    const auto size = static_cast<uint32_t>(table_.size());
    for (uint32_t i = 0; i < size && n < out.size(); ++i) {
      const uint32_t index = (next_poll_ + i) % size;
      Connection* c = table_[index].get();
      if (c == nullptr || !c->has_completions()) continue;
      n += c->poll(out.subspan(n));
      if (c->state() == ConnectionState::kDead && !c->has_completions()) remove(index);
    }
    next_poll_ = (next_poll_ + 1) % size;
    return n;
  }

  size_t poll_events(std::span<ConnectionEvent> out) {
    size_t n = 0;
    while (n < out.size() && !shared_.events.empty()) {
      out[n++] = shared_.events.front();
      shared_.events.pop();
    }
    return n;
  }

  size_t poll_path_events(std::span<PathEvent> out) {
    size_t n = 0;
    while (n < out.size() && !shared_.path_events.empty()) {
      out[n] = shared_.path_events.front();
      out[n++].missed = shared_.path_events_missed;
      shared_.path_events_missed = 0;
      shared_.path_events.pop();
    }
    return n;
  }

  EngineConfig config_;
  Shared shared_;
  Rng ids_;
  std::vector<std::unique_ptr<Connection>> table_;
  DeadlineHeap deadlines_;
  Ring<uint32_t> ready_;
  std::vector<bool> is_ready_;
  Ring<uint32_t> touched_;
  std::vector<bool> is_touched_;
  FlatMap by_nonce_;
  Ring<Completion> leftovers_{4096};
  uint32_t next_index_ = 0;
  uint32_t next_poll_ = 0;
  bool unknown_pending_ = false;
  uint8_t unknown_plane_ = 0;
  SocketAddress unknown_to_;
  wire::UnknownConnectionPacket unknown_;
  Time last_unknown_{-(1ll << 60)};
};

Engine::Engine(EngineConfig config, Rng rng)
    : impl_(std::make_unique<Impl>(std::move(config), rng)) {}
Engine::~Engine() = default;

size_t Engine::on_packets(Time now, std::span<const RxPacket> packets,
                          std::span<Placement> placements) {
  return impl_->on_packets(now, packets, placements);
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
size_t Engine::poll_path_events(std::span<PathEvent> out) {
  return impl_->poll_path_events(out);
}
memory::Regions& Engine::regions() { return impl_->shared_.regions; }

Expected<ConnectionHandle, Status> Engine::connect(Time now, const ConnectRequest& request) {
  impl_->shared_.telemetry.set_time(now);
  if (request.peer.empty() || request.peer[0].family == 0 || request.peer[0].port == 0) {
    return unexpected(Status::kInvalid);
  }
  Connection* c = impl_->create();
  if (c == nullptr) return unexpected(Status::kFull);
  c->start_connect(now, request.peer);
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
