// Many connections behind one face: demultiplexing, batching, deadlines. Included by engine.cpp.
#pragma once

#include "base/deadline_heap.h"
#include "base/flat_map.h"
#include "connection/connection.h"
#include "engine/engine.h"
#include "engine/listener.h"

namespace metaroce::engine {

using connection::Connection;
using connection::ConnectionState;
using connection::Shared;
using wire::DropReason;
using wire::PacketType;

inline constexpr Duration kUnknownInterval = milliseconds(10);  // MR-CONN-021: at most 100 a second
inline constexpr uint32_t kMaxReplies = 256;

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
        done_(config_.settings.max_connections),
        is_done_(config_.settings.max_connections, false),
        by_nonce_(config_.settings.max_connections),
        stage_(config_.settings.max_connections, Stage::kOther),
        cookies_(rng.fork("cookie"), nanoseconds(config_.settings.cookie_life)),
        half_open_(config_.settings.max_half_open),
        past_(std::clamp(config_.settings.max_connections, 64u, 4096u)) {
    shared_.next_port = config_.first_source_port;
    shared_.versions = config_.versions;
    shared_.sends.memory = config_.memory;
    shared_.security = config_.security;
    shared_.telemetry.set_sink(config_.events);
  }

  // --- packets in ---

  size_t on_packets(Time now, std::span<const RxPacket> packets, std::span<Placement> placements) {
    MR_ASSERT(placements.size() >= packets.size());
    execute_atomics();
    called_at_ = now;
    size_t placed = 0;
    Connection* running = nullptr;
    bool sealed = false;  // what its packets have to be
    shared_.telemetry.set_time(now);
    shared_.counters.rx_datagrams += packets.size();
    for (size_t i = 0; i < packets.size(); ++i) {
      if (running != nullptr) {
        if (packets[i].sealed == sealed && running->continue_run(packets[i], placements[placed])) {
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
      // It was looked at before an ACCEPT of the same batch brought the keys (MR-SEC-003).
      if (c->secured() != packets[i].sealed && common->type <= PacketType::kAckWideRefused) {
        shared_.drop(DropReason::kBadTag);
        continue;
      }
      if (packets[i].sealed) c->on_sealed_confirm(now, packets[i]);
      if (dispatch(now, *c, *common, packets[i], placements[placed])) {
        placements[placed++].packet = static_cast<uint32_t>(i);
      }
      // Whoever is not the peer must not tell by the answers which ids are in use.
      if (shared_.counters.rx_dropped != dropped && !c->knows(packets[i].from)) {
        answer_unknown(now, common->type, packets[i]);
      }
      if (common->type > PacketType::kAckWideRefused) count_setup(dropped);
      touch(c->handle() >> 16);
      if (c->in_run()) {
        running = c;
        sealed = c->secured();
      }
    }
    if (running != nullptr) running->end_run(now);
    settle_touched();
    tell_low_queues();
    return placed;
  }

  Opening open(Time now, std::span<std::byte> datagram, const SocketAddress& from, uint8_t plane,
               size_t& body) {
    if (datagram.size() < wire::kCommonBytes) return Opening::kPlain;
    const auto type = static_cast<uint8_t>(datagram[0]);  // of version 0
    if (type == 0 || type > static_cast<uint8_t>(PacketType::kAckWideRefused)) {
      return Opening::kPlain;
    }
    Connection* c = find(wire::load32(datagram.data() + 4));
    if (c == nullptr || !c->secured()) return Opening::kPlain;
    shared_.telemetry.set_time(now);
    const DropReason reason = c->open_sealed(now, datagram, body);
    if (reason == DropReason::kNone) return Opening::kOpened;
    ++shared_.counters.rx_datagrams;
    shared_.drop(reason);  // MR-SEC-003
    if (!c->knows(from)) {
      // As to somebody who hit no connection: answers must not tell which ids are in use.
      answer_unknown(now, static_cast<PacketType>(type), {datagram, Ecn::kNotEct, plane, from});
    }
    return Opening::kDropped;
  }

  /// MR-CONN-023, MR-CONN-014: what spec/states.toml says of sequenced packets and ACKs.
  DropReason gate(const Connection& c, PacketType type) const {
    if (type > PacketType::kAckWideRefused) return DropReason::kNone;
    switch (c.state()) {
      case ConnectionState::kOpen:
      case ConnectionState::kClosing:
        break;
      case ConnectionState::kTimeWait:
        // It answers copies, and asks nothing more itself.
        if (type >= PacketType::kAck || type == PacketType::kProbe) return DropReason::kNoState;
        break;
      case ConnectionState::kAccepting:
        return DropReason::kNotConfirmed;
      default:
        return DropReason::kNoState;
    }
    // Wide ACKs are only sent to who announced them, and this engine does not.
    return type >= PacketType::kAckWide ? DropReason::kNoState : DropReason::kNone;
  }

  bool dispatch(Time now, Connection& c, const wire::Common& common, const RxPacket& rx,
                Placement& placement) {
    const DropReason closed = gate(c, common.type);
    if (closed != DropReason::kNone) {
      if (closed == DropReason::kNotConfirmed) c.repeat_accept(rx.bytes.size());
      shared_.drop(closed);
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
        return on_accept(now, c, rx);
      case PacketType::kConfirm:
        return on_setup(now, c, wire::decode_confirm(rx.bytes), &Connection::on_confirm, rx);
      case PacketType::kCookie:
        return on_setup(now, c, wire::decode_cookie(rx.bytes), &Connection::on_cookie, rx);
      case PacketType::kRefuse:
        return on_setup(now, c, wire::decode_refuse(rx.bytes), &Connection::on_refuse, rx);
      default:
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

  bool on_accept(Time now, Connection& c, const RxPacket& rx) {
    const auto accept = wire::decode_hello(rx.bytes);
    wire::HelloHead head;
    if (!accept && accept.error() == DropReason::kBadTlv &&
        wire::decode_hello_head(rx.bytes, head) && head.unknown_tlv != 0) {
      c.on_foreign_accept(now, head);  // MR-CONN-016: the application is told
    }
    return on_setup(now, c, accept, &Connection::on_accept, rx);
  }

  // --- packets of no connection ---

  void on_outside(Time now, const wire::Common& common, const RxPacket& rx) {
    switch (common.type) {
      case PacketType::kHello:
        return on_hello(now, rx);
      case PacketType::kHostProbe:
        return on_host_probe(now, rx);
      case PacketType::kUnknownConnection: {
        const auto packet = wire::decode_unknown_connection(rx.bytes);
        if (!packet) return shared_.drop(packet.error());
        // It echoes the id that the peer used; which of our connections speaks to it?
        bool ours = false;
        for (uint32_t i = 0; i < table_.size(); ++i) {
          if (table_[i] == nullptr || !table_[i]->on_unknown_connection(now, *packet)) continue;
          ours = true;
          touch(i);
        }
        if (!ours) shared_.drop(DropReason::kNoState);
        return;
      }
      default:
        shared_.drop(DropReason::kNoState);
    }
  }

  void on_host_probe(Time now, const RxPacket& rx) {
    const auto probe = wire::decode_host_probe(rx.bytes);
    if (!probe) return shared_.drop(probe.error());
    // MR-CONN-024: the same nonce, the same size, at most 100 a second for one source.
    if (!probe->asks || !host_probes_.allows(now, rx.from)) {
      return shared_.drop(DropReason::kNoState);
    }
    reply(rx, wire::HostProbePacket{false, probe->nonce});
  }

  void refuse(const RxPacket& rx, wire::SetupRefusal reason, uint8_t detail = 0) {
    wire::HelloHead head;
    if (!wire::decode_hello_head(rx.bytes, head)) return;
    wire::RefusePacket p;  // MR-CONN-019
    p.connection = head.own_connection;
    p.nonce = head.nonce;
    p.reason = static_cast<uint8_t>(reason);
    p.detail = detail;
    p.versions = shared_.versions;
    reply(rx, p);
  }

  void refuse_undecoded(const RxPacket& rx) {
    wire::HelloHead head;
    if (!wire::decode_hello_head(rx.bytes, head) || head.unknown_tlv == 0) return;
    refuse(rx, wire::SetupRefusal::kCriticalTlv, head.unknown_tlv);  // MR-CONN-016
  }

  void on_hello(Time now, const RxPacket& rx) {
    const auto hello = wire::decode_hello(rx.bytes);
    if (!hello) {
      shared_.drop(hello.error());
      if (hello.error() == DropReason::kBadTlv) refuse_undecoded(rx);
      return;
    }
    if ((hello->params.versions & shared_.versions) == 0) {  // MR-CONN-018
      shared_.drop(DropReason::kBadVersion);
      return refuse(rx, wire::SetupRefusal::kVersion);
    }
    const uint32_t known = by_nonce_.find(hello->nonce);
    if (known != FlatMap::kNone) {  // MR-CONN-004
      table_[known]->on_hello_again(now, *hello, rx);
      touch(known);
      return;
    }
    // Our own HELLO, sent back by somebody: when its answer is long there, or to make us take
    // ourselves for a peer that has our key (MR-SEC-014).
    const Connection* own = find(hello->own_connection);
    if (own != nullptr && own->nonce() == hello->nonce &&
        (own->state() != ConnectionState::kHelloSent ||
         (own->offers_security() && !is_ours(rx.from)))) {
      return shared_.drop(DropReason::kNoState);
    }
    if (past_.contains(now, hello->nonce)) return shared_.drop(DropReason::kNoState);
    if (!connection::is_worth_a_key(*hello, rx.bytes.size())) {  // MR-SEC-011, MR-WIRE-063
      return shared_.drop(DropReason::kBadField);
    }
    const connection::SecurePlan plan = connection::plan_security(shared_.security, *hello);
    if (plan.refusal != wire::SetupRefusal::kOther) {  // MR-SEC-007, MR-SEC-011: nothing is kept
      shared_.drop(DropReason::kNoState);
      return refuse(rx, plan.refusal);
    }
    if (attempts_ > 0 && on_crossing_hello(now, *hello, rx)) return;
    if (!config_.accept) {
      shared_.drop(DropReason::kNoState);
      return refuse(rx, wire::SetupRefusal::kNotListening);
    }
    open_half(now, *hello, rx);
  }

  /// As far as can be known: of a wildcard address only loopback.
  bool is_ours(const SocketAddress& address) const {
    if (address.is_loopback()) return true;
    return std::any_of(shared_.local.begin(), shared_.local.end(),
                       [&](const SocketAddress& a) { return a.same_host(address); });
  }

  /// MR-CONN-009: we ask the one who asks us. True when the HELLO is dealt with.
  bool on_crossing_hello(Time now, const wire::HelloPacket& hello, const RxPacket& rx) {
    Connection* lowest = nullptr;
    for (const auto& c : table_) {
      if (c == nullptr || c->state() != ConnectionState::kHelloSent || !c->knows(rx.from)) continue;
      if (!c->asks(rx.from) || !c->may_yield_to(hello)) continue;
      if (c->handle() == hello.own_connection && c->nonce() == hello.nonce) return false;  // ours
      if (lowest == nullptr || c->nonce() < lowest->nonce()) lowest = c.get();
    }
    if (lowest == nullptr) return false;
    touch(lowest->handle() >> 16);
    if (lowest->nonce() > hello.nonce) {
      by_nonce_.insert(hello.nonce, lowest->handle() >> 16);
      lowest->yield_to(now, hello, rx);
      return true;
    }
    shared_.drop(DropReason::kNoState);
    if (lowest->nonce() == hello.nonce) lowest->ask_anew(now);
    return true;
  }

  void open_half(Time now, const wire::HelloPacket& hello, const RxPacket& rx) {
    const uint32_t half = (static_cast<uint32_t>(table_.size()) + 1) / 2;
    const bool proven =
        hello.params.has_cookie && cookies_.check(now, rx.from, hello.nonce, hello.params.cookie);
    if (!proven) {  // MR-CONN-007: nothing is kept for a HELLO that is answered by COOKIE
      half_open_.prune([this](uint32_t handle) {
        const Connection* c = find(handle);
        return c != nullptr && c->state() == ConnectionState::kAccepting;
      });
      const Settings& s = shared_.settings;
      // Half of the places for handshakes are for those who return a cookie.
      if (half_open_.size() >= std::min(s.max_half_open, std::max(half / 2, 1u)) ||
          half_open_.of(rx.from) >= s.max_half_open_source) {
        return reply(rx, wire::CookiePacket{hello.own_connection, hello.nonce,
                                            cookies_.make(now, rx.from, hello.nonce)});
      }
    }
    // What is open, and our own attempts, must find room beside those who only ask.
    Connection* c = accepting_ < half ? create() : nullptr;
    if (c == nullptr) {
      shared_.drop(DropReason::kTableFull);
      return refuse(rx, wire::SetupRefusal::kNoRoom);
    }
    const uint32_t index = c->handle() >> 16;
    by_nonce_.insert(hello.nonce, index);
    if (!proven) half_open_.add(c->handle(), rx.from);
    c->start_accept(now, hello, rx, proven);
    note_stage(*c);
    touch(index);
  }

  void on_unknown(Time now, const wire::Common& common, const RxPacket& rx) {
    shared_.drop(DropReason::kUnknownConnection);
    answer_unknown(now, common.type, rx);
  }

  void answer_unknown(Time now, PacketType type, const RxPacket& rx) {
    // MR-CONN-021: only to packets that a live peer would want answered, and not often.
    if (type > PacketType::kVoid || rx.bytes.size() < 32) return;
    if (now - last_unknown_ < kUnknownInterval) return;
    last_unknown_ = now;
    wire::UnknownConnectionPacket unknown;
    unknown.word1 = wire::load32(rx.bytes.data() + 4);
    unknown.word2 = wire::load32(rx.bytes.data() + 8);
    reply(rx, unknown);
  }

  /// Nothing is kept of it but a place in a queue of fixed size; who got no answer asks again.
  template <class Packet>
  void reply(const RxPacket& rx, const Packet& packet) {
    Reply r;
    r.to = rx.from;
    r.plane = rx.plane;
    r.length = static_cast<uint8_t>(wire::encode(packet, r.bytes.data()));
    MR_DASSERT(r.length <= rx.bytes.size());  // MR-CONN-006
    replies_.push(r);
  }

  // --- packets out ---

  size_t poll_transmit(Time now, std::span<TxRun> runs) {
    size_t used = 0;
    shared_.telemetry.set_time(now);
    execute_atomics();
    shared_.sends.gather().clear();
    for (; !replies_.empty() && used < runs.size(); replies_.pop()) {
      send_reply(replies_.front(), runs[used++]);
    }
    const uint32_t turns = ready_.size();
    for (uint32_t i = 0; i < turns && used < runs.size(); ++i) {
      const uint32_t index = ready_.front();
      ready_.pop();
      is_ready_[index] = false;
      Connection* c = table_[index].get();
      if (c == nullptr) continue;
      const std::span<TxRun> rest = runs.subspan(used);
      c->renew_key(now);
      const size_t n = c->transmit(now, rest);
      c->count_sealed(rest.first(n));
      used += n;
      note_done(index);
      // It may have more; scattered payloads may have used up their space.
      const bool scarce = shared_.sends.gather().scarce();
      if (n == rest.size() || scarce) make_ready(index);
      c->update_deadline(now);
      deadlines_.set(index, c->deadline());
      if (scarce) break;  // the others come first in the next call, with all the space
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

  void send_reply(const Reply& reply, TxRun& run) {
    run.from = shared_.local[reply.plane];
    run.to = reply.to;
    run.plane = reply.plane;
    run.path = 0xFF;
    run.count = 1;
    run.trailer = wire::kCrcBytes;
    run.session = nullptr;
    run.ecn = Ecn::kNotEct;
    run.is_data = false;
    run.needs_df = false;
    run.connection = 0;
    run.header_length[0] = reply.length;
    run.payload_length[0] = 0;
    run.payload[0] = nullptr;
    std::copy_n(reply.bytes.begin(), reply.length, run.headers);
  }

  // --- time ---

  void on_deadline(Time now) {
    execute_atomics();
    called_at_ = now;
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
    return ready_.empty() && replies_.empty() && shared_.atomics.empty() ? deadlines_.earliest()
                                                                         : Time{0};
  }

  // --- receives of several connections, atomics ---

  Status post_shared(const ReceiveRequest& request) {
    const Status status = shared_.receives.post_shared(request);
    if (status != Status::kOk) return status;
    // One stream for each receive: more would be refused again.
    connection::ConnectionHandle handle = 0;
    uint16_t stream = 0;
    if (!shared_.receives.take_starved(request.shared_queue, handle, stream)) return status;
    Connection* c = find(handle);
    if (c == nullptr) return status;
    c->on_queue_filled(stream);
    touch(handle >> 16);
    return status;
  }

  /// What was placed before them is placed now: every call that shows or sends anything begins so.
  void execute_atomics() {
    if (shared_.atomics.empty()) return;
    while (!shared_.atomics.empty()) {
      const uint32_t handle = shared_.atomics.front();
      shared_.atomics.pop();
      Connection* c = find(handle);
      if (c == nullptr) continue;
      c->execute_atomics();
      touch(handle >> 16);
    }
    settle_touched();
  }

  void tell_low_queues() {
    for (uint32_t id = shared_.receives.take_low(); id != 0; id = shared_.receives.take_low()) {
      ConnectionEvent e;
      e.kind = connection::ConnectionEventKind::kQueueLow;
      e.detail = id;
      if (shared_.events.full()) shared_.events.pop();
      shared_.events.push(e);
    }
  }

  // --- tables ---

  Connection* find(uint32_t id) {
    const uint32_t index = id >> 16;
    if (index >= table_.size() || table_[index] == nullptr) return nullptr;
    return table_[index]->handle() == id ? table_[index].get() : nullptr;  // MR-SEC-001
  }
  const Connection* find(uint32_t id) const { return const_cast<Impl*>(this)->find(id); }

  Connection* create() {
    if (used_ == table_.size()) return nullptr;
    for (uint32_t n = 0; n < table_.size(); ++n) {
      const uint32_t index = (next_index_ + n) % static_cast<uint32_t>(table_.size());
      if (table_[index] != nullptr) continue;
      next_index_ = index + 1;
      ++used_;
      // MR-CONN-032: fresh random bits whenever an index is used again; never 0 as a whole.
      const auto random = static_cast<uint32_t>(1 + ids_.below(0xFFFF));  // MR-WIRE-009
      ++shared_.counters.connections_opened;
      table_[index] = std::make_unique<Connection>(shared_, (index << 16) | random);
      return table_[index].get();
    }
    return nullptr;
  }

  /// Counts the connections that are being set up; to be called after each change of a state.
  void note_stage(const Connection& c) {
    Stage& known = stage_[c.handle() >> 16];
    Stage now = Stage::kOther;
    if (c.state() == ConnectionState::kAccepting) now = Stage::kAccepting;
    if (c.state() == ConnectionState::kHelloSent) now = Stage::kAsking;
    if (now == known) return;
    accepting_ -= known == Stage::kAccepting;
    attempts_ -= known == Stage::kAsking;
    accepting_ += now == Stage::kAccepting;
    attempts_ += now == Stage::kAsking;
    known = now;
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
      note_stage(c);
      note_done(index);
      if (c.state() == ConnectionState::kDead) {
        if (c.is_responder()) past_.add(called_at_, c.peer_nonce());
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
    if (c.is_responder()) by_nonce_.erase(c.peer_nonce());
    table_[index].reset();
    --used_;
  }

  size_t poll_completions(std::span<Completion> out) {
    execute_atomics();
    size_t n = 0;
    while (n < out.size() && !leftovers_.empty()) {
      out[n++] = leftovers_.front();
      leftovers_.pop();
    }
    for (uint32_t turns = done_.size(); turns > 0 && n < out.size(); --turns) {
      const uint32_t index = done_.front();
      done_.pop();
      is_done_[index] = false;
      Connection* c = table_[index].get();
      if (c == nullptr) continue;
      n += c->poll(out.subspan(n));
      note_done(index);
      if (c->state() == ConnectionState::kDead && !c->has_completions()) remove(index);
    }
    return n;
  }

  /// Who may have completions is asked for them in turn, and nobody else.
  void note_done(uint32_t index) {
    if (is_done_[index] || !table_[index]->has_completions()) return;
    is_done_[index] = true;
    done_.push(index);
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
  Ring<uint32_t> done_;  ///< connections that may have completions
  std::vector<bool> is_done_;
  FlatMap by_nonce_;
  Ring<Completion> leftovers_{4096};
  uint32_t next_index_ = 0;
  enum class Stage : uint8_t { kOther, kAsking, kAccepting };
  std::vector<Stage> stage_;
  Time called_at_{0};  ///< of the newest on_packets or on_deadline
  uint32_t used_ = 0;
  uint32_t attempts_ = 0;
  uint32_t accepting_ = 0;
  Cookies cookies_;
  HalfOpenList half_open_;
  PastNonces past_;
  SourceLimit host_probes_{kUnknownInterval};
  Ring<Reply> replies_{kMaxReplies};
  Time last_unknown_{-(1ll << 60)};
};

}  // namespace metaroce::engine
