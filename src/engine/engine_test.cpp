// Many connections behind one face: two engines whose packets are handed over by hand.
#include "engine/engine.h"
#include "wire/handshake_packet.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/covers.h"

namespace metaroce::engine {
namespace {

SocketAddress address(uint8_t host) {
  SocketAddress a;
  a.family = 4;
  a.bytes = {10, 0, 0, host};
  a.port = 28672;
  return a;
}

Settings small() {
  Settings s;
  s.max_connections = 16;
  s.max_streams = 64;
  s.max_regions = 4;
  s.max_sends = 256;
  s.max_receives = 256;
  s.max_open_messages = 256;
  s.max_active_paths = 64;
  s.paths_per_plane = 2;
  s.timer_tick = 1000;
  return s;
}

EngineConfig config(uint8_t host, const Settings& settings) {
  EngineConfig c;
  c.settings = settings;
  c.local = {address(host)};
  c.plane_mtu = {1500};
  c.accept = true;
  return c;
}

/// Two engines; what one sends the other receives `delay` later.
struct Two {
  Engine a, b;
  Time now{seconds(1).ns};
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  memory::RegionInfo region;
  uint64_t packets = 0;
  bool cut = false;

  explicit Two(const Settings& settings = small(), uint64_t seed = 1)
      : a(config(1, settings), Rng(seed)), b(config(2, settings), Rng(seed + 100)) {
    region = *b.regions().add(memory.data(), memory.size(), memory::access::kRemoteWrite);
  }
  bool carry(Engine& from, Engine& to, uint8_t host) {
    bool any = false;
    std::vector<TxRun> runs(8);
    for (size_t n = runs.size(); n == runs.size();) {
      n = from.poll_transmit(now, runs);
      for (size_t i = 0; i < n && !cut; ++i) deliver(runs[i], to, host);
      any |= n > 0;
    }
    return any;
  }
  void deliver(const TxRun& run, Engine& to, uint8_t host) {
    size_t at = 0;
    for (uint8_t i = 0; i < run.count; ++i) {
      std::vector<std::byte> bytes(run.headers + at, run.headers + at + run.header_length[i]);
      at += run.header_length[i] + run.trailer;
      const size_t header = bytes.size();
      bytes.resize(header + run.payload_length[i]);
      if (run.payload[i] != nullptr)
        std::copy_n(run.payload[i], run.payload_length[i], bytes.data() + header);
      SocketAddress source = address(host);
      source.port = run.from.port;
      RxPacket rx{bytes, Ecn::kEct0, 0, source};
      Placement p;
      ++packets;
      if (to.on_packets(now, {&rx, 1}, {&p, 1}) == 1 && p.address != nullptr)
        std::copy_n(bytes.data() + p.payload_begin, p.length, p.address);
    }
  }
  /// Runs both until `until`, in steps of a microsecond.
  void run(Duration d) {
    for (const Time end = now + d; now < end; now = now + microseconds(1)) {
      if (a.next_deadline() <= now) a.on_deadline(now);
      if (b.next_deadline() <= now) b.on_deadline(now);
      carry(a, b, 1);
      carry(b, a, 2);
    }
  }
  ConnectionHandle connect() { return *a.connect(now, {{address(2)}}); }
  Status write(ConnectionHandle c, uint64_t id, uint64_t length) {
    WorkRequest r;
    r.id = id;
    r.connection = c;
    r.operation = Operation::kWrite;
    r.local = memory.data();
    r.length = length;
    r.remote_address = region.remote_base;
    r.remote_key = region.key;
    Status status = Status::kOk;
    a.post(now, {&r, 1}, status);
    return status;
  }
  static std::vector<Completion> completions(Engine& e) {
    std::vector<Completion> out(256);
    out.resize(e.poll_completions(out));
    return out;
  }
  static std::vector<ConnectionEvent> events(Engine& e) {
    std::vector<ConnectionEvent> out(64);
    out.resize(e.poll_events(out));
    return out;
  }
};

TEST(Engine, NothingToDoWithoutConnections) {
  Two t;
  EXPECT_EQ(t.a.next_deadline(), kNever);
  EXPECT_TRUE(t.a.idle());
  std::vector<TxRun> runs(2);
  EXPECT_EQ(t.a.poll_transmit(t.now, runs), 0u);
  EXPECT_FALSE(t.a.connect(t.now, {}));
  EXPECT_EQ(t.write(0x12345678, 1, 10), Status::kUnknownHandle);
}

TEST(Engine, ManyConnectionsEachWithItsOwnCompletions) {
  Two t;
  std::vector<ConnectionHandle> handles;
  for (int i = 0; i < 16; ++i) {
    handles.push_back(t.connect());
    if (i == 7) t.run(milliseconds(5));  // half of the table may be half-open at once
  }
  EXPECT_FALSE(t.a.connect(t.now, {{address(2)}}).has_value());  // the table is full
  for (size_t i = 0; i < handles.size(); ++i)
    ASSERT_EQ(t.write(handles[i], 100 + i, 1000 * (i + 1)), Status::kOk);
  t.run(milliseconds(5));
  std::map<ConnectionHandle, uint64_t> done;
  for (const Completion& c : Two::completions(t.a)) {
    EXPECT_EQ(c.status, Status::kOk);
    done[c.connection] = c.id;
  }
  ASSERT_EQ(done.size(), 16u);
  for (size_t i = 0; i < handles.size(); ++i) EXPECT_EQ(done[handles[i]], 100 + i);
  EXPECT_TRUE(t.a.idle());
}

TEST(Engine, SmallTransmitBatchesServeEveryConnection) {
  Two t;
  std::vector<ConnectionHandle> handles;
  for (int i = 0; i < 8; ++i) handles.push_back(t.connect());
  t.run(milliseconds(3));
  Two::events(t.a);
  for (const auto h : handles) ASSERT_EQ(t.write(h, h, 4000), Status::kOk);
  std::map<uint32_t, int> served;
  for (int i = 0; i < 64; ++i) {  // one run at a time: nobody is starved
    TxRun run;
    if (t.a.poll_transmit(t.now, {&run, 1}) == 0) break;
    if (run.is_data) ++served[run.connection];
  }
  EXPECT_EQ(served.size(), 8u);
}

TEST(Engine, TheDeadlineIsTheEarliestOfAll) {
  Settings s = small();
  s.hello_interval = 1'000'000;
  Two t(s);
  t.cut = true;
  t.connect();
  t.carry(t.a, t.b, 1);
  const Time first = t.a.next_deadline();
  EXPECT_EQ(first, t.now + milliseconds(1));
  t.now = t.now + microseconds(300);
  t.connect();
  t.carry(t.a, t.b, 1);
  EXPECT_EQ(t.a.next_deadline(), first);
  t.now = first;
  t.a.on_deadline(t.now);
  t.carry(t.a, t.b, 1);
  EXPECT_EQ(t.a.next_deadline(), first + microseconds(300));
}

TEST(Engine, CompletionsOutliveTheirConnection) {
  Settings s = small();
  s.death_timeout = 20'000'000;
  s.time_wait = 1'000'000;
  Two t(s);
  const auto h = t.connect();
  t.run(milliseconds(3));
  t.cut = true;
  for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(t.write(h, i, 100), Status::kOk);
  t.run(milliseconds(40));
  ConnectionStatus status;
  EXPECT_FALSE(t.a.connection_status(h, status));  // gone
  const auto done = Two::completions(t.a);
  ASSERT_EQ(done.size(), 40u);
  for (size_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i].id, i);
    EXPECT_EQ(done[i].status, i == 0 ? Status::kUnresponsive : Status::kFlushed);
  }
}

TEST(Engine, AFreedPlaceGetsAnotherHandle) {
  MR_COVERS("MR-CONN-032");
  Settings s = small();
  s.max_connections = 1;
  s.time_wait = 100'000;
  Two t(s);
  const auto first = t.connect();
  t.run(milliseconds(3));
  t.a.close(t.now, first, 0);
  t.run(milliseconds(5));
  const auto second = t.a.connect(t.now, {{address(2)}});
  ASSERT_TRUE(second);
  EXPECT_EQ(*second >> 16, first >> 16);
  EXPECT_NE(*second, first);
  EXPECT_EQ(t.write(first, 1, 10), Status::kUnknownHandle);
  t.run(milliseconds(5));
  EXPECT_EQ(t.write(*second, 2, 10), Status::kOk);
}

TEST(Engine, APostStopsAtTheFirstThatCannotBeTaken) {
  Two t;
  const auto h = t.connect();
  WorkRequest r[3];
  for (auto& x : r) x.connection = h;
  r[1].connection = h ^ 0xFFFF;
  Status status = Status::kOk;
  EXPECT_EQ(t.a.post(t.now, r, status), 1u);
  EXPECT_EQ(status, Status::kUnknownHandle);
}

TEST(Engine, WhoDoesNotListenRefuses) {
  EngineConfig c = config(2, small());
  c.accept = false;
  Engine deaf(std::move(c), Rng(3));
  Two t;
  t.connect();
  t.carry(t.a, deaf, 1);
  std::vector<TxRun> runs(2);
  ASSERT_EQ(deaf.poll_transmit(t.now, runs), 1u);
  EXPECT_TRUE(wire::decode_refuse({runs[0].headers, runs[0].header_length[0]}));
  EXPECT_EQ(deaf.drops()[static_cast<size_t>(wire::DropReason::kNoState)], 1u);
}

TEST(Engine, SameSeedSameState) {
  const auto run = [](uint64_t seed) {
    Two t(small(), seed);
    const auto h = t.connect();
    t.write(h, 1, 100'000 % (1 << 16));
    t.run(milliseconds(3));
    return std::pair(t.a.state_hash(), t.packets);
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5).first, run(6).first);
}

}  // namespace
}  // namespace metaroce::engine
