// After set-up an engine allocates nothing, whatever happens on the network: every operator new
// inside an engine call is counted. Set-up is construction, connect, the handshake and PATH_OPEN,
// which make connections and paths; it ends when both sides have told that all paths are open.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "engine/engine.h"

namespace {

bool counting = false;
uint64_t allocations = 0;

void* counted(size_t size) {
  if (counting) ++allocations;
  void* p = std::malloc(size > 0 ? size : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

// g++ sees malloc and free here and takes them for a pair that does not match.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(size_t size) { return counted(size); }
void* operator new[](size_t size) { return counted(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace metaroce {
namespace {

using engine::Operation;

constexpr uint32_t kPlanes = 2;
constexpr size_t kPackets = 1 << 14;
constexpr size_t kPacketBytes = 1600;
constexpr Duration kDelay = microseconds(5);
constexpr uint64_t kRegion = 1 << 20;

SocketAddress address(int side, uint32_t plane) {
  SocketAddress a;
  a.family = 4;
  a.port = wire::kBasePort;
  a.bytes = {10, 0, static_cast<uint8_t>(plane), static_cast<uint8_t>(side + 1)};
  return a;
}

/// Runs an engine call with the counter on.
template <class F>
auto inside(F&& call) {
  counting = true;
  auto result = call();
  counting = false;
  return result;
}

/// Two engines and a network of fixed delay that allocates nothing either while it runs.
class Rig {
 public:
  Rig() : pool_(kPackets * kPacketBytes), flying_(kPackets) {
    Rng rng(20260801);
    for (int s = 0; s < 2; ++s) {
      engine::EngineConfig config;
      config.settings.max_connections = 2;
      config.settings.timer_tick = 100;
      config.settings.initial_rtt = 20'000;
      config.settings.pmtu_wait = 200'000;
      config.settings.dead_probe_max = 1'000'000;
      config.accept = s == 1;
      for (uint32_t p = 0; p < kPlanes; ++p) config.local.push_back(address(s, p));
      config.plane_mtu.assign(kPlanes, 1500);
      engines_[s] = std::make_unique<engine::Engine>(config, rng.fork("engine", s));
      regions_[s].resize(kRegion);
      infos_[s] = *engines_[s]->regions().add_at(regions_[s].data(), kRegion,
                                                 memory::access::kRemoteWrite, 0x1000);
    }
    engine::ConnectRequest request;
    for (uint32_t p = 0; p < kPlanes; ++p) request.peer.push_back(address(1, p));
    connections_[0] = *engines_[0]->connect(now_, request);
  }

  bool open() const { return opened_[0] && opened_[1]; }
  bool lost() const { return lost_; }

  void run(Duration duration) {
    const Time end = now_ + duration;
    for (;;) {
      Time next = std::min(engines_[0]->next_deadline(), engines_[1]->next_deadline());
      if (begin_ != end_) next = earlier(next, flying_[begin_ % kPackets].at);
      if (next > end) break;
      now_ = std::max(now_, next);
      for (int s = 0; s < 2; ++s) {
        if (engines_[s]->next_deadline() <= now_) {
          inside([&] { return engines_[s]->on_deadline(now_), 0; });
        }
      }
      while (begin_ != end_ && flying_[begin_ % kPackets].at <= now_) deliver();
      for (int s = 0; s < 2; ++s) transmit(s);
    }
    now_ = end;
  }

  void write(int s, uint64_t id, uint64_t length, Operation operation) {
    engine::WorkRequest r;
    r.id = id;
    r.connection = connections_[s];
    r.stream = static_cast<uint16_t>(id % 3);
    r.operation = operation;
    r.local = regions_[s].data();
    r.length = length;
    r.remote_key = infos_[1 - s].key;
    r.remote_address = 0x1000;
    Status status;
    EXPECT_EQ(inside([&] { return engines_[s]->post(now_, {&r, 1}, status); }), 1u);
    ++posted_;
  }

  void receive(int s, uint64_t id) {
    engine::ReceiveRequest r;
    r.id = id;
    r.connection = connections_[s];
    r.stream = static_cast<uint16_t>(id % 3);
    r.length = kRegion;
    Status status;
    EXPECT_EQ(inside([&] { return engines_[s]->post_receives(now_, {&r, 1}, status); }), 1u);
  }

  engine::Engine& engine(int s) { return *engines_[s]; }
  engine::ConnectionHandle connection(int s) const { return connections_[s]; }
  Time now() const { return now_; }
  uint64_t loss_per_million = 0;
  uint32_t dark_plane = kPlanes;
  uint64_t sent = 0, dropped = 0, completed = 0, failed = 0, posted_ = 0;

 private:
  struct Packet {
    Time at;
    size_t length = 0;
    SocketAddress from;
    uint8_t plane = 0;
    int to = 0;
  };

  void deliver() {
    const size_t slot = begin_++ % kPackets;
    const Packet& p = flying_[slot];
    engine::RxPacket packet;
    packet.bytes = {pool_.data() + slot * kPacketBytes, p.length};
    packet.plane = p.plane;
    packet.from = p.from;
    engine::Placement placement;
    inside([&] { return engines_[p.to]->on_packets(now_, {&packet, 1}, {&placement, 1}); });
  }

  void transmit(int s) {
    engine::Engine& e = *engines_[s];
    for (;;) {
      const size_t n = inside([&] { return e.poll_transmit(now_, runs_); });
      for (size_t i = 0; i < n; ++i) send(s, runs_[i]);
      if (n < runs_.size()) break;
    }
    std::array<engine::Completion, 16> done;
    for (;;) {
      const size_t n = inside([&] { return e.poll_completions(done); });
      for (size_t i = 0; i < n; ++i) {
        completed += done[i].operation != Operation::kReceive;
        failed += done[i].status != Status::kOk;
      }
      if (n < done.size()) break;
    }
    std::array<engine::ConnectionEvent, 4> events;
    const size_t n = inside([&] { return e.poll_events(events); });
    for (size_t i = 0; i < n; ++i) {
      using Kind = engine::ConnectionEventKind;
      if (events[i].kind == Kind::kAccepted) connections_[s] = events[i].connection;
      if (events[i].kind == Kind::kPathsOpen) opened_[s] = true;
      if (events[i].kind == Kind::kLost || events[i].kind == Kind::kFailed) lost_ = true;
    }
  }

  void send(int s, const engine::TxRun& run) {
    const std::byte* header = run.headers;
    for (uint32_t i = 0; i < run.count; ++i) {
      const size_t length = run.header_length[i];
      ++sent;
      const bool lost = run.plane == dark_plane ||
                        luck_.chance(loss_per_million * (1ull << 32) / 1'000'000) ||
                        end_ - begin_ == kPackets || length + run.payload_length[i] > 1500 - 28;
      if (lost) {
        ++dropped;
      } else {
        const size_t slot = end_++ % kPackets;
        flying_[slot] = {now_ + kDelay, length + run.payload_length[i], run.from, run.plane, 1 - s};
        std::copy_n(header, length, pool_.data() + slot * kPacketBytes);
      }
      header += length + run.trailer;
    }
  }

  std::vector<std::byte> pool_;
  std::vector<Packet> flying_;
  size_t begin_ = 0, end_ = 0;
  std::array<std::unique_ptr<engine::Engine>, 2> engines_;
  std::array<std::vector<std::byte>, 2> regions_;
  std::array<memory::RegionInfo, 2> infos_;
  std::array<engine::ConnectionHandle, 2> connections_{};
  std::array<bool, 2> opened_{};
  std::array<engine::TxRun, 8> runs_;
  Rng luck_{7};
  bool lost_ = false;
  Time now_{1'000'000};
};

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 200 && !rig.open(); ++i) rig.run(microseconds(100));
    ASSERT_TRUE(rig.open());
    allocations = 0;
  }

  /// Requests of every kind in both directions, as they complete.
  void work(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (int s = 0; s < 2; ++s) {
        for (const Operation op :
             {Operation::kWrite, Operation::kWriteImm, Operation::kSend, Operation::kSendImm}) {
          if (op != Operation::kWrite) rig.receive(1 - s, id_);
          rig.write(s, id_, 1 + id_ * 977 % 40'000, op);
          ++id_;
        }
      }
      rig.run(microseconds(300));
    }
  }
  void finish() {
    for (int i = 0; i < 2000 && rig.completed < rig.posted_; ++i) rig.run(microseconds(100));
    EXPECT_EQ(rig.completed, rig.posted_);
    EXPECT_FALSE(rig.lost());
  }

  Rig rig;
  uint64_t id_ = 0;
};

TEST_F(Allocation, TheCounterCounts) {
  const auto p = inside([] { return std::make_unique<int>(1); });
  EXPECT_EQ(allocations, 1u);
}

TEST_F(Allocation, NoneWithoutLoss) {
  work(30);
  finish();
  EXPECT_EQ(rig.failed, 0u);
  EXPECT_EQ(allocations, 0u);
}

TEST_F(Allocation, NoneAtTenPercentLoss) {
  rig.loss_per_million = 100'000;
  work(60);
  finish();
  EXPECT_EQ(rig.failed, 0u);
  EXPECT_GT(rig.dropped, 1000u);
  EXPECT_EQ(allocations, 0u);
}

TEST_F(Allocation, NoneWhenAPlaneDiesAndReturns) {
  work(5);
  rig.dark_plane = 1;
  work(30);
  rig.dark_plane = kPlanes;
  work(30);
  finish();
  EXPECT_GT(rig.dropped, 0u);
  EXPECT_EQ(allocations, 0u);
}

TEST_F(Allocation, NoneForPortsLinksHintsAndClose) {
  work(3);
  const auto a = rig.connection(0);
  EXPECT_TRUE(inside([&] { return rig.engine(0).change_port(rig.now(), a, 0, 40'000); }));
  work(3);
  inside([&] { return rig.engine(0).on_plane_state(rig.now(), 1, false), 0; });
  work(3);
  inside([&] { return rig.engine(0).on_plane_state(rig.now(), 1, true), 0; });
  inside([&] {
    return rig.engine(0).on_network_hint(rig.now(), a, 1, engine::NetworkHint::kTooBig, 1300), 0;
  });
  work(3);
  inside([&] {
    return rig.engine(1).on_network_hint(rig.now(), rig.connection(1), 0xFF,
                                         engine::NetworkHint::kPortUnreachable, 0),
           0;
  });
  work(3);
  inside([&] { return rig.engine(0).close(rig.now(), a, 1), 0; });
  rig.run(milliseconds(50));
  EXPECT_EQ(allocations, 0u);
}

}  // namespace
}  // namespace metaroce
