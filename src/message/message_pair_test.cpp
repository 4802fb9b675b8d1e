// A Sender and a Receiver joined by a channel that shuffles, refuses and is late: what comes out
// must be byte-exact, in order and exactly once, whatever the seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "base/covers.h"
#include "base/rng.h"
#include "base/seq.h"
#include "base/types.h"
#include "message/open_message.h"
#include "message/receiver.h"
#include "message/send_stream.h"
#include "message/sender.h"

namespace metaroce::message {
namespace {

using wire::Refusal;

constexpr ConnectionHandle kHandle = 0x10001;
constexpr uint64_t kPercent = 42949673;  // of 2^32, for Rng::chance
constexpr uint32_t kGuard = 64;          // bytes around every destination that stay untouched
constexpr std::byte kCanary{0xA5};

struct Flight {
  Fragment fragment;
  wire::DataPacket packet;
  const std::byte* payload = nullptr;
};

struct Sent {
  WorkRequest request;
  std::vector<std::byte> data;
  uint64_t destination = 0;  // of a Write: within the memory of the peer
};

struct Expected {
  uint64_t id = 0;
  std::vector<std::byte> buffer;  // with guards
  uint64_t length = 0;
};

struct Plan {
  uint64_t seed = 1;
  uint32_t streams = 4;
  uint32_t messages = 80;
  uint32_t longest = 9'000;
  uint32_t refuse = 10 * kPercent;  // chance of a refusal the receiver knows nothing of
  uint32_t recut = 0;               // chance a step that the payload changes and all is VOIDed
  uint32_t in_flight = 64;
  bool fatal = false;  // one packet of stream 0 is refused for ever
  Settings settings;
};

class World {
 public:
  explicit World(const Plan& plan)
      : plan_(plan),
        rng_(plan.seed),
        send_pools_(plan.settings),
        receive_pools_(plan.settings),
        sender_(send_pools_, plan.settings, kHandle),
        receiver_(receive_pools_, plan.settings, kHandle),
        sends_(plan.streams),
        receives_(plan.streams),
        sent_done_(plan.streams),
        received_done_(plan.streams),
        limits_(plan.streams) {
    memory_.assign(plan.messages * (plan.longest + kGuard) + kGuard, kCanary);
  }

  void run() {
    uint32_t posted = 0;
    uint64_t steps = 0;
    while (posted < plan_.messages || !finished()) {
      ASSERT_LT(++steps, 300'000u) << "no progress, seed " << plan_.seed;
      if (posted < plan_.messages && rng_.chance(30 * kPercent)) posted += post_one() ? 1 : 0;
      if (rng_.chance(25 * kPercent)) post_receive();
      if (plan_.recut != 0 && rng_.chance(plan_.recut)) recut();
      if (rng_.chance(50 * kPercent)) take();
      if (!flights_.empty()) arrive(rng_.below(flights_.size()));
      tell_news();
      if (rng_.chance(20 * kPercent)) poll();
      if (flights_.empty() && !sender_.ready(now_)) wait();
      if (::testing::Test::HasFatalFailure()) return;
    }
    poll();
    check();
  }

  Receiver& receiver() { return receiver_; }
  uint32_t flushed() const { return flushed_; }

 private:
  bool finished() { return sender_.idle() && flights_.empty(); }

  bool post_one() {
    Sent sent;
    WorkRequest& r = sent.request;
    r.id = next_id_++;
    r.connection = kHandle;
    r.stream = static_cast<uint16_t>(rng_.below(plan_.streams));
    r.operation = static_cast<Operation>(rng_.below(4));
    r.length = rng_.chance(20 * kPercent) ? rng_.below(3) : rng_.below(plan_.longest + 1);
    r.immediate = rng_.next32();
    r.solicited = rng_.chance(50 * kPercent);
    r.remote_key = 7;
    sent.data.resize(r.length);
    for (auto& b : sent.data) b = static_cast<std::byte>(rng_.next());
    r.local = sent.data.data();
    sent.destination = kGuard + (r.id - 1) * (plan_.longest + kGuard);
    r.remote_address = sent.destination;
    const Status status = sender_.post(r);
    if (status == Status::kFull) {
      --next_id_;
      return false;
    }
    EXPECT_EQ(status, Status::kOk);
    sends_[r.stream].push_back(std::move(sent));
    return true;
  }

  void post_receive() {
    const auto stream = static_cast<uint16_t>(rng_.below(plan_.streams));
    // Otherwise receives that one stream never uses take the whole pool from the others.
    const size_t waiting = receives_[stream].size() - received_done_[stream];
    if (waiting >= plan_.settings.max_receives / plan_.streams) return;
    Expected e;
    e.id = next_receive_;
    e.length = plan_.longest;
    e.buffer.assign(plan_.longest + 2 * kGuard, kCanary);
    ReceiveRequest r;
    r.id = e.id;
    r.connection = kHandle;
    r.stream = stream;
    r.buffer = e.buffer.data() + kGuard;
    r.length = e.length;
    const Status status = receiver_.post(r);
    if (status == Status::kFull) return;
    EXPECT_EQ(status, Status::kOk);
    ++next_receive_;
    receives_[stream].push_back(std::move(e));
  }

  void take() {
    if (flights_.size() >= plan_.in_flight) return;
    std::vector<Fragment> out(1 + rng_.below(15));
    const bool ready = sender_.ready(now_);
    const uint64_t before = sender_.bytes_waiting();
    const size_t n = sender_.take(now_, payload_, out);
    ASSERT_EQ(ready, n > 0);
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; ++i) {
      Flight f;
      f.fragment = out[i];
      f.payload = sender_.describe(out[i], f.packet);
      f.packet.payload_length = out[i].length;
      bytes += out[i].length;
      check_taken(out, i, n, f);
      flights_.push_back(f);
    }
    ASSERT_EQ(sender_.bytes_waiting(), before - bytes);
  }

  void check_taken(const std::vector<Fragment>& out, size_t i, size_t n, const Flight& f) {
    MR_COVERS("MR-MSG-012");
    MR_COVERS("MR-MSG-021");
    const Fragment& p = out[i];
    ASSERT_LE(p.length, payload_);
    ASSERT_EQ(p.send, out[0].send);
    ASSERT_EQ(f.packet.stream, sender_.stream_of(p));
    if (i > 0) {
      ASSERT_EQ(p.offset, out[i - 1].offset + out[i - 1].length);
      ASSERT_LE(p.length + sender_.header_bytes(p), out[0].length + sender_.header_bytes(out[0]));
    }
    if (i + 1 < n) {
      ASSERT_EQ(p.length, payload_);
    }
    const Sent& sent = sends_[f.packet.stream][f.packet.msn];
    ASSERT_LE(uint64_t{p.offset} + p.length, sent.request.length);
    ASSERT_EQ(f.packet.first(), p.offset == 0);
    ASSERT_EQ(f.packet.last(), uint64_t{p.offset} + p.length == sent.request.length);
    ASSERT_EQ(f.payload, sent.data.data() + p.offset);
    if (sent.request.operation != Operation::kWrite && f.packet.last()) {
      ASSERT_TRUE(seq_lt(f.packet.rq_seq, limits_[f.packet.stream]));
    }
  }

  void arrive(size_t at) {
    const Flight f = flights_[at];
    flights_[at] = flights_.back();
    flights_.pop_back();
    const auto delay = nanoseconds(static_cast<int64_t>(rng_.below(20'000)));
    if (plan_.fatal && !fatal_told_ && f.packet.stream == 0 && f.packet.msn >= 5) {
      fatal_told_ = true;
      fatal_msn_ = f.packet.msn;
      sender_.on_refused(now_, f.fragment, Refusal::kAccess, delay);
      return;
    }
    if (rng_.chance(plan_.refuse)) {
      static constexpr Refusal kSome[] = {Refusal::kUnknown,       Refusal::kVoid,
                                          Refusal::kNoOpenMessage, Refusal::kNoPending,
                                          Refusal::kSpan,          Refusal::kNoResource,
                                          Refusal::kNotReady,      Refusal::kStreamNotReady};
      sender_.on_refused(now_, f.fragment, kSome[rng_.below(8)], delay);
      return;
    }
    const Admission a = receiver_.admit(f.packet);
    if (!a.accepted) {
      ++refused_[static_cast<int>(a.reason)];
      sender_.on_refused(now_, f.fragment, a.reason, delay);
      return;
    }
    place(f, a);
    receiver_.commit(f.packet, a);
    sender_.on_accepted(f.fragment.send);
    tell_limit(f.packet.stream);
  }

  void place(const Flight& f, const Admission& a) {
    if (f.packet.payload_length == 0) return;
    std::byte* to = a.address;
    if (a.check_memory) {
      ASSERT_EQ(f.packet.key, 7u);
      to = memory_.data() + f.packet.address;
    }
    ASSERT_NE(to, nullptr);
    std::copy_n(f.payload, f.packet.payload_length, to);
  }

  // An ACK carries the low half of the limit; it may be told late or twice.
  void tell_limit(uint16_t stream) {
    const uint32_t limit = receiver_.limit(stream);
    if (rng_.chance(50 * kPercent)) {
      wire::AckPacket ack;
      ack.f.stream = stream;
      ack.f.limit = static_cast<uint16_t>(limit);
      sender_.on_limit16(ack);
    } else {
      sender_.on_limit(stream, limit);
    }
    if (!sends_[stream].empty()) limits_[stream] = limit;
  }

  void tell_news() {
    uint16_t stream = 0;
    while (receiver_.credit_news(stream)) tell_limit(stream);
    bool halt = false;
    while (sender_.next_reset(stream, final_msn_, halt)) {
      EXPECT_EQ(stream, 0);
      EXPECT_EQ(final_msn_, fatal_msn_);
      ++resets_;
      receiver_.on_reset(stream);
    }
  }

  void recut() {
    static constexpr uint32_t kPayloads[] = {256, 1024, 1392, 4096};
    payload_ = kPayloads[rng_.below(4)];
    while (!flights_.empty()) {
      sender_.on_refused(now_, flights_.back().fragment, Refusal::kVoid, Duration{});
      flights_.pop_back();
    }
  }

  void wait() {
    now_ = now_ + nanoseconds(1);
    if (sender_.next_wakeup() != kNever) now_ = std::max(now_, sender_.next_wakeup());
    uint16_t stream = 0;
    if (sender_.credit_blocked(stream)) {
      receiver_.on_credit_asked(stream);
      tell_limit(stream);
    }
  }

  void poll() {
    std::vector<Completion> out(1 + rng_.below(8));
    for (size_t n = out.size(); n == out.size();) {
      n = sender_.poll(out);
      for (size_t i = 0; i < n; ++i) on_sent(out[i]);
    }
    for (size_t n = out.size(); n == out.size();) {
      n = receiver_.poll(out);
      for (size_t i = 0; i < n; ++i) on_received(out[i]);
    }
  }

  void on_sent(const Completion& c) {
    MR_COVERS("MR-MSG-014");
    const uint32_t k = sent_done_[c.stream]++;
    ASSERT_LT(k, sends_[c.stream].size());
    const Sent& sent = sends_[c.stream][k];
    ASSERT_EQ(c.id, sent.request.id);
    ASSERT_EQ(c.operation, sent.request.operation);
    ASSERT_EQ(c.bytes, sent.request.length);
    Status expected = Status::kOk;
    if (fatal_told_ && c.stream == 0 && k >= fatal_msn_) {
      expected = k == fatal_msn_ ? Status::kAccess : Status::kFlushed;
    }
    ASSERT_EQ(c.status, expected) << "stream " << c.stream << " message " << k;
  }

  void on_received(const Completion& c) {
    MR_COVERS("MR-MSG-013");
    MR_COVERS("MR-MSG-018");
    MR_COVERS("MR-MSG-020");
    const uint32_t k = received_done_[c.stream]++;
    ASSERT_LT(k, receives_[c.stream].size());
    const Expected& e = receives_[c.stream][k];
    ASSERT_EQ(c.id, e.id);
    if (c.status != Status::kOk) {
      ASSERT_EQ(c.status, Status::kFlushed);
      ASSERT_EQ(c.stream, 0);
      ASSERT_GT(resets_, 0u);
      ++flushed_;
      return;
    }
    const Sent& sent = consumer(c.stream, k);
    const bool is_write = sent.request.operation == Operation::kWriteImm;
    const bool imm = sent.request.operation != Operation::kSend;
    ASSERT_EQ(c.bytes, sent.request.length);
    ASSERT_EQ(c.has_immediate, imm);
    ASSERT_EQ(c.immediate, imm ? sent.request.immediate : 0u);
    ASSERT_EQ(c.solicited, sent.request.solicited);
    const uint64_t placed = is_write ? 0 : sent.request.length;
    ASSERT_TRUE(std::equal(sent.data.begin(), sent.data.begin() + static_cast<int64_t>(placed),
                           e.buffer.begin() + kGuard));
    ASSERT_TRUE(all_canary(e.buffer.data(), kGuard));
    ASSERT_TRUE(all_canary(e.buffer.data() + kGuard + placed, e.buffer.size() - kGuard - placed));
  }

  static bool all_canary(const std::byte* p, size_t n) {
    return std::all_of(p, p + n, [](std::byte b) { return b == kCanary; });
  }

  /// The k-th message of the stream that consumes a receive.
  const Sent& consumer(uint16_t stream, uint32_t k) {
    for (const Sent& sent : sends_[stream]) {
      if (sent.request.operation != Operation::kWrite && k-- == 0) return sent;
    }
    ADD_FAILURE() << "a receive completed without a message";
    return sends_[stream].front();
  }

  void check() {
    uint64_t messages = 0;
    for (uint32_t s = 0; s < plan_.streams; ++s) {
      ASSERT_EQ(sent_done_[s], sends_[s].size());
      const bool broken = fatal_told_ && s == 0;
      uint32_t consuming = 0;
      uint32_t msn = 0;
      for (const Sent& sent : sends_[s]) {
        if (broken && msn++ >= fatal_msn_) break;
        ++messages;
        if (sent.request.operation != Operation::kWrite) ++consuming;
        check_write(sent);
      }
      if (!broken) {
        ASSERT_EQ(received_done_[s], consuming);
      } else {
        ASSERT_EQ(received_done_[s], receives_[s].size());  // every one came back, none twice
        ASSERT_EQ(received_done_[s] - flushed_, consuming);
      }
    }
    ASSERT_EQ(receiver_.messages_delivered(), messages);
    // Fates and limits are told at once here, so a sender that keeps to them is never refused.
    ASSERT_EQ(refused_[static_cast<int>(Refusal::kSpan)], 0u);
    ASSERT_EQ(refused_[static_cast<int>(Refusal::kNotReady)], 0u);
    ASSERT_EQ(sender_.bytes_waiting(), 0u);
    ASSERT_EQ(send_pools_.sends().used(), 0u);
    ASSERT_EQ(send_pools_.retries().used(), 0u);
    ASSERT_EQ(send_pools_.shared_claims, 0u);
    ASSERT_EQ(receive_pools_.messages().used(), 0u);
    ASSERT_EQ(receive_pools_.index().size(), 0u);
    ASSERT_EQ(sender_.next_wakeup(), kNever);
    ASSERT_FALSE(sender_.ready(now_));
  }

  void check_write(const Sent& sent) {
    const auto op = sent.request.operation;
    const bool writes = op == Operation::kWrite || op == Operation::kWriteImm;
    const uint64_t placed = writes ? sent.request.length : 0;
    const std::byte* p = memory_.data() + sent.destination;
    ASSERT_TRUE(std::equal(sent.data.begin(), sent.data.begin() + static_cast<int64_t>(placed), p));
    ASSERT_TRUE(all_canary(p + placed, plan_.longest + kGuard - placed));
    ASSERT_TRUE(all_canary(p - kGuard, kGuard));
  }

  Plan plan_;
  Rng rng_;
  SendPools send_pools_;
  ReceivePools receive_pools_;
  Sender sender_;
  Receiver receiver_;
  Time now_;
  uint32_t payload_ = 1024;
  uint64_t next_id_ = 1;
  uint64_t next_receive_ = 1;
  uint32_t resets_ = 0;
  uint32_t flushed_ = 0;
  uint32_t final_msn_ = 0;
  uint32_t fatal_msn_ = 0;
  bool fatal_told_ = false;
  std::vector<std::byte> memory_;
  std::vector<Flight> flights_;
  std::vector<std::deque<Sent>> sends_;
  std::vector<std::deque<Expected>> receives_;
  std::vector<uint32_t> sent_done_;
  std::vector<uint32_t> received_done_;
  std::vector<uint32_t> limits_;  // what the sender was told
  std::map<int, uint64_t> refused_;
};

Settings small_settings() {
  Settings s;
  s.max_sends = 64;
  s.max_receives = 64;
  s.max_open_messages = 64;
  s.max_streams = 16;
  s.max_connections = 1;
  s.message_span = 16;
  return s;
}

void run_seeds(Plan plan, uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    plan.seed = seed;
    World world(plan);
    world.run();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(MessagePair, ShuffledAndRefusedStillExact) {
  MR_COVERS("MR-MSG-003");
  MR_COVERS("MR-MSG-010");
  MR_COVERS("MR-MSG-011");
  MR_COVERS("MR-MSG-014");
  Plan plan;
  plan.settings = small_settings();
  run_seeds(plan, 25);
}

TEST(MessagePair, SmallSpanAndManyRefusals) {
  Plan plan;
  plan.settings = small_settings();
  plan.settings.message_span = 2;
  plan.refuse = 50 * kPercent;
  plan.messages = 60;
  run_seeds(plan, 15);
}

TEST(MessagePair, RecutAfterVoid) {
  Plan plan;
  plan.settings = small_settings();
  plan.recut = 2 * kPercent;
  run_seeds(plan, 8);
}

TEST(MessagePair, OpenMessagesExhausted) {
  MR_COVERS("MR-MSG-027");
  MR_COVERS("MR-MSG-028");
  Plan plan;
  plan.settings = small_settings();
  plan.streams = 6;
  for (const uint32_t entries : {1u, 2u, 3u}) {
    plan.settings.max_open_messages = entries;
    run_seeds(plan, 8);
  }
}

TEST(MessagePair, SendAndReceivePoolsExhausted) {
  Plan plan;
  plan.settings = small_settings();
  plan.settings.max_sends = 3;
  plan.settings.max_receives = 12;
  plan.streams = 2;
  run_seeds(plan, 15);
}

TEST(MessagePair, RetryClaimsExhausted) {
  Plan plan;
  plan.settings = small_settings();
  plan.settings.max_retries_queued = 4;
  plan.settings.cpsn_window = 16;
  plan.refuse = 60 * kPercent;
  plan.recut = 5 * kPercent;
  plan.messages = 60;
  run_seeds(plan, 8);
}

TEST(MessagePair, FatalRefusalFlushesOneStreamOnly) {
  MR_COVERS("MR-MSG-004");
  MR_COVERS("MR-MSG-005");
  MR_COVERS("MR-MSG-006");
  MR_COVERS("MR-MSG-030");
  Plan plan;
  plan.settings = small_settings();
  plan.fatal = true;
  run_seeds(plan, 25);
}

TEST(MessagePair, LargestMessages) {
  MR_COVERS("MR-MSG-011");
  Settings settings;
  SendPools send_pools(settings);
  ReceivePools receive_pools(settings);
  Sender sender(send_pools, settings, kHandle);
  Receiver receiver(receive_pools, settings, kHandle);
  ReceiveRequest receive;
  receive.id = 3;
  receive.length = kMaxMessageBytes;
  ASSERT_EQ(receiver.post(receive), Status::kOk);
  for (const auto op : {Operation::kWrite, Operation::kSend}) {
    WorkRequest r;
    r.id = op == Operation::kWrite ? 1 : 2;
    r.operation = op;
    r.length = kMaxMessageBytes;
    ASSERT_EQ(sender.post(r), Status::kOk);
  }
  sender.on_limit(0, receiver.limit(0));
  EXPECT_EQ(sender.bytes_waiting(), 2 * kMaxMessageBytes);
  std::array<Fragment, 15> out;
  uint64_t bytes = 0;
  while (const size_t n = sender.take(Time{}, 65024, out)) {
    for (size_t i = n; i-- > 0;) {
      wire::DataPacket p;
      EXPECT_EQ(sender.describe(out[i], p), nullptr);
      p.payload_length = out[i].length;
      bytes += out[i].length;
      const Admission a = receiver.admit(p);
      ASSERT_TRUE(a.accepted);
      receiver.commit(p, a);
      sender.on_accepted(out[i].send);
    }
  }
  EXPECT_EQ(bytes, 2 * kMaxMessageBytes);
  std::array<Completion, 4> done;
  ASSERT_EQ(sender.poll(done), 2u);
  EXPECT_EQ(done[1].bytes, kMaxMessageBytes);
  ASSERT_EQ(receiver.poll(done), 1u);
  EXPECT_EQ(done[0].bytes, 2147483648u);
  EXPECT_EQ(done[0].status, Status::kOk);
  EXPECT_EQ(receiver.messages_delivered(), 2u);
}

}  // namespace
}  // namespace metaroce::message
