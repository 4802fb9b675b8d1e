#include "message/receiver.h"

#include <gtest/gtest.h>

#include <array>

#include "base/covers.h"
#include "message/open_message.h"

namespace metaroce::message {
namespace {

using wire::Opcode;
using wire::Refusal;

struct ReceiverTest : ::testing::Test {
  static Settings make_settings() {
    Settings s;
    s.max_open_messages = 4;
    s.max_receives = 16;
    s.message_span = 8;
    return s;
  }
  Settings settings = make_settings();
  ReceivePools pools{settings};
  Receiver receiver{pools, settings, 0x10001};
  std::array<Completion, 16> done{};
  std::array<std::byte, 256> buffer{};

  static wire::DataPacket packet(Opcode op, uint32_t msn, uint32_t offset, uint32_t length,
                                 bool last, uint32_t rq = 0, uint16_t stream = 0) {
    wire::DataPacket p;
    p.opcode = op;
    p.stream = stream;
    p.msn = msn;
    p.offset = offset;
    p.payload_length = length;
    if (offset == 0) p.message_flags |= wire::message_flag::kFirst;
    if (last) p.message_flags |= wire::message_flag::kLast;
    p.rq_seq = rq;
    p.immediate = 77;
    return p;
  }
  /// kVoid stands for "accepted", which admit never answers.
  Refusal feed(const wire::DataPacket& p) {
    const Admission a = receiver.admit(p);
    if (!a.accepted) return a.reason;
    receiver.commit(p, a);
    return Refusal::kVoid;
  }
  void post(uint64_t id, uint64_t length = 256, uint16_t stream = 0) {
    ReceiveRequest r;
    r.id = id;
    r.stream = stream;
    r.buffer = buffer.data();
    r.length = length;
    ASSERT_EQ(receiver.post(r), Status::kOk);
  }
};
constexpr Refusal kAccepted = Refusal::kVoid;

TEST_F(ReceiverTest, CompletesInMsnOrder) {
  MR_COVERS("MR-MSG-010");
  MR_COVERS("MR-MSG-013");
  post(1);
  post(2);
  EXPECT_EQ(feed(packet(Opcode::kSendImm, 2, 0, 10, true, 1)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kSend, 1, 100, 100, true, 0)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kSend, 1, 0, 100, false, 0)), kAccepted);
  EXPECT_EQ(receiver.poll(done), 0u);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 0, 0, true)), kAccepted);
  ASSERT_EQ(receiver.poll(done), 2u);
  EXPECT_EQ(done[0].id, 1u);
  EXPECT_EQ(done[0].bytes, 200u);
  EXPECT_FALSE(done[0].has_immediate);
  EXPECT_EQ(done[1].id, 2u);
  EXPECT_TRUE(done[1].has_immediate);
  EXPECT_EQ(done[1].immediate, 77u);
  EXPECT_EQ(receiver.messages_delivered(), 3u);
  EXPECT_EQ(pools.messages().used(), 0u);
}

TEST_F(ReceiverTest, ASenderThatGaveUpLeavesNothingBehind) {
  MR_COVERS("MR-MSG-061");
  const uint32_t queue = *pools.create_queue();
  ASSERT_EQ(receiver.set_options(7, {.shared_queue = queue}), Status::kOk);
  ReceiveRequest r;
  r.shared_queue = queue;
  r.buffer = buffer.data();
  r.length = 256;
  for (r.id = 50; r.id < 53; ++r.id) ASSERT_EQ(pools.post_shared(r), Status::kOk);
  post(1);
  post(2);
  for (const uint16_t stream : {uint16_t{0}, uint16_t{7}}) {
    EXPECT_EQ(feed(packet(Opcode::kSend, 1, 0, 100, true, 1, stream)), kAccepted);
  }
  EXPECT_EQ(pools.messages().used(), 2u);
  receiver.on_halt(0);
  receiver.on_halt(7);
  EXPECT_EQ(pools.messages().used(), 0u);
  // Its own receives stay for the stream's next life, a borrowed one is told.
  ASSERT_EQ(receiver.poll(done), 1u);
  EXPECT_EQ(done[0].id, 50u);
  EXPECT_EQ(done[0].status, Status::kFlushed);
  EXPECT_EQ(pools.queue_length(queue), 2u);
  receiver.on_reset(0);
  EXPECT_EQ(receiver.poll(done), 2u);
}

TEST(ReceiverLimit, NoMoreIsAnnouncedThanAnAckCanTell) {
  MR_COVERS("MR-ACK-033");
  Settings settings;
  settings.max_receives = 40'000;
  ReceivePools pools(settings);
  Receiver receiver(pools, settings, 0x10001);
  ReceiveRequest r;
  r.stream = 3;
  for (r.id = 0; r.id < 40'000; ++r.id) {
    ASSERT_EQ(receiver.post(r), Status::kOk);
    ASSERT_EQ(receiver.limit(3), std::min<uint64_t>(r.id + 1, 32'767));
  }
}

TEST_F(ReceiverTest, AClosedStreamStarvesForNothing) {
  const uint32_t queue = *pools.create_queue();
  {
    Receiver other(pools, settings, 0x20002);
    ASSERT_EQ(other.set_options(7, {.shared_queue = queue}), Status::kOk);
    other.on_reset(7);
    other.on_credit_asked(7);  // a probe that was under way
  }
  ConnectionHandle connection = 0;
  uint16_t stream = 0;
  EXPECT_FALSE(pools.take_starved(queue, connection, stream));
}

TEST_F(ReceiverTest, SendGoesToItsBuffer) {
  post(1);
  const Admission a = receiver.admit(packet(Opcode::kSend, 0, 40, 10, false, 0));
  ASSERT_TRUE(a.accepted);
  EXPECT_EQ(a.address, buffer.data() + 40);
  EXPECT_FALSE(a.check_memory);
  EXPECT_TRUE(receiver.admit(packet(Opcode::kWrite, 1, 40, 10, false)).check_memory);
}

TEST_F(ReceiverTest, AdmissionAloneLeavesNoTrace) {
  post(1);
  const uint64_t before = receiver.hash();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(receiver.admit(packet(Opcode::kSend, 0, 0, 10, false, 0)).accepted);
  }
  EXPECT_EQ(pools.messages().used(), 0u);
  EXPECT_EQ(receiver.hash(), before);
  EXPECT_EQ(feed(packet(Opcode::kSend, 0, 0, 10, true, 0)), kAccepted);
  EXPECT_NE(receiver.hash(), before);
}

TEST_F(ReceiverTest, NotReadyWithoutReceive) {
  MR_COVERS("MR-MSG-022");
  MR_COVERS("MR-MSG-025");
  uint16_t stream = 9;
  const Admission a = receiver.admit(packet(Opcode::kSend, 0, 0, 10, true, 0));
  EXPECT_FALSE(a.accepted);
  EXPECT_EQ(a.reason, Refusal::kNotReady);
  EXPECT_EQ(a.rq_seq, 0u);
  EXPECT_FALSE(receiver.credit_news(stream));
  post(1);
  EXPECT_EQ(receiver.limit(0), 1u);
  ASSERT_TRUE(receiver.credit_news(stream));
  EXPECT_EQ(stream, 0);
  EXPECT_FALSE(receiver.credit_news(stream));
  post(2);  // the sender has credit left
  EXPECT_FALSE(receiver.credit_news(stream));
  receiver.on_credit_asked(0);
  post(3);
  EXPECT_TRUE(receiver.credit_news(stream));
}

TEST_F(ReceiverTest, OnlyTheLastPacketOfAWriteImmNeedsAReceive) {
  EXPECT_EQ(feed(packet(Opcode::kWriteImm, 0, 0, 10, false)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kWriteImm, 0, 10, 10, true, 0)), Refusal::kNotReady);
  post(1, 0);  // its buffer is not written
  EXPECT_EQ(feed(packet(Opcode::kWriteImm, 0, 10, 10, true, 0)), kAccepted);
  ASSERT_EQ(receiver.poll(done), 1u);
  EXPECT_EQ(done[0].operation, Operation::kReceive);
  EXPECT_EQ(done[0].bytes, 20u);
  EXPECT_TRUE(done[0].has_immediate);
}

TEST_F(ReceiverTest, SpanAndOldMessages) {
  MR_COVERS("MR-MSG-012");
  EXPECT_EQ(feed(packet(Opcode::kWrite, 8, 0, 1, true)), Refusal::kSpan);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 7, 0, 1, true)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 0, 1, true)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 8, 0, 1, true)), kAccepted);
  EXPECT_EQ(receiver.stale(), 0u);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 0, 1, true)), Refusal::kUnknown);
  EXPECT_EQ(receiver.stale(), 1u);
}

TEST_F(ReceiverTest, LengthRules) {
  MR_COVERS("MR-MSG-016");
  MR_COVERS("MR-MSG-026");
  post(1, 50);
  EXPECT_EQ(feed(packet(Opcode::kSend, 0, 0, 51, true, 0)), Refusal::kLength);
  EXPECT_EQ(feed(packet(Opcode::kSend, 0, 40, 11, true, 0)), Refusal::kLength);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 10, 10, false)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 5, 10, true)), Refusal::kLength);  // below a byte
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 20, 10, true)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 25, 10, false)), Refusal::kLength);  // beyond
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 20, 10, true)), Refusal::kLength);   // twice
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 0, 11, false)), Refusal::kLength);   // too many bytes
  EXPECT_EQ(feed(packet(Opcode::kWriteImm, 1, 0, 10, false)), Refusal::kUnsupported);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 0, 10, false)), kAccepted);
}

TEST_F(ReceiverTest, TwoMessagesCannotTakeOneReceive) {
  post(1);
  post(2);
  EXPECT_EQ(feed(packet(Opcode::kSend, 1, 0, 10, true, 0)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kSend, 2, 0, 10, true, 0)), Refusal::kUnsupported);
  EXPECT_EQ(feed(packet(Opcode::kSend, 0, 0, 10, true, 1)), Refusal::kUnsupported);
}

TEST_F(ReceiverTest, ReceivesOutOfOrderCloseTheStream) {
  post(1);
  post(2);
  EXPECT_EQ(feed(packet(Opcode::kSend, 1, 0, 10, true, 1)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 0, 10, true)), kAccepted);
  ASSERT_EQ(receiver.poll(done), 2u);
  EXPECT_EQ(done[0].status, Status::kPeerFailed);
  EXPECT_EQ(done[1].status, Status::kFlushed);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 0, 10, true)), Refusal::kStreamClosed);
}

TEST_F(ReceiverTest, LastEntryIsForTheNextMessage) {
  MR_COVERS("MR-MSG-027");
  for (uint32_t msn = 1; msn <= 3; ++msn) {
    EXPECT_EQ(feed(packet(Opcode::kWrite, msn, 0, 10, true)), kAccepted);
  }
  EXPECT_EQ(feed(packet(Opcode::kWrite, 4, 0, 10, true)), Refusal::kNoOpenMessage);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 1, 0, 10, true, 0, 3)), Refusal::kNoOpenMessage);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 0, 10, false)), kAccepted);
  // A whole message that is next needs none.
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 0, 10, true, 0, 3)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 10, 10, true)), kAccepted);
  EXPECT_EQ(receiver.messages_delivered(), 5u);
  EXPECT_EQ(pools.messages().used(), 0u);
}

TEST_F(ReceiverTest, OperationsThatNobodyExecutesAreRefused) {
  EXPECT_EQ(feed(packet(Opcode::kReadRequest, 0, 0, 0, true)), Refusal::kUnsupported);
  EXPECT_EQ(feed(packet(Opcode::kFetchAdd, 0, 0, 0, true)), Refusal::kUnsupported);
}

TEST_F(ReceiverTest, ResetFlushesOnceAndForGood) {
  MR_COVERS("MR-MSG-006");
  MR_COVERS("MR-MSG-007");
  for (uint64_t i = 1; i <= 3; ++i) post(i);
  EXPECT_EQ(feed(packet(Opcode::kSend, 0, 0, 10, true, 0)), kAccepted);
  EXPECT_EQ(feed(packet(Opcode::kSend, 1, 0, 10, false, 1)), kAccepted);
  receiver.on_reset(0);
  receiver.on_reset(0);
  ASSERT_EQ(receiver.poll(done), 3u);
  EXPECT_EQ(done[0].status, Status::kOk);
  EXPECT_EQ(done[1].status, Status::kFlushed);
  EXPECT_EQ(done[2].status, Status::kFlushed);
  EXPECT_EQ(pools.messages().used(), 0u);
  EXPECT_EQ(feed(packet(Opcode::kSend, 1, 10, 10, true, 1)), Refusal::kStreamClosed);
  post(4);
  ASSERT_EQ(receiver.poll(done), 1u);
  EXPECT_EQ(done[0].status, Status::kFlushed);
  EXPECT_EQ(feed(packet(Opcode::kWrite, 0, 0, 10, true, 0, 1)), kAccepted);  // others go on
}

TEST_F(ReceiverTest, FailAllNamesTheCauseOncePerStream) {
  for (uint16_t s = 0; s < 2; ++s) {
    post(1, 10, s);
    post(2, 10, s);
  }
  receiver.fail_all(Status::kUnresponsive);
  ASSERT_EQ(receiver.poll(done), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done[i].status, done[i].id == 1 ? Status::kUnresponsive : Status::kFlushed);
  }
  uint16_t stream = 0;
  EXPECT_FALSE(receiver.credit_news(stream));
}

TEST(ReceivePools, ExhaustionIsRetriable) {
  MR_COVERS("MR-MSG-028");
  Settings settings;
  settings.max_streams = 1;
  settings.max_receives = 2;
  ReceivePools pools(settings);
  {
    Receiver receiver(pools, settings, 3);
    ReceiveRequest r;
    ASSERT_EQ(receiver.post(r), Status::kOk);
    r.stream = 1;
    EXPECT_EQ(receiver.post(r), Status::kFull);
    wire::DataPacket p;
    p.stream = 1;
    EXPECT_EQ(receiver.admit(p).reason, Refusal::kNoResource);
    r.stream = 0;
    ASSERT_EQ(receiver.post(r), Status::kOk);
    EXPECT_EQ(receiver.post(r), Status::kFull);
  }
  EXPECT_EQ(pools.streams().used(), 0u);
  EXPECT_EQ(pools.receives().used(), 0u);
  EXPECT_EQ(pools.receive_index().size(), 0u);
  EXPECT_EQ(pools.stream_index().size(), 0u);
}

}  // namespace
}  // namespace metaroce::message
