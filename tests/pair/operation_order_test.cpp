// The order of operations: what waits for what, and what waits for nothing.
#include "base/covers.h"
#include "tests/pair/operations_rig.h"
#include "wire/data_packet.h"

namespace metaroce::pair {
namespace {

using engine::Operation;

class OperationOrder : public OperationsRig {
 protected:
  /// Loses the first copy of the first DATA packet with this opcode that comes from `from`.
  void lose_first(uint32_t from, wire::Opcode opcode) {
    net_->drop = [this, from, opcode, lost = false](uint32_t sender,
                                                    const std::vector<std::byte>& bytes) mutable {
      const auto d = wire::decode_data(bytes);
      if (sender != from || !d || d->opcode != opcode || lost) return false;
      lost = true;
      return true;
    };
  }
};

TEST_F(OperationOrder, AnAtomicWaitsForTheWriteBeforeItAndTheSenderForNothing) {
  MR_COVERS("MR-MSG-040");
  start();
  lose_first(0, wire::Opcode::kWrite);
  fill(0, 0, 8000, 1);
  bool seen_early = false;
  uint32_t atomics_sent_before_loss_was_known = 0;
  net_->on_packet = [&](uint32_t from, uint32_t, const std::vector<std::byte>& bytes) {
    const auto d = wire::decode_data(bytes);
    if (!d) return;
    atomics_sent_before_loss_was_known +=
        from == 0 && d->opcode == wire::Opcode::kFetchAdd && !all_are(1, 0, 8000, 1);
    if (word(1, 10'000) != 0) seen_early = seen_early || !all_are(1, 0, 8000, 1);
  };
  ASSERT_EQ(post(0, work(0, Operation::kWrite, 1, 0, 8000, 0)), Status::kOk);
  auto signal = work(0, Operation::kFetchAdd, 2, 9000, 8, 10'000);
  signal.operand = 1;
  ASSERT_EQ(post(0, signal), Status::kOk);
  expect(2, 0);
  EXPECT_EQ(word(1, 10'000), 1u);
  EXPECT_FALSE(seen_early);
  EXPECT_GE(atomics_sent_before_loss_was_known, 1u);
}

TEST_F(OperationOrder, NoMoreOperationsAreOutstandingThanThePeerAnswers) {
  MR_COVERS("MR-MSG-044");
  MiniNet::Options options;
  options.settings.max_outstanding = 3;
  start(options);
  uint64_t asked = 0;
  uint64_t answered = 0;
  uint64_t most = 0;
  net_->on_packet = [&](uint32_t from, uint32_t, const std::vector<std::byte>& bytes) {
    const auto d = wire::decode_data(bytes);
    constexpr uint8_t kAgain = wire::flag::kRetransmission | wire::flag::kCopy;
    if (!d || (d->s.flags & kAgain) != 0) return;
    if (from == 0 && d->opcode == wire::Opcode::kReadRequest) ++asked;
    if (from == 1 && d->opcode == wire::Opcode::kReadResponse) ++answered;
    most = std::max(most, asked - answered);
  };
  for (uint64_t id = 0; id < 40; ++id) {
    auto w = work(0, Operation::kRead, id, 0, 100, 0);
    w.stream = static_cast<uint16_t>(id % 5);
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  expect(40, 0);
  EXPECT_EQ(most, 3u);
}

TEST_F(OperationOrder, EachAtomicIsExecutedOnceWhateverIsLost) {
  MR_COVERS("MR-MSG-046");
  MR_COVERS("MR-MSG-047");
  MiniNet::Options options;
  options.loss_percent = 20;
  start(options);
  constexpr uint64_t kCount = 2000;
  std::vector<uint32_t> returned(kCount);
  uint64_t posted = 0;
  while (posted < kCount) {
    auto w = work(0, Operation::kFetchAdd, posted, 8192, 8, 64);
    w.stream = static_cast<uint16_t>(posted % 7);
    w.operand = 1;
    if (post(0, w) != Status::kOk) {
      net_->run_for(milliseconds(1));
      continue;
    }
    ++posted;
  }
  expect(kCount, 0, seconds(20));
  for (const auto& c : done(0)) {
    ASSERT_EQ(c.status, Status::kOk);
    ASSERT_LT(c.old_value, kCount);
    ++returned[c.old_value];
  }
  EXPECT_EQ(word(1, 64), kCount);
  EXPECT_EQ(std::count(returned.begin(), returned.end(), 1u), static_cast<int64_t>(kCount));
}

TEST_F(OperationOrder, ThePendingTableKeepsAnEntryForOtherStreams) {
  MR_COVERS("MR-MSG-041");
  MiniNet::Options options;
  options.settings.max_pending = 8;
  start(options);
  lose_first(0, wire::Opcode::kWrite);
  uint64_t id = 0;
  // Behind the lost Write of each stream more atomics than the table has entries.
  for (uint16_t stream = 0; stream < 6; ++stream) {
    auto w = work(0, Operation::kWrite, ++id, 0, 100, 0);
    w.stream = stream;
    ASSERT_EQ(post(0, w), Status::kOk);
    for (int i = 0; i < 12; ++i) {
      auto a = work(0, Operation::kFetchAdd, ++id, 8192, 8, 4096);
      a.operand = 1;
      a.stream = stream;
      ASSERT_EQ(post(0, a), Status::kOk);
    }
  }
  expect(id, 0, seconds(2));
  for (const auto& c : done(0)) EXPECT_EQ(c.status, Status::kOk);
  EXPECT_EQ(word(1, 4096), 72u);
}

TEST_F(OperationOrder, InOrderModeShowsBytesInTheOrderOfTheirSending) {
  MR_COVERS("MR-MSG-060");
  MiniNet::Options options;
  options.loss_percent = 5;
  options.jitter = microseconds(50);  // without the mode packets overtake each other
  start(options);
  for (int side = 0; side < 2; ++side) {
    ASSERT_EQ(engine(side).set_stream_options(handle_[side], 0, {.in_order = true}), Status::kOk);
  }
  fill(0, 0, kBytes, 1);
  uint64_t seen = 0;
  bool hole = false;
  net_->on_packet = [&](uint32_t, uint32_t, const std::vector<std::byte>&) {
    uint64_t n = seen;
    while (n < 60'000 && *at(1, n) == std::byte{1}) ++n;
    for (uint64_t i = n; i < 60'000; ++i) hole = hole || *at(1, i) != std::byte{0};
    seen = n;
  };
  for (uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(post(0, work(0, Operation::kWrite, id, 0, 15'000, id * 15'000)), Status::kOk);
  }
  expect(4, 0, seconds(2));
  EXPECT_FALSE(hole);
  EXPECT_TRUE(all_are(1, 0, 60'000, 1));
}

TEST_F(OperationOrder, TheLastReceiveOfASharedQueueGoesToWhomNothingHoldsUp) {
  MR_COVERS("MR-MSG-027");
  start();
  const auto queue = engine(1).create_shared_queue();
  ASSERT_TRUE(queue);
  for (uint16_t stream = 0; stream < 3; ++stream) {
    ASSERT_EQ(engine(1).set_stream_options(handle_[1], stream, {.shared_queue = *queue}),
              Status::kOk);
  }
  lose_first(0, wire::Opcode::kSend);
  uint64_t id = 0;
  for (uint16_t stream = 0; stream < 3; ++stream) {
    for (int i = 0; i < 4; ++i) {
      auto w = work(0, Operation::kSend, ++id, 0, 100);
      w.stream = stream;
      ASSERT_EQ(post(0, w), Status::kOk);
    }
  }
  // One receive at a time: each must reach a message that can be delivered.
  for (uint64_t i = 0; i < 12; ++i) {
    ASSERT_EQ(receive(1, 100 + i, 1000 * i, 100, 0, *queue), Status::kOk);
    ASSERT_TRUE(net_->run_until([&] { return done(1).size() == i + 1; }, milliseconds(100))) << i;
  }
  expect(12, 12);
  EXPECT_EQ(engine(1).shared_queue_length(*queue), 0u);
}

TEST_F(OperationOrder, ScatteredSendsOfOneConnectionStarveNoOther) {
  start();
  const auto other = net_->connect(0, 1);
  const auto connected = [&] {
    return net_->count(0, engine::ConnectionEventKind::kConnected) == 2;
  };
  ASSERT_TRUE(net_->run_until(connected, milliseconds(50)));
  net_->run_for(milliseconds(5));
  // More packets of two pieces than there is room for at once, and one of another connection.
  for (uint64_t id = 0; id < 200; ++id) {
    const engine::Segment pieces[] = {{at(0, 0), 200}, {at(0, 1000), 200}};
    auto w = work(0, Operation::kWrite, id, 0, 400);
    w.segments = pieces;
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  auto w = work(0, Operation::kWrite, 1'000'000, 0, 8);
  w.connection = other;
  ASSERT_EQ(post(0, w), Status::kOk);
  std::vector<engine::TxRun> runs(256);
  for (int call = 0; call < 2; ++call) {
    runs.resize(256);
    runs.resize(engine(0).poll_transmit(net_->now, runs));
    ASSERT_FALSE(runs.empty());
    const bool came = std::any_of(runs.begin(), runs.end(),
                                  [&](const auto& run) { return run.connection == other; });
    EXPECT_EQ(came, call == 1);
  }
}

TEST_F(OperationOrder, AShortSharedQueueIsToldOnce) {
  MR_COVERS("MR-MSG-062");
  start();
  const auto queue = engine(1).create_shared_queue();
  ASSERT_EQ(engine(1).set_stream_options(handle_[1], 0, {.shared_queue = *queue}), Status::kOk);
  for (uint64_t i = 0; i < 32; ++i) ASSERT_EQ(receive(1, i, 0, 100, 0, *queue), Status::kOk);
  ASSERT_EQ(engine(1).arm_shared_queue(*queue, 16), Status::kOk);
  for (uint64_t i = 1; i <= 20; ++i) {
    ASSERT_EQ(post(0, work(0, Operation::kSend, i, 0, 10)), Status::kOk);
    expect(i, i);
    EXPECT_EQ(net_->count(1, engine::ConnectionEventKind::kQueueLow), i > 16 ? 1u : 0u) << i;
  }
  // Asked when it is short already: at once.
  ASSERT_EQ(engine(1).arm_shared_queue(*queue, 16), Status::kOk);
  net_->run_for(nanoseconds(1));
  EXPECT_EQ(net_->count(1, engine::ConnectionEventKind::kQueueLow), 2u);
  EXPECT_EQ(engine(1).destroy_shared_queue(*queue), Status::kFull);
}

}  // namespace
}  // namespace metaroce::pair
