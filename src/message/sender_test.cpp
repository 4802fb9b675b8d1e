#include "message/sender.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/covers.h"
#include "base/types.h"
#include "message/send_stream.h"

namespace metaroce::message {
namespace {

using wire::Refusal;

struct SenderTest : ::testing::Test {
  Settings settings;
  SendPools pools{settings};
  Sender sender{pools, settings, 0x10001};
  Time now{1000};
  std::array<Completion, 16> done{};

  Status post(uint64_t id, Operation operation, uint64_t length, uint16_t stream = 0) {
    WorkRequest r;
    r.id = id;
    r.stream = stream;
    r.operation = operation;
    r.length = length;
    r.immediate = static_cast<uint32_t>(id) + 1000;
    r.remote_key = 9;
    r.remote_address = 0x5000;
    return sender.post(r);
  }
  std::vector<Fragment> take(uint32_t payload = 1024, size_t most = 15) {
    std::vector<Fragment> out(most);
    out.resize(sender.take(now, payload, out));
    return out;
  }
  /// An ACK of path 1 with this base and no map, that tells the stream's limit.
  bool limit16(uint16_t stream, uint16_t low, uint32_t base = 100) {
    wire::AckPacket ack;
    ack.f.path = 1;
    ack.f.base = base;
    ack.f.stream = stream;
    ack.f.limit = low;
    return sender.on_limit16(ack);
  }
  wire::DataPacket header(const Fragment& f) {
    wire::DataPacket p;
    sender.describe(f, p);
    return p;
  }
};

TEST_F(SenderTest, RefusesWhatCannotBeSent) {
  EXPECT_EQ(post(1, Operation::kWrite, kMaxMessageBytes + 1), Status::kInvalid);
  EXPECT_EQ(post(1, Operation::kReceive, 1), Status::kInvalid);
  EXPECT_TRUE(sender.idle());
  for (uint32_t i = 0; i < settings.max_sends; ++i) {
    ASSERT_EQ(post(i, Operation::kWrite, 1), Status::kOk);
  }
  EXPECT_EQ(post(1, Operation::kWrite, 1), Status::kFull);
}

TEST_F(SenderTest, LimitsAreComparedAsSerialNumbers) {
  MR_COVERS("MR-MSG-024");
  ASSERT_EQ(post(1, Operation::kSend, 10), Status::kOk);
  sender.on_limit(0, 0xF000'0000u);  // behind 0, not far ahead of it
  EXPECT_FALSE(sender.ready(now));
  // The limit goes around: what comes after 0xFFFF'FFFF is ahead of it.
  for (const uint32_t limit : {0x7000'0000u, 0xE000'0000u, 0x1000'0000u}) {
    sender.on_limit(0, limit);
    EXPECT_EQ(pools.streams()[0].limit, limit);
  }
}

TEST_F(SenderTest, HeadersOfAWriteWithImmediate) {
  MR_COVERS("MR-MSG-003");
  ASSERT_EQ(post(1, Operation::kWriteImm, 2000), Status::kOk);
  EXPECT_FALSE(sender.ready(now));
  sender.on_limit(0, 1);
  const auto f = take();
  ASSERT_EQ(f.size(), 2u);
  const wire::DataPacket a = header(f[0]);
  const wire::DataPacket b = header(f[1]);
  EXPECT_TRUE(a.first() && !a.last());
  EXPECT_TRUE(!b.first() && b.last());
  EXPECT_EQ(a.key, 9u);
  EXPECT_EQ(b.address, 0x5000u + 1024);
  EXPECT_EQ(b.immediate, 1001u);
  EXPECT_EQ(a.immediate, 0u);
  EXPECT_EQ(sender.header_bytes(f[0]), 44u);
  EXPECT_EQ(sender.header_bytes(f[1]), 52u);
}

TEST_F(SenderTest, EmptyMessageIsOneFragment) {
  MR_COVERS("MR-MSG-011");
  ASSERT_EQ(post(1, Operation::kWrite, 0), Status::kOk);
  const auto f = take();
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].length, 0u);
  EXPECT_TRUE(header(f[0]).first() && header(f[0]).last());
  EXPECT_EQ(sender.poll(done), 0u);
  sender.on_refused(now, f[0], Refusal::kVoid, Duration{});
  const auto again = take();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(take().empty());
  sender.on_accepted(again[0].send);
  ASSERT_EQ(sender.poll(done), 1u);
  EXPECT_EQ(done[0].status, Status::kOk);
  EXPECT_TRUE(sender.idle());
}

TEST_F(SenderTest, LastWithTheLargerHeaderTravelsAlone) {
  ASSERT_EQ(post(1, Operation::kWriteImm, 2048), Status::kOk);
  ASSERT_EQ(post(2, Operation::kWriteImm, 2048 - 8), Status::kOk);
  ASSERT_EQ(post(3, Operation::kSend, 2048), Status::kOk);
  sender.on_limit(0, 3);
  EXPECT_EQ(take().size(), 1u);
  EXPECT_EQ(take().size(), 1u);
  EXPECT_EQ(take().size(), 2u);  // shorter by the difference
  EXPECT_EQ(take().size(), 2u);  // no difference
}

TEST_F(SenderTest, CompletionsInPostingOrder) {
  MR_COVERS("MR-MSG-014");
  post(1, Operation::kWrite, 10);
  post(2, Operation::kWrite, 10);
  const auto a = take();
  const auto b = take();
  sender.on_accepted(b[0].send);
  EXPECT_EQ(sender.poll(done), 0u);
  sender.on_accepted(a[0].send);
  ASSERT_EQ(sender.poll(done), 2u);
  EXPECT_EQ(done[0].id, 1u);
  EXPECT_EQ(done[1].id, 2u);
}

TEST_F(SenderTest, SpanCountsFromTheOldestUnaccepted) {
  MR_COVERS("MR-MSG-012");
  sender.set_peer_span(2);
  for (uint64_t i = 1; i <= 4; ++i) post(i, Operation::kWrite, 10);
  const auto a = take();
  const auto b = take();
  EXPECT_FALSE(sender.ready(now));
  sender.on_accepted(b[0].send);
  EXPECT_FALSE(sender.ready(now));
  sender.on_accepted(a[0].send);
  EXPECT_EQ(take().size(), 1u);
  EXPECT_EQ(take().size(), 1u);
  EXPECT_TRUE(take().empty());
}

TEST_F(SenderTest, BlockedSendHoldsItsStreamOnly) {
  MR_COVERS("MR-MSG-021");
  MR_COVERS("MR-MSG-024");
  post(1, Operation::kSend, 10, 1);
  post(2, Operation::kWrite, 10, 1);
  post(3, Operation::kWrite, 10, 2);
  const auto f = take();
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(sender.stream_of(f[0]), 2);
  EXPECT_TRUE(take().empty());
  uint16_t stream = 0;
  ASSERT_TRUE(sender.credit_blocked(stream));
  EXPECT_EQ(stream, 1);
  limit16(1, 1);
  EXPECT_FALSE(sender.credit_blocked(stream));
  EXPECT_EQ(header(take()[0]).msn, 0u);
  EXPECT_EQ(header(take()[0]).msn, 1u);
  sender.on_limit(1, 0);  // never lowers
  limit16(1, 0);
  post(4, Operation::kSend, 10, 1);
  EXPECT_FALSE(sender.ready(now));
  limit16(1, 2);
  EXPECT_TRUE(sender.ready(now));
}

TEST_F(SenderTest, LowHalfOfTheLimitWraps) {
  post(1, Operation::kSend, 1);
  sender.on_limit(0, 0xFFFF);
  limit16(0, 3);
  EXPECT_EQ(pools.streams()[0].limit, 0x10003u);
  limit16(0, 0xFFFF);  // an old ACK
  EXPECT_EQ(pools.streams()[0].limit, 0x10003u);
}

TEST_F(SenderTest, StreamsTakeTurns) {
  for (uint16_t s = 0; s < 3; ++s) post(s, Operation::kWrite, 100'000, s);
  for (int round = 0; round < 4; ++round) {
    for (uint16_t s = 0; s < 3; ++s) EXPECT_EQ(sender.stream_of(take()[0]), s);
  }
}

TEST_F(SenderTest, DelayDoublesAndIsHeldPerMessage) {
  MR_COVERS("MR-MSG-029");
  post(1, Operation::kWrite, 10);
  auto f = take();
  const int64_t expected[] = {10, 20, 40, 80};
  for (const int64_t us : expected) {
    sender.on_refused(now, f[0], Refusal::kNoOpenMessage, microseconds(10));
    EXPECT_EQ(sender.next_wakeup(), now + microseconds(us));
    now = now + microseconds(us) - nanoseconds(1);
    EXPECT_FALSE(sender.ready(now));
    now = now + nanoseconds(1);
    f = take();
    ASSERT_EQ(f.size(), 1u);
  }
  for (int i = 0; i < 30; ++i) {
    sender.on_refused(now, f[0], Refusal::kNoOpenMessage, microseconds(10));
    EXPECT_LE(sender.next_wakeup() - now, milliseconds(100));
    now = sender.next_wakeup();
    f = take();
  }
  EXPECT_EQ(sender.next_wakeup(), kNever);
}

TEST_F(SenderTest, WhatHasBecomeTheOldestIsRepeatedAtOnceAndWaitsAnew) {
  MR_COVERS("MR-MSG-066");
  post(1, Operation::kWrite, 10);
  post(2, Operation::kFetchAdd, 0);
  post(3, Operation::kFetchAdd, 0);
  const auto first = take();
  auto second = take();
  auto third = take();
  for (int i = 0; i < 8; ++i) {
    sender.on_refused(now, second[0], Refusal::kNoPending, microseconds(10));
    sender.on_refused(now, third[0], Refusal::kNoPending, microseconds(10));
    now = sender.next_wakeup();
    second = take();
    third = take();
  }
  sender.on_refused(now, second[0], Refusal::kNoPending, microseconds(10));
  sender.on_refused(now, third[0], Refusal::kNoPending, microseconds(10));
  EXPECT_FALSE(sender.ready(now));
  sender.on_accepted(first[0].send);
  ASSERT_TRUE(sender.ready(now));
  second = take();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(header(second[0]).msn, 1u);
  EXPECT_FALSE(sender.ready(now)) << "the third is not the oldest";
  sender.on_refused(now, second[0], Refusal::kNoPending, microseconds(10));
  EXPECT_EQ(sender.next_wakeup(), now + microseconds(10));
}

TEST_F(SenderTest, NotReadyEndsWithNewCredit) {
  MR_COVERS("MR-MSG-023");
  post(1, Operation::kSend, 10, 1);
  sender.on_limit(1, 1);
  post(2, Operation::kWrite, 10, 2);
  const auto f = take();
  sender.on_refused(now, f[0], Refusal::kNotReady, milliseconds(5));
  EXPECT_EQ(sender.next_wakeup(), now + milliseconds(5));
  EXPECT_EQ(sender.stream_of(take()[0]), 2);
  EXPECT_TRUE(take().empty());
  sender.on_limit(1, 2);
  EXPECT_EQ(sender.next_wakeup(), kNever);
  EXPECT_EQ(sender.stream_of(take()[0]), 1);
}

TEST_F(SenderTest, OnlyTheAnswerToACreditProbeCountsAsATry) {
  MR_COVERS("MR-MSG-061");
  ASSERT_EQ(sender.set_options(1, {.rnr_retry = 0}), Status::kOk);
  post(1, Operation::kSend, 10, 1);
  EXPECT_FALSE(sender.ready(now));
  sender.note_asked(1, 1, 100);
  EXPECT_FALSE(limit16(1, 0, 100)) << "sent before the probe, whose sequence is 100, was there";
  wire::AckPacket other;
  other.f = {.path = 2, .base = 5000, .stream = 1, .limit = 0};
  EXPECT_FALSE(sender.on_limit16(other)) << "of another path";
  EXPECT_EQ(sender.poll(done), 0u);
  EXPECT_TRUE(limit16(1, 0, 101));
  ASSERT_EQ(sender.poll(done), 1u);
  EXPECT_EQ(done[0].status, Status::kNotReady);
}

TEST_F(SenderTest, ADrainedStreamTellsItsPeerWhateverItSentBefore) {
  MR_COVERS("MR-MSG-006");
  uint16_t stream = 0;
  uint32_t final_msn = 9;
  bool halt = true;
  ASSERT_EQ(sender.drain(3), Status::kOk);  // nothing was ever posted
  EXPECT_EQ(post(1, Operation::kWrite, 10, 3), Status::kClosed);
  ASSERT_TRUE(sender.next_reset(stream, final_msn, halt));
  EXPECT_EQ(stream, 3);
  EXPECT_EQ(final_msn, 0u);
  EXPECT_FALSE(halt);
  EXPECT_EQ(post(1, Operation::kWrite, 10, 3), Status::kClosed) << "also when all is done";

  ASSERT_EQ(sender.set_options(4, {.rnr_retry = 0}), Status::kOk);
  post(2, Operation::kSend, 10, 4);
  EXPECT_FALSE(sender.ready(now));
  sender.note_asked(4, 1, 7);
  EXPECT_TRUE(limit16(4, 0));
  // The peer drops what it holds of the stream, and keeps its receives.
  ASSERT_TRUE(sender.next_reset(stream, final_msn, halt));
  EXPECT_TRUE(halt);
  ASSERT_EQ(sender.drain(4), Status::kOk);
  EXPECT_FALSE(sender.next_reset(stream, final_msn, halt)) << "before that was heard";
  sender.on_reset_accepted(4, true);
  ASSERT_TRUE(sender.next_reset(stream, final_msn, halt));
  EXPECT_EQ(stream, 4);
  EXPECT_FALSE(halt);
  EXPECT_FALSE(sender.may_reopen(4));
  sender.on_reset_accepted(4, false);
}

TEST_F(SenderTest, ADrainedStreamThatStarvesStillEnds) {
  MR_COVERS("MR-MSG-061");
  ASSERT_EQ(sender.set_options(4, {.rnr_retry = 0}), Status::kOk);
  post(2, Operation::kSend, 10, 4);
  EXPECT_FALSE(sender.ready(now));
  ASSERT_EQ(sender.drain(4), Status::kOk);
  sender.note_asked(4, 1, 7);
  EXPECT_TRUE(limit16(4, 0));
  uint16_t stream = 0;
  uint32_t final_msn = 0;
  bool halt = true;
  ASSERT_TRUE(sender.next_reset(stream, final_msn, halt));
  EXPECT_FALSE(halt) << "the receives of the peer end: nothing more will come";
}

TEST_F(SenderTest, OptionsNeedARecordOfTheOnesForRequests) {
  for (uint32_t s = 0; s < settings.max_streams; ++s) {
    ASSERT_EQ(sender.set_options(static_cast<uint16_t>(s), {}), Status::kOk);
  }
  EXPECT_GT(pools.streams().available(), 0u) << "those are for responses";
  const auto next = static_cast<uint16_t>(settings.max_streams);
  EXPECT_EQ(sender.may_set_options(next, {}), Status::kFull);
  EXPECT_EQ(sender.set_options(next, {}), Status::kFull);
}

TEST_F(SenderTest, TheOrderOfAStreamDoesNotChangeUnderItsRequests) {
  post(1, Operation::kWrite, 10, 2);
  EXPECT_EQ(sender.may_set_options(2, {.in_order = true}), Status::kInvalid);
  EXPECT_EQ(sender.may_set_options(2, {.rnr_retry = 3}), Status::kOk);
  EXPECT_EQ(sender.may_set_options(5, {.in_order = true}), Status::kOk);
}

TEST_F(SenderTest, AnswersAreForRequestsThatAreOut) {
  MR_COVERS("MR-MSG-045");
  wire::DataPacket answer;
  answer.opcode = wire::Opcode::kReadResponse;
  answer.payload_length = 10;
  answer.message_flags = wire::message_flag::kFirst | wire::message_flag::kLast;
  for (uint64_t id = 0; id < 2; ++id) post(id, Operation::kRead, 10);
  take();
  take();
  for (const uint32_t msn : {2u, settings.message_span, 0x8000'0000u, 0xFFFF'FFFFu}) {
    answer.msn = msn;
    EXPECT_FALSE(sender.admit_response(answer).accepted) << msn;
  }
  answer.msn = 1;
  EXPECT_TRUE(sender.admit_response(answer).accepted);
  // What ended is forgotten, though its number comes again in the stream's next life.
  ASSERT_EQ(sender.reset(0), Status::kOk);
  answer.msn = 1;
  EXPECT_FALSE(sender.admit_response(answer).accepted);
}

TEST_F(SenderTest, AResponderServesNoPeerBeyondItsShare) {
  MR_COVERS("MR-MSG-065");
  wire::DataPacket read;
  read.opcode = wire::Opcode::kReadRequest;
  uint32_t held = 0;
  while (held < pools.max_responses && sender.accept_request(read, false) != kNoIndex) ++held;
  EXPECT_EQ(held, 2 * settings.max_outstanding);
  Sender another(pools, settings, 0x20002);
  EXPECT_TRUE(another.can_accept_request(0, false));
}

TEST_F(SenderTest, StreamNotReadyWaitsDespiteCredit) {
  post(1, Operation::kSend, 10);
  sender.on_limit(0, 1);
  sender.on_refused(now, take()[0], Refusal::kStreamNotReady, microseconds(5));
  sender.on_limit(0, 5);
  EXPECT_FALSE(sender.ready(now));
  EXPECT_TRUE(sender.ready(now + microseconds(5)));
}

TEST_F(SenderTest, RecutsWithAnotherPayload) {
  post(1, Operation::kWrite, 4096);
  const auto big = take(4096);
  ASSERT_EQ(big.size(), 1u);
  sender.on_refused(now, big[0], Refusal::kVoid, Duration{});
  EXPECT_EQ(sender.bytes_waiting(), 4096u);
  auto small = take(1408);
  ASSERT_EQ(small.size(), 3u);
  EXPECT_EQ(small[2].length, 4096u - 2 * 1408);
  sender.on_refused(now, small[1], Refusal::kVoid, Duration{});
  const auto same = take(4096);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_EQ(same[0].length, 1408u);  // a shorter range stays as it is
  for (const auto& f : {small[0], small[2], same[0]}) sender.on_accepted(f.send);
  EXPECT_EQ(sender.poll(done), 1u);
  EXPECT_EQ(pools.retries().used(), 0u);
}

TEST_F(SenderTest, FatalRefusalNamesTheCauseOnce) {
  MR_COVERS("MR-MSG-030");
  for (uint64_t i = 1; i <= 4; ++i) post(i, Operation::kWrite, 2048);
  const auto first = take();
  const auto second = take();
  const auto third = take();
  sender.on_refused(now, second[0], Refusal::kLength, Duration{});
  post(5, Operation::kWrite, 1);
  EXPECT_EQ(sender.poll(done), 0u);
  uint16_t stream = 9;
  uint32_t final_msn = 9;
  bool halt = true;
  EXPECT_FALSE(sender.next_reset(stream, final_msn, halt));  // the first message may still arrive
  sender.on_refused(now, first[0], Refusal::kVoid, Duration{});
  sender.on_accepted(first[1].send);
  const auto retry = take();  // of the first, and nothing else any more
  ASSERT_EQ(retry.size(), 1u);
  EXPECT_EQ(header(retry[0]).msn, 0u);
  sender.on_accepted(retry[0].send);
  EXPECT_FALSE(
      sender.next_reset(stream, final_msn, halt));  // MR-MSG-064: the fate of others is open
  ASSERT_EQ(sender.poll(done), 1u);                 // the driver may still read the second
  sender.on_accepted(third[0].send);
  sender.on_accepted(third[1].send);
  EXPECT_FALSE(sender.next_reset(stream, final_msn, halt));
  sender.on_refused(now, second[1], Refusal::kVoid, Duration{});
  ASSERT_TRUE(sender.next_reset(stream, final_msn, halt));
  EXPECT_EQ(stream, 0);
  EXPECT_EQ(final_msn, 1u);
  EXPECT_FALSE(sender.next_reset(stream, final_msn, halt));
  ASSERT_EQ(sender.poll(done), 4u);
  EXPECT_EQ(done[0].status, Status::kLength);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(done[i].id, i + 2);
    EXPECT_EQ(done[i].status, Status::kFlushed);
  }
  EXPECT_FALSE(sender.ready(now));
  EXPECT_TRUE(sender.idle());
  EXPECT_EQ(sender.bytes_waiting(), 0u);
  EXPECT_EQ(pools.retries().used(), 0u);
}

TEST_F(SenderTest, StatusOfEachFatalReason) {
  MR_COVERS("MR-MSG-007");
  const std::pair<Refusal, Status> table[] = {
      {Refusal::kLength, Status::kLength},           {Refusal::kKey, Status::kAccess},
      {Refusal::kBounds, Status::kAccess},           {Refusal::kAccess, Status::kAccess},
      {Refusal::kUnsupported, Status::kUnsupported}, {Refusal::kStreamClosed, Status::kPeerFailed},
  };
  uint16_t stream = 0;
  for (const auto& [reason, status] : table) {
    post(1, Operation::kWrite, 1, ++stream);
    sender.on_refused(now, take()[0], reason, Duration{});
    ASSERT_EQ(sender.poll(done), 1u);
    EXPECT_EQ(done[0].status, status);
  }
}

TEST_F(SenderTest, FailAllEndsEverything) {
  for (uint16_t s = 0; s < 2; ++s) {
    for (uint64_t i = 1; i <= 3; ++i) post(i, Operation::kWrite, 5000, s);
  }
  const auto f = take();
  take();
  sender.on_refused(now, f[1], Refusal::kNoResource, microseconds(1));
  sender.fail_all(Status::kUnresponsive);
  ASSERT_EQ(sender.poll(done), 6u);
  int causes = 0;
  for (size_t i = 0; i < 6; ++i) {
    if (done[i].status == Status::kUnresponsive) {
      EXPECT_EQ(done[i].id, 1u);
      ++causes;
    } else {
      EXPECT_EQ(done[i].status, Status::kFlushed);
    }
  }
  EXPECT_EQ(causes, 2);
  EXPECT_TRUE(sender.idle());
  EXPECT_EQ(sender.next_wakeup(), kNever);
  EXPECT_EQ(pools.retries().used(), 0u);
  EXPECT_EQ(pools.shared_claims, 0u);
  EXPECT_EQ(post(9, Operation::kWrite, 1, 7), Status::kOk);
  ASSERT_EQ(sender.poll(done), 1u);
  EXPECT_EQ(done[0].status, Status::kFlushed);
}

TEST(SenderPools, EverythingReturnsWithTheSender) {
  Settings settings;
  SendPools pools(settings);
  for (int i = 0; i < 3; ++i) {
    Sender sender(pools, settings, 5);
    WorkRequest r;
    r.length = 9000;
    ASSERT_EQ(sender.post(r), Status::kOk);
    std::array<Fragment, 4> out;
    ASSERT_EQ(sender.take(Time{}, 1024, out), 4u);
    sender.on_refused(Time{}, out[2], Refusal::kVoid, Duration{});
  }
  EXPECT_EQ(pools.sends().used(), 0u);
  EXPECT_EQ(pools.streams().used(), 0u);
  EXPECT_EQ(pools.retries().used(), 0u);
  EXPECT_EQ(pools.index().size(), 0u);
}

}  // namespace
}  // namespace metaroce::message
