// Two real engines over two drivers: bytes arrive whole through a network that is bad on purpose.
#include "engine/engine.h"

#include <array>

#include "driver/udp/test_support.h"

namespace metaroce::driver {
namespace {

using namespace test;

constexpr size_t kCanary = 4096;
constexpr std::byte kCanaryByte{0xC5};

/// One end: a driver and its engine.
struct End {
  std::unique_ptr<UdpDriver> driver;
  std::unique_ptr<engine::Engine> engine;
  bool failed = false;
  bool connected = false;
  Status status = Status::kOk;

  End(UdpOptions options, bool accept, uint64_t seed) : driver(open(options)) {
    if (driver == nullptr) return;
    engine::EngineConfig config;
    config.settings.paths_per_plane = 2;
    config.settings.inflight_packets =
        std::min(config.settings.inflight_packets, driver->inflight_packets());
    config.local = driver->local();
    config.plane_mtu = driver->plane_mtu();
    config.accept = accept;
    engine = std::make_unique<engine::Engine>(config, Rng(seed));
  }
  void round() {
    driver->progress(*engine);
    std::array<engine::ConnectionEvent, 8> events;
    const size_t n = engine->poll_events(events);
    for (size_t i = 0; i < n; ++i) {
      connected = connected || events[i].kind == engine::ConnectionEventKind::kConnected;
      if (events[i].kind == engine::ConnectionEventKind::kFailed ||
          events[i].kind == engine::ConnectionEventKind::kLost) {
        failed = true;
        status = events[i].status;
      }
    }
  }
};

void write_through(const char* faults) {
  UdpOptions a = options_for({"127.0.1.1", "127.0.2.1"});
  UdpOptions b = options_for({"127.0.1.2", "127.0.2.2"});
  a.faults = b.faults = *parse_faults(faults);
  End from(a, false, 1);
  End to(b, true, 2);
  ASSERT_TRUE(from.engine && to.engine);

  const Bytes source = random_bytes(8 << 20, 21);
  Bytes target(source.size() + 2 * kCanary, kCanaryByte);
  const auto region = to.engine->regions().add(target.data() + kCanary, source.size(),
                                               memory::access::kRemoteWrite);
  ASSERT_TRUE(region);
  engine::ConnectRequest request;
  request.peer = to.driver->local();
  const auto connection = from.engine->connect(now(), request);
  ASSERT_TRUE(connection);

  const Time limit = now() + seconds(60);
  bool posted = false;
  engine::Completion done;
  size_t completions = 0;
  while (completions == 0 && !from.failed && now() < limit) {
    from.round();
    to.round();
    if (from.connected && !posted) {
      engine::WorkRequest work;
      work.id = 77;
      work.connection = *connection;
      work.local = source.data();
      work.length = source.size();
      work.remote_address = region->remote_base;
      work.remote_key = region->key;
      Status status = Status::kOk;
      ASSERT_EQ(from.engine->post(now(), {&work, 1}, status), 1u) << to_string(status);
      posted = true;
    }
    completions = from.engine->poll_completions({&done, 1});
  }
  ASSERT_EQ(completions, 1u) << to_string(from.status);
  EXPECT_EQ(done.id, 77u);
  EXPECT_EQ(done.status, Status::kOk) << to_string(done.status);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin() + kCanary));
  for (size_t i = 0; i < kCanary; ++i) {
    ASSERT_EQ(target[i], kCanaryByte);
    ASSERT_EQ(target[target.size() - 1 - i], kCanaryByte);
  }
  // A corrupted packet that is still held back has been counted by the injector alone.
  const auto holding = [](const End& end) {
    return end.driver->rx_faults().next_release() != kNever;
  };
  while ((holding(from) || holding(to)) && now() < limit) {
    from.round();
    to.round();
  }
  for (const End* end : {&from, &to}) {
    const FaultTally& tally = end->driver->rx_faults().tally();
    EXPECT_EQ(end->driver->counters().crc_errors, tally.of(FaultKind::kCorrupt));
    EXPECT_EQ(end->driver->counters().truncated, 0u);
  }
  EXPECT_EQ(to.driver->rx_faults().tally().lost() != 0, *faults != '\0');
}

TEST(WithEngine, WriteArrivesOnAGoodNetwork) { write_through(""); }

TEST(WithEngine, WriteArrivesThroughLossReorderingCopiesAndCorruption) {
  write_through("seed=9,drop=2%,dup=1%,corrupt=1%,reorder=2%:20us-100us,mark=1%");
}

TEST(WithEngine, ConnectToAClosedPortIsRefusedByTheNetwork) {
  End from(options_for({"127.0.1.1"}), false, 3);
  uint16_t port = 0;
  {
    const auto gone = open(options_for({"127.0.1.2"}));
    ASSERT_TRUE(gone && from.engine);
    port = gone->port();
  }
  engine::ConnectRequest request;
  request.peer = {parse_address("127.0.1.2", port)};
  const Time start = now();
  ASSERT_TRUE(from.engine->connect(start, request));
  const Time limit = start + seconds(60);
  while (!from.failed && now() < limit) {
    from.round();
    if (!from.failed) from.driver->wait(*from.engine, -1, milliseconds(20));
  }
  EXPECT_TRUE(from.failed);
  EXPECT_EQ(from.status, Status::kRefused) << to_string(from.status);
}

}  // namespace
}  // namespace metaroce::driver
