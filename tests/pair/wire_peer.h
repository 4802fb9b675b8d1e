// One engine and a peer made by hand: the test writes every packet the peer sends and reads every
// packet the engine sends, on the wire. For rules that say what a packet means, not how a whole
// transfer ends.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/siphash.h"
#include "engine/engine.h"
#include "tests/pair/network.h"
#include "tests/pair/pair.h"
#include "wire/minifloat.h"
#include "wire/packet.h"

namespace metaroce::pair {

class WirePeer {
 public:
  /// A packet that the engine sent.
  struct Sent {
    std::vector<std::byte> bytes;
    Time at;
    SocketAddress from, to;
    uint8_t plane = 0;
    Ecn ecn = Ecn::kNotEct;

    uint32_t word(size_t n) const { return wire::load32(bytes.data() + 4 * n); }
    wire::PacketType type() const { return wire::decode_common(bytes)->type; }
  };

  static constexpr uint32_t kId = 0x00051234;
  static constexpr uint32_t kPaths = 2;
  static constexpr uint32_t kStartSeq = 0xFFFFFFFA;
  static constexpr uint32_t kStartCpsn = 0xFFFFFFF0;

  static Settings small_settings() {
    Settings s = pair_settings();
    s.paths_per_plane = kPaths;
    s.max_connections = 80;
    s.keep_alive = 1'000'000'000;
    return s;
  }

  explicit WirePeer(Settings settings = small_settings(), uint32_t planes = 1, bool accept = true)
      : planes_(planes), engine_(config(settings, planes, accept), Rng(7)), memory_(1 << 16) {
    region_ = *engine_.regions().add_at(memory_.data(), memory_.size(),
                                        memory::access::kRemoteWrite, 0x10'0000);
    hello.own_connection = kId;
    hello.nonce = 0x1122334455667788;
    hello.start_seq = kStartSeq;
    hello.start_cpsn = kStartCpsn;
    hello.paths = kPaths;
    hello.params.pmtu = 1280;
    for (uint32_t p = 0; p < planes; ++p) {
      hello.params.planes[p] = plane_address(p, 1, wire::kBasePort);
    }
  }

  engine::Engine& engine() { return engine_; }
  memory::RegionInfo region() const { return region_; }
  std::byte* memory() { return memory_.data(); }
  uint64_t dropped(wire::DropReason r) const { return engine_.drops()[static_cast<size_t>(r)]; }
  uint32_t id() const { return engine_id_; }

  // --- packets ---

  template <class Packet>
  static std::vector<std::byte> bytes_of(const Packet& packet) {
    std::vector<std::byte> bytes(wire::kMaxHandshake);
    bytes.resize(wire::encode(packet, bytes.data()));
    return bytes;
  }
  /// Hands a packet to the engine; true when it asked for a placement, which is carried out.
  bool give(const std::vector<std::byte>& bytes, uint8_t plane = 0, Ecn ecn = Ecn::kEct0,
            uint16_t port = 50'000) {
    engine::RxPacket rx{bytes, ecn, plane, plane_address(plane, 1, port)};
    engine::Placement placement;
    const size_t n = engine_.on_packets(now, {&rx, 1}, {&placement, 1});
    if (n == 0) return false;
    placements.push_back(placement);
    std::copy_n(bytes.data() + placement.payload_begin, placement.length, placement.address);
    return true;
  }
  /// Hands several packets over in one call, as a driver does; placements are carried out.
  void give_together(const std::vector<std::vector<std::byte>>& all, Ecn ecn_of_last) {
    std::vector<engine::RxPacket> rx;
    for (const auto& bytes : all) {
      rx.push_back({bytes, Ecn::kEct0, 0, plane_address(0, 1, 50'000)});
    }
    rx.back().ecn = ecn_of_last;
    // As a driver's array: what an earlier call left in it must not matter.
    static const message::Segment stale[] = {{nullptr, 7}};
    std::vector<engine::Placement> to(all.size(), {.length = 3, .rest = stale, .first = 1});
    to.resize(engine_.on_packets(now, rx, to));
    for (const engine::Placement& p : to) {
      placements.push_back(p);
      std::copy_n(all[p.packet].data() + p.payload_begin, p.length, p.address);
    }
  }
  template <class Packet>
  bool give(const Packet& packet, uint8_t plane = 0) {
    return give(bytes_of(packet), plane);
  }

  /// What the engine sends now.
  std::vector<Sent> poll() {
    std::vector<Sent> out;
    std::vector<engine::TxRun> runs(4);
    for (size_t n = runs.size(); n == runs.size();) {
      n = engine_.poll_transmit(now, runs);
      for (size_t i = 0; i < n; ++i) collect(runs[i], out);
    }
    return out;
  }
  /// Lets time pass, deadline by deadline; gives what was sent meanwhile.
  std::vector<Sent> run(Duration duration) {
    const Time end = now + duration;
    std::vector<Sent> out = poll();
    while (engine_.next_deadline() <= end) {
      now = std::max(now, engine_.next_deadline());
      engine_.on_deadline(now);
      for (Sent& s : poll()) out.push_back(std::move(s));
    }
    now = end;
    return out;
  }
  template <class Packet>
  static std::vector<Packet> only(const std::vector<Sent>& all) {
    std::vector<Packet> out;
    for (const Sent& s : all) {
      const auto decoded = wire::decode(s.bytes);
      if (!decoded) continue;
      if (const auto* p = std::get_if<Packet>(&*decoded)) out.push_back(*p);
    }
    return out;
  }
  /// The newest ACK the engine sends for a path after the longest wait for one.
  wire::AckPacket ack(uint8_t path = 0) {
    wire::AckPacket last;
    for (const auto& a : only<wire::AckPacket>(run(microseconds(10)))) {
      if (a.f.path == path) last = a;
    }
    return last;
  }
  /// Events since the last call, without "all paths are open".
  std::vector<engine::ConnectionEvent> events() {
    std::vector<engine::ConnectionEvent> out(64);
    out.resize(engine_.poll_events(out));
    std::erase_if(out, [](const engine::ConnectionEvent& e) {
      return e.kind == engine::ConnectionEventKind::kPathsOpen;
    });
    return out;
  }
  std::vector<engine::Completion> completions() {
    std::vector<engine::Completion> out(64);
    out.resize(engine_.poll_completions(out));
    return out;
  }

  // --- set-up ---

  /// Plain-mode transcript MAC, written from MR-CONN-011.
  static uint64_t mac(const std::vector<std::byte>& hello_bytes,
                      const std::vector<std::byte>& accept_bytes) {
    const auto key = [](const std::vector<std::byte>& b) {
      uint64_t k = 0;
      for (size_t i = 0; i < 8; ++i) k |= static_cast<uint64_t>(b[12 + i]) << (8 * i);
      return k;
    };
    SipHash h(key(hello_bytes), key(accept_bytes));
    for (const auto* packet : {&hello_bytes, &accept_bytes}) {
      const size_t fixed = packet == &hello_bytes ? 32 : 40;
      const size_t tlvs = wire::load32(packet->data() + 28) & 0xFFFF;
      uint32_t hashed = 0;
      h.update(std::span(*packet).subspan(8, 20));
      for (size_t at = fixed; at < fixed + tlvs;) {
        const size_t size = (2 + std::to_integer<size_t>((*packet)[at + 1]) + 3) / 4 * 4;
        const bool cookie = (std::to_integer<uint8_t>((*packet)[at]) & 0x7F) == wire::tlv::kCookie;
        if (!cookie) h.update(std::span(*packet).subspan(at, size));
        if (!cookie) hashed += static_cast<uint32_t>(size);
        at += size;
      }
      std::array<std::byte, 4> w7;
      wire::store32(w7.data(), (wire::load32(packet->data() + 28) & ~0xFFFFu) | hashed);
      h.update(w7);
    }
    return __builtin_bswap64(h.finish());
  }
  /// Sends HELLO and takes the ACCEPT; the engine is half-open then.
  bool say_hello() {
    hello_bytes_ = bytes_of(hello);
    give(hello_bytes_);
    for (const Sent& s : poll()) {
      if (s.type() == wire::PacketType::kAccept) accept_bytes_ = s.bytes;
    }
    if (accept_bytes_.empty()) return false;
    accept = *wire::decode_hello(accept_bytes_);
    engine_id_ = accept.own_connection;
    return true;
  }
  wire::ConfirmPacket confirm() const { return {engine_id_, mac(hello_bytes_, accept_bytes_)}; }
  /// The engine accepts a connection from the peer.
  bool open() {
    if (!say_hello()) return false;
    give(confirm());
    const auto e = events();
    poll();
    return !e.empty() && e[0].kind == engine::ConnectionEventKind::kAccepted;
  }
  /// The engine connects; the peer answers. The CONFIRM and what follows is left to be polled.
  bool be_connected() {
    engine::ConnectRequest request;
    for (uint32_t p = 0; p < planes_; ++p) {
      request.peer.push_back(plane_address(p, 1, wire::kBasePort));
    }
    const auto handle = engine_.connect(now, request);
    if (!handle) return false;
    const auto sent = poll();
    if (sent.empty() || sent[0].type() != wire::PacketType::kHello) return false;
    hello_bytes_ = sent[0].bytes;
    accept = hello;
    accept.is_accept = true;
    const auto theirs = *wire::decode_hello(hello_bytes_);
    accept.connection = engine_id_ = theirs.own_connection;
    accept.echoed_nonce = theirs.nonce;
    engine_hello = theirs;
    accept_bytes_ = bytes_of(accept);
    now = now + microseconds(10);
    give(accept_bytes_);
    const auto e = events();
    return !e.empty() && e[0].kind == engine::ConnectionEventKind::kConnected;
  }
  const std::vector<std::byte>& accept_bytes() const { return accept_bytes_; }
  const std::vector<std::byte>& hello_bytes() const { return hello_bytes_; }

  // --- what the peer sends ---

  /// The next sequenced header of a path; the floor reaches down to the first sequence.
  wire::Sequenced next(uint8_t path = 0) {
    wire::Sequenced s;
    s.path = path;
    s.connection = engine_id_;
    const uint32_t n = used_[path]++;
    s.path_seq = kStartSeq + (uint32_t{path} << 24) + n;
    s.floor = static_cast<uint8_t>(std::min(n, 255u));
    s.stamp = wire::stamp_of(now);
    return s;
  }
  void skip(uint8_t path, uint32_t n) { used_[path] += n; }
  /// A write of one packet of `length` bytes, all equal to `fill`.
  std::vector<std::byte> write(uint32_t cpsn, uint32_t msn, uint32_t length, uint8_t fill = 0xAB,
                               uint8_t path = 0) {
    wire::DataPacket d;
    d.s = next(path);
    d.s.cpsn = kStartCpsn + cpsn;
    d.opcode = wire::Opcode::kWrite;
    d.message_flags = wire::message_flag::kFirst | wire::message_flag::kLast;
    d.msn = msn;
    d.key = region_.key;
    d.address = region_.remote_base;
    return with_payload(d, length, fill);
  }
  static std::vector<std::byte> with_payload(const wire::DataPacket& d, uint32_t length,
                                             uint8_t fill) {
    std::vector<std::byte> bytes = bytes_of(d);
    bytes.resize(bytes.size() + length, std::byte{fill});
    return bytes;
  }
  wire::ControlPacket control(wire::ControlOpcode opcode, uint32_t cpsn) {
    wire::ControlPacket c;
    c.s = next();
    c.s.cpsn = kStartCpsn + cpsn;
    c.opcode = opcode;
    return c;
  }
  /// An ACK of a path of the engine, whose first sequence is the announced start.
  wire::AckPacket acknowledge(uint8_t path, uint32_t base_offset,
                              std::initializer_list<uint32_t> shown = {}) {
    wire::AckPacket a;
    a.f.path = path;
    a.f.connection = engine_id_;
    a.f.counter = ++ack_counter_;
    a.f.base = engine_start(path) + base_offset;
    a.f.stamp = wire::stamp_of(now - microseconds(10));
    for (const uint32_t s : shown) a.map.set(s - base_offset);
    return a;
  }
  uint32_t engine_start(uint8_t path) const {
    const uint32_t start = engine_hello.nonce != 0 ? engine_hello.start_seq : accept.start_seq;
    return start + (uint32_t{path} << 24);
  }
  engine::WorkRequest request(engine::Operation op, uint64_t id, uint64_t length,
                              uint16_t stream = 0) {
    engine::WorkRequest r;
    r.id = id;
    r.connection = engine_id_;
    r.stream = stream;
    r.operation = op;
    r.local = memory_.data();
    r.length = length;
    r.remote_address = 0x5000;
    r.remote_key = 0x77;
    return r;
  }
  Status post(const engine::WorkRequest& r) {
    Status status = Status::kOk;
    engine_.post(now, {&r, 1}, status);
    return status;
  }
  Status post_receive(uint16_t stream, uint64_t id, uint64_t length) {
    engine::ReceiveRequest r;
    r.id = id;
    r.connection = engine_id_;
    r.stream = stream;
    r.buffer = memory_.data() + 4096 * (1 + id % 8);
    r.length = length;
    Status status = Status::kOk;
    engine_.post_receives(now, {&r, 1}, status);
    return status;
  }

  Time now{seconds(5).ns};
  wire::HelloPacket hello;         ///< what the peer says of itself; change before opening
  wire::HelloPacket accept;        ///< the ACCEPT of the connection, whoever sent it
  wire::HelloPacket engine_hello;  ///< the engine's HELLO, if it connected
  std::vector<engine::Placement> placements;

 private:
  static engine::EngineConfig config(const Settings& settings, uint32_t planes, bool accept) {
    engine::EngineConfig c;
    c.settings = settings;
    for (uint32_t p = 0; p < planes; ++p) {
      c.local.push_back(plane_address(p, 0, wire::kBasePort));
      c.plane_mtu.push_back(1280);
    }
    c.accept = accept;
    return c;
  }
  void collect(const engine::TxRun& run, std::vector<Sent>& out) {
    size_t at = 0;
    for (uint8_t i = 0; i < run.count; ++i) {
      Sent s;
      s.bytes.assign(run.headers + at, run.headers + at + run.header_length[i]);
      at += run.header_length[i] + run.trailer;
      if (run.payload[i] != nullptr) {
        s.bytes.insert(s.bytes.end(), run.payload[i], run.payload[i] + run.payload_length[i]);
      } else {
        s.bytes.insert(s.bytes.end(), size_t{run.payload_length[i]}, std::byte{0});
      }
      s.at = now;
      s.from = run.from;
      s.to = run.to;
      s.plane = run.plane;
      s.ecn = run.ecn;
      out.push_back(std::move(s));
    }
  }

  uint32_t planes_;
  engine::Engine engine_;
  std::vector<std::byte> memory_;
  memory::RegionInfo region_;
  std::vector<std::byte> hello_bytes_, accept_bytes_;
  std::array<uint32_t, 256> used_{};
  uint32_t engine_id_ = 0;
  uint32_t ack_counter_ = 0;
};

}  // namespace metaroce::pair
