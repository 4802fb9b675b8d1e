// Any number of engines on one wire in virtual time, for what a Pair cannot show: many peers, both
// sides asking at once, processes that die and come back. One plane, one delay, one loss.
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "driver/common/trailer.h"
#include "engine/engine.h"
#include "engine/placement.h"
#include "tests/pair/pair.h"

namespace metaroce::pair {

class MiniNet {
 public:
  struct Options {
    uint64_t seed = 1;
    Duration delay = microseconds(20);
    Duration jitter = microseconds(5);
    uint32_t loss_percent = 0;
    Settings settings = mini_settings();
  };
  static Settings mini_settings() {
    Settings s = pair_settings();
    s.max_connections = 16;
    return s;
  }
  struct Node {
    std::unique_ptr<engine::Engine> engine;
    SocketAddress address;
    std::vector<engine::ConnectionEvent> events;  ///< all so far, without kPathsOpen
    std::vector<engine::Completion> completions;  ///< all so far
    uint64_t placed_bytes = 0;
    std::vector<std::byte> memory;  ///< what its region without address holds; may stay empty
    uint32_t lives = 0;
    bool up = true;       ///< false: what comes is lost, what is due is not done
    bool frozen = false;  ///< the process is stopped: what comes waits in its socket
    bool rejects = true;  ///< a host without the process says so (ICMP), when !up
  };

  explicit MiniNet(Options options) : options_(std::move(options)), rng_(options_.seed) {}

  uint32_t add(bool accept, const Settings* settings = nullptr, uint16_t versions = 1,
               const secure::Config& security = {}) {
    nodes_.emplace_back();
    const auto n = static_cast<uint32_t>(nodes_.size() - 1);
    specs_.push_back(
        {accept, settings != nullptr ? *settings : options_.settings, versions, security});
    nodes_[n].address.family = 4;
    nodes_[n].address.bytes = {10, static_cast<uint8_t>(n >> 16), static_cast<uint8_t>(n >> 8),
                               static_cast<uint8_t>(n)};
    nodes_[n].address.port = wire::kBasePort;
    start(n);
    return n;
  }
  /// The process of a node begins anew, at the same address.
  void start(uint32_t n) {
    engine::EngineConfig c;
    c.settings = specs_[n].settings;
    c.local = {nodes_[n].address};
    c.plane_mtu = {1500};
    c.accept = specs_[n].accept;
    c.versions = specs_[n].versions;
    c.security = specs_[n].security;
    nodes_[n].engine = std::make_unique<engine::Engine>(
        std::move(c), rng_.fork("node", n * 1000 + nodes_[n].lives++));
    nodes_[n].up = true;
  }
  Node& node(uint32_t n) { return nodes_[n]; }
  engine::Engine& operator[](uint32_t n) { return *nodes_[n].engine; }
  size_t size() const { return nodes_.size(); }

  engine::ConnectionHandle connect(uint32_t from, uint32_t to, const std::string& identity = "",
                                   const std::string& peer_key = "") {
    const auto h = nodes_[from].engine->connect(now, {{nodes_[to].address}, identity, peer_key});
    return h ? *h : 0;
  }
  /// Events of this kind (and status) that a node has seen.
  size_t count(uint32_t n, engine::ConnectionEventKind kind) const {
    size_t c = 0;
    for (const auto& e : nodes_[n].events) c += e.kind == kind;
    return c;
  }

  void run_for(Duration duration) {
    run_until([] { return false; }, duration);
  }
  bool run_until(const std::function<bool()>& done, Duration limit) {
    const Time end = now + limit;
    for (;;) {
      for (uint32_t n = 0; n < nodes_.size(); ++n) pump(n);
      if (done()) return true;
      Time next = flying_.empty() ? kNever : flying_.top().at;
      for (const Node& n : nodes_) {
        if (n.up && !n.frozen) next = earlier(next, n.engine->next_deadline());
      }
      if (next > end) {
        now = end;
        return false;
      }
      now = std::max(now, next);
      while (!flying_.empty() && flying_.top().at <= now) {
        const Flying f = flying_.top();
        flying_.pop();
        arrive(f);
      }
      for (Node& n : nodes_) {
        if (n.up && !n.frozen && n.engine->next_deadline() <= now) n.engine->on_deadline(now);
      }
    }
  }
  /// The process goes on: first it reads what waited.
  void thaw(uint32_t n) {
    nodes_[n].frozen = false;
    std::vector<Flying> waited;
    waited.swap(waiting_);
    for (const Flying& f : waited) arrive(f);
  }
  /// `sealed`: its last 16 bytes are meant as a tag; else it has a good CRC.
  void send_raw(uint32_t to, const SocketAddress& from, std::vector<std::byte> bytes,
                bool sealed = false) {
    flying_.push({now + options_.delay, ++order_, to, from, std::move(bytes), 0, 0, 0, sealed});
  }

  /// Sees each packet on its way; may be used to keep copies or to count.
  std::function<void(uint32_t from, uint32_t to, const std::vector<std::byte>&)> on_packet;
  /// A hostile owner of a key: may change a header before it is sealed.
  std::function<void(uint32_t from, std::byte* header, size_t length)> before_sealing;
  /// An attacker on the way: may change the packet; false: it is lost.
  std::function<bool(uint32_t from, uint32_t to, std::vector<std::byte>&)> meddle;

  /// True: this packet is lost.
  std::function<bool(uint32_t from, const std::vector<std::byte>&)> drop;

  Time now{seconds(5).ns};

 private:
  struct Spec {
    bool accept;
    Settings settings;
    uint16_t versions;
    secure::Config security;
  };
  struct Flying {
    Time at;
    uint64_t order = 0;
    uint32_t to = 0;
    SocketAddress from;
    std::vector<std::byte> bytes;
    uint32_t sender = 0;      ///< node + 1, 0: nobody hears of its fate
    uint32_t connection = 0;  ///< of the sender
    uint8_t path = 0;
    bool sealed = false;
    bool operator<(const Flying& o) const { return o.at < at || (o.at == at && o.order < order); }
  };

  void arrive(const Flying& f) {
    Node& n = nodes_[f.to];
    if (n.up && n.frozen) {
      waiting_.push_back(f);
      return;
    }
    if (!n.up) {
      if (n.rejects && f.sender != 0 && nodes_[f.sender - 1].up) {
        nodes_[f.sender - 1].engine->on_network_hint(now, f.connection, f.path,
                                                     engine::NetworkHint::kPortUnreachable, 0);
      }
      return;
    }
    std::vector<std::byte> bytes = f.bytes;
    size_t body = bytes.size();
    const engine::Opening opened = n.engine->open(now, bytes, f.from, 0, body);
    const bool good = opened == engine::Opening::kPlain ? !f.sealed
                                                        : opened == engine::Opening::kOpened;
    if (!good) return;
    const engine::RxPacket rx{{bytes.data(), body}, Ecn::kEct0, 0, f.from,
                              opened == engine::Opening::kOpened};
    engine::Placement placement;
    if (n.engine->on_packets(now, {&rx, 1}, {&placement, 1}) > 0) {
      n.placed_bytes += placement.length;
      engine::carry_out(rx.bytes, placement);
      if (n.memory.empty() || placement.address != nullptr) return;
      std::copy_n(bytes.data() + placement.payload_begin, placement.length,
                  n.memory.begin() + static_cast<std::ptrdiff_t>(placement.offset));
    }
  }

  void pump(uint32_t index) {
    Node& n = nodes_[index];
    if (!n.up || n.frozen) return;
    for (size_t used = runs_.size(); used == runs_.size();) {
      used = n.engine->poll_transmit(now, runs_);
      for (size_t i = 0; i < used; ++i) send(index, runs_[i]);
    }
    engine::ConnectionEvent events[16];
    for (size_t k = 16; k == 16;) {
      k = n.engine->poll_events(events);
      for (size_t i = 0; i < k; ++i) {
        if (events[i].kind != engine::ConnectionEventKind::kPathsOpen)
          n.events.push_back(events[i]);
      }
    }
    engine::Completion done[16];
    for (size_t k = 16; k == 16;) {
      k = n.engine->poll_completions(done);
      n.completions.insert(n.completions.end(), done, done + k);
    }
  }

  void send(uint32_t index, engine::TxRun& run) {
    const bool sealed = run.session != nullptr;
    if (sealed) {
      size_t begin = 0;
      for (uint8_t i = 0; before_sealing && i < run.count; ++i) {
        before_sealing(index, run.headers + begin, run.header_length[i]);
        begin += run.header_length[i] + run.trailer;
      }
      sealed_.resize(std::max(sealed_.size(), driver::payload_bytes(run)));
      driver::seal_run(run, sealed_);
    }
    uint32_t to = 0;
    while (to < nodes_.size() && !nodes_[to].address.same_host(run.to)) ++to;
    size_t at = 0;
    for (uint8_t i = 0; i < run.count; ++i) {
      std::vector<std::byte> bytes(run.headers + at, run.headers + at + run.header_length[i]);
      at += run.header_length[i] + run.trailer;
      if (sealed || run.payload[i] != nullptr) {
        bytes.insert(bytes.end(), run.payload[i], run.payload[i] + run.payload_length[i]);
        if (sealed) bytes.insert(bytes.end(), run.headers + at - run.trailer, run.headers + at);
      } else {
        bytes.resize(bytes.size() + run.payload_length[i]);
      }
      if (on_packet) on_packet(index, to, bytes);
      if (meddle && !meddle(index, to, bytes)) continue;
      if (drop && drop(index, bytes)) continue;
      if (to == nodes_.size() || rng_.below(100) < options_.loss_percent) continue;
      const auto extra =
          static_cast<int64_t>(rng_.below(static_cast<uint64_t>(options_.jitter.ns) + 1));
      flying_.push({now + options_.delay + nanoseconds(extra), ++order_, to, run.from,
                    std::move(bytes), index + 1, run.connection, run.path, sealed});
    }
  }

  Options options_;
  Rng rng_;
  std::vector<Node> nodes_;
  std::vector<Spec> specs_;
  std::priority_queue<Flying> flying_;
  std::vector<Flying> waiting_;
  uint64_t order_ = 0;
  std::vector<engine::TxRun> runs_{8};
  std::vector<std::byte> sealed_;
};

}  // namespace metaroce::pair
