// Each operation by itself, as a program sees it: bytes, old values, completions.
#include "base/covers.h"
#include "tests/pair/operations_rig.h"

namespace metaroce::pair {
namespace {

using engine::Operation;

class Operations : public OperationsRig {
 protected:
  void SetUp() override { start(); }
};

TEST_F(Operations, AReadFetchesWhatStandsThere) {
  MR_COVERS("MR-MSG-045");
  fill(1, 4096, 10'000, 7);
  ASSERT_EQ(post(0, work(0, Operation::kRead, 1, 0, 10'000, 4096)), Status::kOk);
  expect(1, 0);
  EXPECT_EQ(done(0)[0].status, Status::kOk);
  EXPECT_EQ(done(0)[0].bytes, 10'000u);
  EXPECT_TRUE(all_are(0, 0, 10'000, 7));
  EXPECT_TRUE(all_are(0, 10'000, 100, 0));
}

TEST_F(Operations, AtomicsReturnTheOldValueAndActOnce) {
  MR_COVERS("MR-MSG-049");
  set_word(1, 64, 40);
  auto add = work(0, Operation::kFetchAdd, 1, 8, 8, 64);
  add.operand = 2;
  ASSERT_EQ(post(0, add), Status::kOk);
  auto swap = work(0, Operation::kCompareSwap, 2, 16, 8, 64);
  swap.operand = 42;
  swap.swap = 99;
  ASSERT_EQ(post(0, swap), Status::kOk);
  swap.id = 3;
  swap.result = nullptr;  // the completion tells it, too
  ASSERT_EQ(post(0, swap), Status::kOk);
  expect(3, 0);
  EXPECT_EQ(word(1, 64), 99u);
  EXPECT_EQ(word(0, 8), 40u);
  EXPECT_EQ(word(0, 16), 42u);
  EXPECT_EQ(done(0)[0].old_value, 40u);
  EXPECT_EQ(done(0)[1].old_value, 42u);
  EXPECT_EQ(done(0)[2].old_value, 99u);
}

TEST_F(Operations, ScatteredAndGatheredBytesArriveInOrder) {
  for (uint64_t i = 0; i < 9'000; ++i) *at(0, i) = static_cast<std::byte>(i * 7);
  std::vector<engine::Segment> from;
  for (uint64_t i = 0, begin = 0; i < 16; ++i) {
    const uint64_t length = i == 15 ? 9'000 - begin : 10 + 37 * i;
    from.push_back({at(0, begin), length});
    begin += length;
  }
  const std::vector<engine::Segment> into{
      {at(1, 0), 1}, {at(1, 10), 0}, {at(1, 20), 3'000}, {at(1, 4'000), 9'000}};
  Status status = Status::kOk;
  engine::ReceiveRequest r;
  r.id = 9;
  r.connection = handle_[1];
  r.segments = into;
  ASSERT_EQ(engine(1).post_receives(net_->now, {&r, 1}, status), 1u);
  auto w = work(0, Operation::kSend, 1, 0, 0);
  w.segments = from;
  ASSERT_EQ(post(0, w), Status::kOk);
  expect(1, 1);
  EXPECT_EQ(done(1)[0].bytes, 9'000u);
  for (uint64_t i = 0; i < 9'000; ++i) {
    const uint64_t place = i < 1 ? 0 : i < 3'001 ? 20 + i - 1 : 4'000 + i - 3'001;
    ASSERT_EQ(*at(1, place), static_cast<std::byte>(i * 7)) << i;
  }
  EXPECT_TRUE(all_are(1, 1, 19, 0));
}

TEST_F(Operations, AReadIsScatteredToo) {
  for (uint64_t i = 0; i < 5'000; ++i) *at(1, i) = static_cast<std::byte>(i * 11);
  const std::vector<engine::Segment> into{
      {at(0, 0), 1'500}, {at(0, 2'000), 1}, {at(0, 3'000), 3'499}};
  auto w = work(0, Operation::kRead, 1, 0, 0);
  w.segments = into;
  ASSERT_EQ(post(0, w), Status::kOk);
  expect(1, 0);
  for (uint64_t i = 0; i < 5'000; ++i) {
    const uint64_t place = i < 1'500 ? i : i < 1'501 ? 2'000 : 3'000 + i - 1'501;
    ASSERT_EQ(*at(0, place), static_cast<std::byte>(i * 11)) << i;
  }
}

TEST_F(Operations, ACopiedRequestGivesItsBytesBackAtOnce) {
  fill(0, 0, 256, 5);
  auto w = work(0, Operation::kWrite, 1, 0, 256, 512);
  w.copied = true;
  ASSERT_EQ(post(0, w), Status::kOk);
  fill(0, 0, 256, 6);
  expect(1, 0);
  EXPECT_TRUE(all_are(1, 512, 256, 5));
  w.length = 257;
  EXPECT_EQ(post(0, w), Status::kInvalid);
}

TEST_F(Operations, UnsignalledSuccessIsSilentAndFailureIsNot) {
  auto w = work(0, Operation::kWrite, 1, 0, 100, 0);
  w.signalled = false;
  ASSERT_EQ(post(0, w), Status::kOk);
  w.id = 2;
  w.remote_key ^= 1;
  ASSERT_EQ(post(0, w), Status::kOk);
  w.id = 3;
  ASSERT_EQ(post(0, w), Status::kOk);
  expect(2, 0);
  EXPECT_EQ(ends(0, false), (Ends{{2, Status::kAccess}, {3, Status::kFlushed}}));
}

TEST_F(Operations, SendWithInvalidateEndsTheKeyBeforeItsReceiveIsTold) {
  MR_COVERS("MR-MEM-008");
  const auto window = engine(1).regions().add_window(region_[1].index, 0, 4096,
                                                     kAll | memory::access::kRemoteInvalidate, 0);
  ASSERT_TRUE(window);
  ASSERT_EQ(receive(1, 9, 8192, 100), Status::kOk);
  auto write = work(0, Operation::kWrite, 1, 0, 64, 0);
  write.remote_key = window->key;
  ASSERT_EQ(post(0, write), Status::kOk);
  auto send = work(0, Operation::kSendInv, 2, 0, 64);
  send.immediate = window->key;
  ASSERT_EQ(post(0, send), Status::kOk);
  expect(2, 1);
  EXPECT_TRUE(done(1)[0].invalidated);
  EXPECT_EQ(done(1)[0].immediate, window->key);
  EXPECT_FALSE(
      engine(1).regions().check(window->key, window->remote_base, 8, memory::access::kRemoteWrite));
  // The region itself did not allow it.
  send.id = 3;
  send.immediate = region_[1].key;
  ASSERT_EQ(receive(1, 10, 8192, 100), Status::kOk);
  ASSERT_EQ(post(0, send), Status::kOk);
  net_->run_for(milliseconds(20));
  EXPECT_EQ(done(0).back().status, Status::kAccess);
}

TEST_F(Operations, AFenceWaitsForTheReadBeforeIt) {
  MR_COVERS("MR-MSG-043");
  fill(1, 0, 30'000, 1);
  fill(0, 40'000, 30'000 > kBytes - 40'000 ? kBytes - 40'000 : 30'000, 2);
  ASSERT_EQ(post(0, work(0, Operation::kRead, 1, 0, 20'000, 0)), Status::kOk);
  auto write = work(0, Operation::kWrite, 2, 40'000, 20'000, 0);
  write.fence = true;  // without it the Read may see these bytes
  ASSERT_EQ(post(0, write), Status::kOk);
  expect(2, 0);
  EXPECT_TRUE(all_are(0, 0, 20'000, 1));
  EXPECT_TRUE(all_are(1, 0, 20'000, 2));
}

TEST_F(Operations, V18ZeroBytesEverywhere) {
  MR_COVERS("MR-MEM-005");
  MR_COVERS("MR-MSG-011");
  ASSERT_EQ(receive(1, 10, 0, 0), Status::kOk);
  ASSERT_EQ(receive(1, 11, 0, 0), Status::kOk);
  ASSERT_EQ(receive(1, 12, 0, 0), Status::kOk);
  const std::vector<engine::Segment> nothing{{nullptr, 0}, {nullptr, 0}};
  uint64_t id = 0;
  for (const Operation op : {Operation::kSend, Operation::kWrite, Operation::kRead,
                             Operation::kWriteImm, Operation::kSendImm, Operation::kRead}) {
    auto w = work(0, op, ++id, 0, 0);
    w.local = w.result = nullptr;
    w.remote_key = 0xBAD;  // not looked at
    w.remote_address = ~0ull;
    if (id % 2 == 0) w.segments = nothing;
    w.copied = id == 4;
    ASSERT_EQ(post(0, w), Status::kOk);
  }
  expect(6, 3);
  for (const auto& c : done(0)) {
    EXPECT_EQ(c.status, Status::kOk) << c.id;
    EXPECT_EQ(c.bytes, 0u);
  }
  for (const auto& c : done(1)) EXPECT_EQ(c.bytes, 0u);
}

TEST_F(Operations, V19AMessageOfTwoGiBAndNotOneByteMore) {
  MR_COVERS("MR-MSG-011");
  auto w = work(0, Operation::kWrite, 1, 0, (uint64_t{1} << 31) + 1);
  w.local = nullptr;
  EXPECT_EQ(post(0, w), Status::kInvalid);
  const std::vector<engine::Segment> two{{nullptr, uint64_t{1} << 31}, {nullptr, 1}};
  w.segments = two;
  EXPECT_EQ(post(0, w), Status::kInvalid);
  const uint64_t size = uint64_t{1} << 31;
  const auto large = engine(1).regions().add_at(nullptr, size, kAll, 4096);
  ASSERT_TRUE(large);
  w.segments = {};
  w.length = size;
  w.remote_address = 4096;
  w.remote_key = large->key;
  ASSERT_EQ(post(0, w), Status::kOk);
  net_->run_until([&] { return !done(0).empty(); }, seconds(600));
  ASSERT_EQ(done(0).size(), 1u);
  EXPECT_EQ(done(0)[0].status, Status::kOk);
  EXPECT_EQ(done(0)[0].bytes, size);
  EXPECT_EQ(net_->node(1).placed_bytes, size);
}

TEST_F(Operations, V17TooManySegmentsOrAFullQueueTakesWhatIsBefore) {
  const std::vector<engine::Segment> many(17, engine::Segment{at(0, 0), 1});
  std::vector<engine::WorkRequest> list;
  for (uint64_t id = 0; id < 10; ++id) list.push_back(work(0, Operation::kWrite, id, 0, 8, 8 * id));
  list[6].segments = many;
  Status status = Status::kOk;
  EXPECT_EQ(engine(0).post(net_->now, list, status), 6u);
  EXPECT_EQ(status, Status::kInvalid);
  expect(6, 0);
  // Never signalled until full: nothing is lost, and there is room again when they are done.
  uint32_t taken = 0;
  auto w = work(0, Operation::kWrite, 1, 0, 8, 0);
  w.signalled = false;
  while ((status = post(0, w)) == Status::kOk) ++taken;
  EXPECT_EQ(status, Status::kFull);
  EXPECT_EQ(taken, MiniNet::mini_settings().max_sends);
  net_->run_for(milliseconds(200));
  EXPECT_EQ(post(0, w), Status::kOk);
}

TEST_F(Operations, AnUnorderedSendDoesNotWaitForTheMessageBeforeIt) {
  MR_COVERS("MR-MSG-017");
  ASSERT_EQ(receive(1, 10, 0, 100), Status::kOk);
  ASSERT_EQ(receive(1, 11, 200, 100), Status::kOk);
  net_->run_for(milliseconds(5));
  // The first message loses its packet once: the second is there long before.
  bool lose = true;
  net_->drop = [&](uint32_t from, const std::vector<std::byte>& bytes) {
    const bool data = (std::to_integer<int>(bytes[0]) & 0x3F) == 1;
    return from == 0 && data && std::exchange(lose, lose && !data);
  };
  auto first = work(0, Operation::kSend, 1, 0, 50);
  auto second = work(0, Operation::kSend, 2, 0, 60);
  second.unordered = true;
  ASSERT_EQ(post(0, first), Status::kOk);
  net_->run_for(nanoseconds(1));
  ASSERT_EQ(post(0, second), Status::kOk);
  expect(2, 2);
  EXPECT_EQ(ends(1, true), (Ends{{11, Status::kOk}, {10, Status::kOk}}));
  EXPECT_EQ(ends(0, false), (Ends{{1, Status::kOk}, {2, Status::kOk}}));
}

}  // namespace
}  // namespace metaroce::pair
