// Two ends with real memory for tests of operations: what a program would write with the API.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "memory/regions.h"
#include "tests/pair/mini_net.h"

namespace metaroce::pair {

/// End 0 asks, end 1 is asked. Each has 64 KiB of its own and a region of the peer's making.
class OperationsRig : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;
  static constexpr uint8_t kAll =
      memory::access::kRemoteWrite | memory::access::kRemoteRead | memory::access::kRemoteAtomic;

  void start(MiniNet::Options options = {}) {
    net_ = std::make_unique<MiniNet>(std::move(options));
    net_->add(false);
    net_->add(true);
    net_->connect(0, 1);
    ASSERT_TRUE(net_->run_until(
        [&] {
          return net_->count(0, engine::ConnectionEventKind::kConnected) == 1 &&
                 net_->count(1, engine::ConnectionEventKind::kAccepted) == 1;
        },
        seconds(2)));
    for (int side = 0; side < 2; ++side) {
      handle_[side] = net_->node(static_cast<uint32_t>(side)).events.front().connection;
      memory_[side].assign(kBytes, std::byte{0});
      region_[side] = *engine(side).regions().add(memory_[side].data(), kBytes, kAll);
    }
  }

  engine::Engine& engine(int side) { return (*net_)[static_cast<uint32_t>(side)]; }
  std::vector<engine::Completion>& done(int side) {
    return net_->node(static_cast<uint32_t>(side)).completions;
  }
  std::byte* at(int side, uint64_t offset) { return memory_[side].data() + offset; }
  uint64_t word(int side, uint64_t offset) {
    uint64_t value = 0;
    std::memcpy(&value, at(side, offset), 8);
    return value;
  }
  void set_word(int side, uint64_t offset, uint64_t value) {
    std::memcpy(at(side, offset), &value, 8);
  }
  void fill(int side, uint64_t offset, uint64_t length, uint8_t value) {
    std::memset(at(side, offset), value, length);
  }
  bool all_are(int side, uint64_t offset, uint64_t length, uint8_t value) {
    for (uint64_t i = 0; i < length; ++i) {
      if (*at(side, offset + i) != std::byte{value}) return false;
    }
    return true;
  }

  /// A request of `side` with its peer's region as the remote end.
  engine::WorkRequest work(int side, engine::Operation operation, uint64_t id, uint64_t local,
                           uint64_t length, uint64_t remote = 0) {
    engine::WorkRequest w;
    w.id = id;
    w.connection = handle_[side];
    w.operation = operation;
    w.local = w.result = at(side, local);
    w.length = length;
    w.remote_address = region_[1 - side].remote_base + remote;
    w.remote_key = region_[1 - side].key;
    return w;
  }
  Status post(int side, const engine::WorkRequest& w) {
    Status status = Status::kOk;
    engine(side).post(net_->now, {&w, 1}, status);
    return status;
  }
  Status receive(int side, uint64_t id, uint64_t local, uint64_t length, uint16_t stream = 0,
                 uint32_t queue = 0) {
    engine::ReceiveRequest r;
    r.id = id;
    r.connection = handle_[side];
    r.stream = stream;
    r.buffer = at(side, local);
    r.length = length;
    r.shared_queue = queue;
    Status status = Status::kOk;
    engine(side).post_receives(net_->now, {&r, 1}, status);
    return status;
  }
  /// Runs until each side has so many completions, and a little longer: there must be no more.
  void expect(size_t mine, size_t peers, Duration limit = milliseconds(200)) {
    net_->run_until([&] { return done(0).size() >= mine && done(1).size() >= peers; }, limit);
    net_->run_for(milliseconds(20));
    EXPECT_EQ(done(0).size(), mine);
    EXPECT_EQ(done(1).size(), peers);
  }
  /// id and status of each completion in order.
  using Ends = std::vector<std::pair<uint64_t, Status>>;
  Ends ends(int side, bool receives) {
    Ends out;
    for (const engine::Completion& c : done(side)) {
      if ((c.operation == engine::Operation::kReceive) == receives) out.push_back({c.id, c.status});
    }
    return out;
  }

  std::unique_ptr<MiniNet> net_;
  std::array<engine::ConnectionHandle, 2> handle_{};
  std::array<std::vector<std::byte>, 2> memory_;
  std::array<memory::RegionInfo, 2> region_{};
};

}  // namespace metaroce::pair
