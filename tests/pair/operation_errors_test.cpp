// How operations fail, as the InfiniBand rules have it: who gets which status, in which order, and
// who goes on. Where a soft RoCE device is known to differ there is a remark.
#include "base/covers.h"
#include "tests/pair/operations_rig.h"

namespace metaroce::pair {
namespace {

using engine::Operation;

class OperationErrors : public OperationsRig {
 protected:
  void SetUp() override { start(); }
};

TEST_F(OperationErrors, ThreeWritesAndASendOnlyTheLastSignalled) {
  ASSERT_EQ(receive(1, 50, 0, 100), Status::kOk);
  for (uint64_t id = 1; id <= 3; ++id) {
    auto w = work(0, Operation::kWrite, id, 0, 100, 0);
    w.signalled = id == 3;
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  ASSERT_EQ(post(0, work(0, Operation::kSend, 4, 0, 100)), Status::kOk);
  expect(2, 1);
  EXPECT_EQ(ends(0, false), (Ends{{3, Status::kOk}, {4, Status::kOk}}));
  EXPECT_EQ(ends(1, true), (Ends{{50, Status::kOk}}));
}

TEST_F(OperationErrors, ABadKeyIsToldAndEverythingBehindIsFlushed) {
  MR_COVERS("MR-MSG-030");
  MR_COVERS("MR-MEM-002");
  ASSERT_EQ(receive(1, 50, 0, 100), Status::kOk);
  for (uint64_t id = 1; id <= 4; ++id) {
    auto w = work(0, Operation::kWrite, id, 0, 100, 0);
    w.signalled = id != 1;
    if (id == 2) w.remote_key ^= 0x5555;
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  expect(3, 1);
  EXPECT_EQ(ends(0, false),
            (Ends{{2, Status::kAccess}, {3, Status::kFlushed}, {4, Status::kFlushed}}));
  EXPECT_EQ(ends(1, true), (Ends{{50, Status::kFlushed}}));
}

TEST_F(OperationErrors, AMissingRightFailsAndTheUnsignalledSendBehindIsFlushedAloud) {
  MR_COVERS("MR-MEM-004");
  const auto read_only = engine(1).regions().add(at(1, 0), 4096, memory::access::kRemoteRead);
  ASSERT_EQ(receive(1, 50, 0, 100), Status::kOk);
  auto w = work(0, Operation::kWrite, 1, 0, 100, 0);
  w.remote_key = read_only->key;
  ASSERT_EQ(post(0, w), Status::kOk);
  auto s = work(0, Operation::kSend, 2, 0, 100);
  s.signalled = false;
  ASSERT_EQ(post(0, s), Status::kOk);
  expect(2, 1);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kAccess}, {2, Status::kFlushed}}));
  EXPECT_EQ(ends(1, true), (Ends{{50, Status::kFlushed}}));
  EXPECT_TRUE(all_are(1, 0, 4096, 0));
}

TEST_F(OperationErrors, AWriteBeyondTheRegionPlacesNothingOutside) {
  MR_COVERS("MR-MEM-003");
  const auto small = engine(1).regions().add(at(1, 0), 1000, kAll);
  fill(0, 0, 2000, 1);
  auto w = work(0, Operation::kWrite, 1, 0, 1001, 0);
  w.remote_key = small->key;
  ASSERT_EQ(post(0, w), Status::kOk);
  expect(1, 0);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kAccess}}));
  EXPECT_TRUE(all_are(1, 1000, 1000, 0));
}

TEST_F(OperationErrors, V01NoReceiveAndOneRetry) {
  MR_COVERS("MR-MSG-061");
  engine(0).set_stream_options(handle_[0], 0, {.rnr_retry = 1});
  ASSERT_EQ(post(0, work(0, Operation::kSend, 1, 0, 100)), Status::kOk);
  ASSERT_EQ(post(0, work(0, Operation::kSend, 2, 0, 100)), Status::kOk);
  expect(2, 0);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kNotReady}, {2, Status::kFlushed}}));
  // The receiver did nothing wrong: what it posts now stays posted.
  ASSERT_EQ(receive(1, 50, 0, 100), Status::kOk);
  net_->run_for(milliseconds(20));
  EXPECT_TRUE(done(1).empty());
}

TEST_F(OperationErrors, V01SevenWaitsForEver) {
  engine(0).set_stream_options(handle_[0], 0, {.rnr_retry = engine::kRetryForEver});
  fill(0, 0, 100, 3);
  ASSERT_EQ(post(0, work(0, Operation::kSend, 1, 0, 100)), Status::kOk);
  net_->run_for(seconds(1));
  EXPECT_TRUE(done(0).empty());
  EXPECT_TRUE(all_are(1, 0, 100, 0));
  ASSERT_EQ(receive(1, 50, 0, 100), Status::kOk);
  expect(1, 1);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kOk}}));
  EXPECT_TRUE(all_are(1, 0, 100, 3));
}

TEST_F(OperationErrors, V01ZeroRetriesFailAtTheFirstAnswer) {
  engine(0).set_stream_options(handle_[0], 0, {.rnr_retry = 0});
  ASSERT_EQ(post(0, work(0, Operation::kSend, 1, 0, 100)), Status::kOk);
  expect(1, 0, milliseconds(5));
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kNotReady}}));
}

// InfiniBand: remote invalid request at the sender, local length error at the receiver. (The soft
// device says remote operation error and local QP operation error.)
TEST_F(OperationErrors, ASendLongerThanItsReceive) {
  MR_COVERS("MR-MSG-026");
  ASSERT_EQ(receive(1, 50, 0, 32), Status::kOk);
  ASSERT_EQ(receive(1, 51, 100, 100), Status::kOk);
  ASSERT_EQ(post(0, work(0, Operation::kSend, 1, 0, 64)), Status::kOk);
  ASSERT_EQ(post(0, work(0, Operation::kSend, 2, 0, 64)), Status::kOk);
  expect(2, 2);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kLength}, {2, Status::kFlushed}}));
  EXPECT_EQ(ends(1, true), (Ends{{50, Status::kLength}, {51, Status::kFlushed}}));
}

TEST_F(OperationErrors, APeerThatResetItsStreamFlushesItsReceivesAtOnce) {
  MR_COVERS("MR-MSG-006");
  ASSERT_EQ(receive(1, 50, 0, 100), Status::kOk);
  ASSERT_EQ(receive(1, 51, 0, 100), Status::kOk);
  engine(1).reset_stream(net_->now, handle_[1], 0);
  net_->run_for(nanoseconds(1));
  EXPECT_EQ(ends(1, true), (Ends{{50, Status::kFlushed}, {51, Status::kFlushed}}));
  ASSERT_EQ(post(0, work(0, Operation::kWrite, 1, 0, 100, 0)), Status::kOk);
  ASSERT_EQ(post(0, work(0, Operation::kWrite, 2, 0, 100, 0)), Status::kOk);
  expect(2, 2);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kPeerFailed}, {2, Status::kFlushed}}));
  // Another stream of the same connection has not noticed.
  auto w = work(0, Operation::kWrite, 3, 0, 100, 0);
  w.stream = 1;
  ASSERT_EQ(post(0, w), Status::kOk);
  expect(3, 2);
  EXPECT_EQ(done(0).back().status, Status::kOk);
}

TEST_F(OperationErrors, WriteWithImmediateThenRead) {
  ASSERT_EQ(receive(1, 50, 0, 0), Status::kOk);
  fill(0, 0, 500, 9);
  auto w = work(0, Operation::kWriteImm, 1, 0, 500, 1000);
  w.immediate = 77;
  ASSERT_EQ(post(0, w), Status::kOk);
  ASSERT_EQ(post(0, work(0, Operation::kRead, 2, 600, 500, 1000)), Status::kOk);
  expect(2, 1);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kOk}, {2, Status::kOk}}));
  EXPECT_EQ(done(1)[0].immediate, 77u);
  EXPECT_TRUE(all_are(0, 600, 500, 9));
}

TEST_F(OperationErrors, V06ManyPostedOneCauseTheRestFlushedInOrder) {
  MR_COVERS("MR-MSG-014");
  for (uint64_t id = 0; id < 50; ++id) ASSERT_EQ(receive(1, 1000 + id, 0, 100), Status::kOk);
  for (uint64_t id = 0; id < 100; ++id) {
    auto w = work(0, id % 2 == 0 ? Operation::kSend : Operation::kWrite, id, 0, 100, 0);
    w.signalled = id % 10 == 0;
    if (id == 37) w.remote_key ^= 1;
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  expect(4 + 63, 50);
  const Ends mine = ends(0, false);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(mine[i], (std::pair<uint64_t, Status>{i * 10, Status::kOk}));
  EXPECT_EQ(mine[4], (std::pair<uint64_t, Status>{37, Status::kAccess}));
  for (size_t i = 5; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i], (std::pair<uint64_t, Status>{33 + i, Status::kFlushed}));
  }
  const Ends theirs = ends(1, true);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(theirs[i],
              (std::pair<uint64_t, Status>{1000 + i, i < 19 ? Status::kOk : Status::kFlushed}));
  }
}

TEST_F(OperationErrors, V20AMisalignedAtomicChangesNothing) {
  MR_COVERS("MR-MSG-049");
  for (uint64_t offset = 0; offset <= 8; ++offset) {
    auto w = work(0, offset % 2 == 0 ? Operation::kFetchAdd : Operation::kCompareSwap, offset, 0, 8,
                  offset);
    w.stream = static_cast<uint16_t>(offset);
    w.operand = offset % 2 == 0 ? 1 : 0;
    w.swap = 5;
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  expect(9, 0);
  for (const auto& c : done(0)) {
    EXPECT_EQ(c.status, c.id % 8 == 0 ? Status::kOk : Status::kUnsupported) << c.id;
  }
  EXPECT_EQ(word(1, 0), 1u);
  EXPECT_EQ(word(1, 8), 1u);
  const auto plain = engine(1).regions().add(at(1, 0), 64, memory::access::kRemoteWrite);
  auto w = work(0, Operation::kFetchAdd, 20, 0, 8, 0);
  w.stream = 20;
  w.remote_key = plain->key;
  w.operand = 1;
  ASSERT_EQ(post(0, w), Status::kOk);
  expect(10, 0);
  EXPECT_EQ(done(0).back().status, Status::kAccess);
  EXPECT_EQ(word(1, 0), 1u);
}

TEST_F(OperationErrors, ARegionThatGoesMidwayEndsTheRead) {
  MR_COVERS("MR-MSG-048");
  MR_COVERS("MR-MEM-007");
  const auto large = engine(1).regions().add_at(nullptr, 1 << 30, kAll, 0);
  auto w = work(0, Operation::kRead, 1, 0, 1 << 30, 0);
  w.result = nullptr;
  w.remote_address = 0;
  w.remote_key = large->key;
  ASSERT_EQ(post(0, w), Status::kOk);
  net_->run_for(milliseconds(3));
  EXPECT_TRUE(done(0).empty());
  EXPECT_EQ(engine(1).regions().remove(large->index), Status::kOk);
  expect(1, 0);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kAccess}}));
}

TEST_F(OperationErrors, ADrainedStreamDeliversEverythingFirst) {
  MR_COVERS("MR-MSG-006");
  for (uint64_t id = 0; id < 3; ++id) ASSERT_EQ(receive(1, 50 + id, 0, 100), Status::kOk);
  ASSERT_EQ(post(0, work(0, Operation::kSend, 1, 0, 100)), Status::kOk);
  ASSERT_EQ(post(0, work(0, Operation::kSend, 2, 0, 100)), Status::kOk);
  engine(0).drain_stream(net_->now, handle_[0], 0);
  EXPECT_EQ(post(0, work(0, Operation::kSend, 3, 0, 100)), Status::kClosed);
  expect(2, 3);
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kOk}, {2, Status::kOk}}));
  EXPECT_EQ(ends(1, true), (Ends{{50, Status::kOk}, {51, Status::kOk}, {52, Status::kFlushed}}));
}

TEST_F(OperationErrors, AStreamServesAgainAfterBothSidesResetIt) {
  MR_COVERS("MR-MSG-007");
  MR_COVERS("MR-MSG-064");
  for (uint64_t life = 0; life < 20; ++life) {
    const size_t before = done(0).size();
    ASSERT_EQ(receive(1, 50, 0, 100), Status::kOk);
    ASSERT_EQ(receive(1, 51, 0, 100), Status::kOk);
    fill(0, 0, 100, static_cast<uint8_t>(life));
    ASSERT_EQ(post(0, work(0, Operation::kSend, 1, 0, 100)), Status::kOk);
    net_->run_until([&] { return done(0).size() > before; }, milliseconds(50));
    ASSERT_EQ(done(0).back().status, Status::kOk);
    EXPECT_TRUE(all_are(1, 0, 100, static_cast<uint8_t>(life)));
    EXPECT_EQ(engine(0).reopen_stream(handle_[0], 0), Status::kFull);
    engine(0).reset_stream(net_->now, handle_[0], 0);
    engine(1).reset_stream(net_->now, handle_[1], 0);
    net_->run_for(milliseconds(5));
    ASSERT_EQ(engine(0).reopen_stream(handle_[0], 0), Status::kOk);
    ASSERT_EQ(engine(1).reopen_stream(handle_[1], 0), Status::kOk);
  }
}

TEST_F(OperationErrors, C01KeysShowNoOrderAndGuessesHitNothing) {
  MR_COVERS("MR-MEM-001");
  std::vector<uint32_t> keys;
  uint32_t rising = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto r = engine(1).regions().add(at(1, 0), 64, kAll);
    ASSERT_TRUE(r);
    rising += !keys.empty() && r->key > keys.back();
    keys.push_back(r->key);
    ASSERT_EQ(engine(1).regions().remove(r->index), Status::kOk);
  }
  EXPECT_GT(rising, 400u);
  EXPECT_LT(rising, 600u);
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
  Rng guess(7);
  for (int i = 0; i < 1'000'000; ++i) {
    const uint32_t key = guess.next32();
    EXPECT_FALSE(
        engine(1).regions().check(key, region_[1].remote_base, 8, memory::access::kRemoteWrite) &&
        key != region_[1].key);
  }
}

TEST_F(OperationErrors, C02AKeyOfAnotherDomainIsNoKey) {
  MR_COVERS("MR-MEM-002");
  const auto mine = engine(1).regions().add_window(region_[1].index, 0, 4096, kAll, 5);
  const auto theirs = engine(1).regions().add_window(region_[1].index, 0, 4096, kAll, 6);
  engine(1).set_domain(handle_[1], 5);
  uint64_t id = 0;
  for (const Operation op : {Operation::kWrite, Operation::kRead, Operation::kFetchAdd}) {
    auto w = work(0, op, ++id, 0, 8, 0);
    w.stream = static_cast<uint16_t>(id);
    w.remote_key = mine->key;
    ASSERT_EQ(post(0, w), Status::kOk);
    w.id = ++id;
    w.remote_key = theirs->key;
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  expect(6, 0);
  for (const auto& c : done(0)) {
    EXPECT_EQ(c.status, c.id % 2 == 1 ? Status::kOk : Status::kAccess) << c.id;
  }
}

}  // namespace
}  // namespace metaroce::pair
