// Every posted request completes, also those that nobody polled while the connection lived.
#include <gtest/gtest.h>

#include <vector>

#include "tests/pair/pair.h"

namespace metaroce::pair {
namespace {

TEST(Completions, OutliveTheirConnection) {
  constexpr uint64_t kPosts = 6000;
  engine::EngineConfig config;
  config.settings = pair_settings();
  config.settings.max_sends = kPosts;
  config.local.push_back(plane_address(0, 0, wire::kBasePort));
  engine::Engine engine(config, Rng(1));
  const auto handle = engine.connect(Time{0}, {{plane_address(0, 1, wire::kBasePort)}});
  ASSERT_TRUE(handle.has_value());
  for (uint64_t i = 0; i < kPosts; ++i) {
    engine::WorkRequest r;
    r.id = i;
    r.connection = *handle;
    r.length = 1;
    Status status;
    ASSERT_EQ(engine.post(Time{0}, {&r, 1}, status), 1u);
  }
  engine.close(Time{0}, *handle, 0);
  Time now{0};
  std::vector<engine::TxRun> runs(4);
  for (int i = 0; i < 100; ++i) {  // TIME_WAIT ends and the handle is forgotten
    now = now + milliseconds(10);
    engine.on_deadline(now);
    while (engine.poll_transmit(now, runs) == runs.size()) {
    }
  }
  uint64_t next = 0;
  engine::Completion done[64];
  for (size_t n = engine.poll_completions(done); n > 0; n = engine.poll_completions(done)) {
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(done[i].id, next++);
      EXPECT_NE(done[i].status, Status::kOk);
    }
  }
  EXPECT_EQ(next, kPosts);
  engine.on_deadline(now);
  engine::ConnectionStatus status;
  EXPECT_FALSE(engine.connection_status(*handle, status));
}

}  // namespace
}  // namespace metaroce::pair
