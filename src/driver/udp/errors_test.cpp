// The kernel fails on purpose: P01, N25, S14; and the network inside the driver: N23.
#include <sys/socket.h>

#include <deque>
#include <map>

#include "driver/udp/test_support.h"

namespace metaroce::driver {
namespace {

using namespace test;

constexpr Shape kFull{15, 44, 1408, 1408, false};

struct Rig {
  FailingSyscalls calls;
  std::unique_ptr<UdpDriver> sender;
  std::unique_ptr<UdpDriver> receiver;
  Bytes memory = random_bytes(64 << 10, 11);

  explicit Rig(const char* faults = "", GsoMode gso = GsoMode::kAuto) {
    UdpOptions options = options_for({"127.0.1.1", "127.0.2.1"});
    options.syscalls = &calls;
    options.gso = gso;
    sender = open(options);
    UdpOptions other = options_for({"127.0.1.2", "127.0.2.2"});
    other.faults = *parse_faults(faults);
    receiver = open(other);
  }
  /// A receiver on the same kernel as the sender.
  std::unique_ptr<UdpDriver> listen() {
    UdpOptions options = options_for({"127.0.1.3"});
    options.syscalls = &calls;
    return open(options);
  }
  size_t send(size_t plane, Shape shape = kFull, uint8_t path = 1) {
    engine::TxRun run = make_run(*sender, plane, receiver->local()[plane], shape, memory, path);
    return sender->transmit(now(), {&run, 1});
  }
};

// P01: at the first call, at the 1000th, and for one of two planes only.
TEST(Segmentation, FailureSendsTheSamePacketsOneByOne) {
  for (const int code : {EIO, EINVAL, EMSGSIZE}) {
    for (const int good_calls : {0, 999}) {
      SCOPED_TRACE(code);
      Rig rig;
      int calls = 0;
      rig.calls.on_send = [&](const msghdr& m, bool segmented) {
        const auto to = from_sockaddr(static_cast<const sockaddr*>(m.msg_name));
        const bool first_plane = to.same_host(rig.receiver->local()[0]);
        return segmented && first_plane && calls++ >= good_calls ? code : 0;
      };
      uint64_t sent = 0;
      for (int i = 0; i < good_calls + 3; ++i) {
        ASSERT_EQ(rig.send(0), 15u);
        ASSERT_EQ(rig.send(1), 15u);
        sent += 30;
        ASSERT_EQ(receive_count(*rig.receiver, 30).size(), 30u);
      }
      const UdpCounters& c = rig.sender->counters();
      EXPECT_EQ(c.tx_datagrams, sent);
      EXPECT_EQ(c.gso_fallbacks, 1u);
      EXPECT_EQ(calls, good_calls + 1) << "segmentation was tried again on that plane";
      EXPECT_EQ(c.gso_batches, static_cast<uint64_t>(2 * good_calls + 3));
      EXPECT_EQ(c.send_errors + c.too_big, 0u);
      EXPECT_TRUE(rig.sender->take_hints(now()).empty());
    }
  }
}

TEST(Segmentation, StaysOnWhenSinglePacketsFailAsWell) {
  Rig rig;
  bool small_mtu = true;
  rig.calls.on_send = [&](const msghdr&, bool) { return small_mtu ? EMSGSIZE : 0; };
  EXPECT_EQ(rig.send(0), 0u);
  const auto hints = rig.sender->take_hints(now());
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_EQ(hints[0].hint, engine::NetworkHint::kTooBig);
  EXPECT_EQ(hints[0].connection, 5u);
  EXPECT_EQ(hints[0].path, 1);
  EXPECT_EQ(rig.sender->counters().too_big, 15u);
  small_mtu = false;
  EXPECT_EQ(rig.send(0), 15u);
  EXPECT_EQ(rig.sender->counters().gso_batches, 1u);
}

TEST(Segmentation, ForcedOnIsNotGivenUp) {
  Rig rig("", GsoMode::kOn);
  int failures = 2;
  rig.calls.on_send = [&](const msghdr&, bool segmented) {
    return segmented && failures > 0 ? (--failures, EIO) : 0;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.send(0), 15u);
  EXPECT_EQ(rig.sender->counters().gso_fallbacks, 2u);
  EXPECT_EQ(rig.sender->counters().gso_batches, 1u);
}

// N25: back-pressure loses nothing, also when the user's memory changes meanwhile.
TEST(BackPressure, WhatDidNotFitGoesOutLaterUnchanged) {
  for (const int code : {EAGAIN, ENOBUFS}) {
    SCOPED_TRACE(code);
    Rig rig;
    bool full = true;
    rig.calls.on_send = [&](const msghdr&, bool) { return full ? code : 0; };
    engine::TxRun run = make_run(*rig.sender, 0, rig.receiver->local()[0], kFull, rig.memory, 1);
    std::vector<Bytes> expected;
    for (size_t i = 0; i < run.count; ++i) expected.push_back(expected_bytes(run, i));
    EXPECT_EQ(rig.sender->transmit(now(), {&run, 1}), 0u);
    EXPECT_EQ(rig.sender->counters().blocked, 1u);
    for (auto& b : rig.memory) b ^= std::byte{0xEE};
    EXPECT_EQ(rig.sender->transmit(now(), {}), 0u);
    full = false;
    EXPECT_EQ(rig.sender->transmit(now(), {}), 15u);
    const auto got = receive_count(*rig.receiver, 15);
    ASSERT_EQ(got.size(), 15u);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].bytes, expected[i]);
    EXPECT_EQ(rig.sender->counters().send_errors, 0u);
    EXPECT_TRUE(rig.sender->take_hints(now()).empty());
  }
}

TEST(BackPressure, OneFullPlaneDoesNotStopTheOther) {
  Rig rig;
  rig.calls.on_send = [&](const msghdr& m, bool) {
    const auto to = from_sockaddr(static_cast<const sockaddr*>(m.msg_name));
    return to.same_host(rig.receiver->local()[0]) ? EAGAIN : 0;
  };
  EXPECT_EQ(rig.send(0), 0u);
  EXPECT_EQ(rig.send(1), 15u);
  EXPECT_FALSE(rig.sender->tx_blocked());
  size_t runs = 1;
  while (!rig.sender->tx_blocked() && runs < 1000) {
    rig.send(0);
    ++runs;
  }
  EXPECT_LT(runs, 1000u) << "kept packets have no bound";
  // After a while they are given up, so that the engine repairs them on another plane.
  EXPECT_EQ(rig.sender->transmit(now() + seconds(1), {}), 0u);
  EXPECT_FALSE(rig.sender->tx_blocked());
  size_t reported = 0;
  for (const Hint& h : rig.sender->take_hints(now())) {
    EXPECT_EQ(h.hint, engine::NetworkHint::kNotSent);
    reported += h.value;
  }
  EXPECT_EQ(reported, runs * 15);
}

// N25: an error that stood in the socket before costs nothing but a repetition.
TEST(SendErrors, PendingErrorsAreSteppedOver) {
  for (const int code : {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EPERM}) {
    SCOPED_TRACE(code);
    Rig rig;
    int n = 0;
    rig.calls.on_send = [&](const msghdr&, bool) { return ++n % 3 == 1 ? code : 0; };
    for (int i = 0; i < 10; ++i) EXPECT_EQ(rig.send(0), 15u);
    EXPECT_EQ(receive_count(*rig.receiver, 150).size(), 150u);
    EXPECT_EQ(rig.sender->counters().retried, 5u);
    EXPECT_EQ(rig.sender->counters().send_errors, 0u);
    EXPECT_TRUE(rig.sender->take_hints(now()).empty());
  }
}

TEST(SendErrors, LastingErrorsBecomeAHintThatNamesThePath) {
  const std::map<int, engine::NetworkHint> expected = {
      {ECONNREFUSED, engine::NetworkHint::kPortUnreachable},
      {EHOSTUNREACH, engine::NetworkHint::kHostUnreachable},
      {ENETUNREACH, engine::NetworkHint::kHostUnreachable},
      {ENETDOWN, engine::NetworkHint::kHostUnreachable},
      {EPERM, engine::NetworkHint::kNotSent}};
  for (const auto& [code, kind] : expected) {
    SCOPED_TRACE(code);
    Rig rig;
    const int fail = code;
    rig.calls.on_send = [fail](const msghdr&, bool) { return fail; };
    EXPECT_EQ(rig.send(1, kFull, 7), 0u);
    const auto hints = rig.sender->take_hints(now());
    ASSERT_EQ(hints.size(), 1u);
    EXPECT_EQ(hints[0].hint, kind);
    EXPECT_EQ(hints[0].connection, 5u);
    EXPECT_EQ(hints[0].path, 7);
    EXPECT_EQ(rig.sender->counters().send_errors, 15u);
    EXPECT_LT(rig.calls.sends, 10u);
  }
}

// S14: a real ICMP error on an unconnected socket.
TEST(SendErrors, PortUnreachableOfTheNetworkNamesThePath) {
  for (const char* own : {"127.0.0.1", "::1"}) {
    SCOPED_TRACE(own);
    const auto sender = open(options_for({own}));
    uint16_t closed_port = 0;
    {
      const auto gone = open(options_for({own}));
      ASSERT_TRUE(sender && gone);
      closed_port = gone->port();
    }
    const Bytes memory = random_bytes(4096, 12);
    engine::TxRun run = make_run(*sender, 0, parse_address(own, closed_port), {}, memory, 9);
    ASSERT_EQ(sender->transmit(now(), {&run, 1}), 1u);
    std::vector<Hint> hints;
    const Time limit = now() + seconds(10);
    while (hints.empty() && now() < limit) {
      for (const Hint& h : sender->take_hints(now())) hints.push_back(h);
      if (hints.empty()) sender->wait_until(kNever, -1, milliseconds(20));
    }
    ASSERT_FALSE(hints.empty());
    EXPECT_EQ(hints[0].hint, engine::NetworkHint::kPortUnreachable);
    EXPECT_EQ(hints[0].connection, 5u);
    EXPECT_EQ(hints[0].path, 9);
    EXPECT_GE(sender->counters().icmp_errors, 1u);
  }
}

TEST(ReceiveErrors, AnErrorInFrontOfDataDoesNotHideIt) {
  Rig rig;
  const auto receiver = rig.listen();
  ASSERT_TRUE(receiver);
  engine::TxRun run = make_run(*rig.sender, 0, receiver->local()[0], kFull, rig.memory);
  ASSERT_EQ(rig.sender->transmit(now(), {&run, 1}), 15u);
  std::deque<int> codes = {ECONNREFUSED, EINTR, EHOSTUNREACH};
  rig.calls.on_receive = [&] {
    const int code = codes.empty() ? 0 : codes.front();
    if (!codes.empty()) codes.pop_front();
    return code;
  };
  EXPECT_EQ(receive_count(*receiver, 15).size(), 15u);
  EXPECT_TRUE(codes.empty());
  rig.calls.on_receive = [] { return ENETDOWN; };  // for ever: the driver must come back
  EXPECT_TRUE(receiver->receive(now()).empty());
}

// P03: a cut is never silent.
TEST(ReceiveErrors, TruncationIsCounted) {
  for (const int flag : {MSG_TRUNC, MSG_CTRUNC}) {
    Rig rig;
    const auto receiver = rig.listen();
    ASSERT_TRUE(receiver);
    rig.calls.receive_flags = flag;
    engine::TxRun run = make_run(*rig.sender, 0, receiver->local()[0], kFull, rig.memory);
    ASSERT_EQ(rig.sender->transmit(now(), {&run, 1}), 15u);
    receive_count(*receiver, 15);
    EXPECT_EQ(receiver->counters().truncated, receiver->counters().rx_calls);
  }
}

// N23 and the tally: what the injector says and what the receiver saw agree to the packet.
TEST(Faults, TallyEqualsWhatTheReceiverMisses) {
  Rig rig("seed=3,drop=5%,dup=3%,corrupt=4%,reorder=5%:20us-200us,mark=10%,drop=50%:path=2");
  uint64_t sent = 0;
  std::vector<Received> got;
  for (int i = 0; i < 60; ++i) {
    sent += rig.send(i % 2 != 0, kFull, static_cast<uint8_t>(1 + i % 2));
    for (auto& r : receive_datagrams(*rig.receiver, sent)) got.push_back(std::move(r));
  }
  const FaultTally& tally = rig.receiver->rx_faults().tally();
  const UdpCounters& c = rig.receiver->counters();
  EXPECT_EQ(sent, 900u);
  EXPECT_EQ(tally.seen, sent);
  EXPECT_EQ(c.crc_errors, tally.of(FaultKind::kCorrupt));
  EXPECT_EQ(got.size() + c.crc_errors, sent - tally.lost() + tally.of(FaultKind::kDuplicate));
  for (const FaultKind kind : {FaultKind::kDrop, FaultKind::kDuplicate, FaultKind::kCorrupt,
                               FaultKind::kReorder, FaultKind::kMark}) {
    EXPECT_GT(tally.of(kind), 0u) << to_string(kind);
  }
  EXPECT_GT(tally.path[2][0], tally.path[1][0]);
  uint64_t marked = 0;
  for (const Received& r : got) {
    marked += r.ecn == Ecn::kCe;
    EXPECT_EQ(r.bytes.size(), 44u + 1408u);
  }
  EXPECT_EQ(marked, c.rx_ce);
  EXPECT_GT(marked, 0u);
}

TEST(Faults, CorruptPacketsAreNeverDelivered) {
  Rig rig("corrupt=100%");
  const uint64_t sent = rig.send(0) + rig.send(1) + rig.send(0, {1, 32, 0, 0, false});
  EXPECT_TRUE(receive_datagrams(*rig.receiver, sent).empty());
  EXPECT_EQ(rig.receiver->counters().crc_errors, 31u);
}

TEST(Faults, DarkPlaneSwallowsAllOfItAndNothingElse) {
  Rig rig;
  rig.receiver->rx_faults().set_plane_dark(0, true);
  const uint64_t sent = rig.send(0) + rig.send(1);
  const auto got = receive_datagrams(*rig.receiver, sent);
  EXPECT_EQ(got.size(), 15u);
  for (const Received& r : got) EXPECT_EQ(r.plane, 1);
  EXPECT_EQ(rig.receiver->rx_faults().tally().of(FaultKind::kBlackhole), 15u);
}

TEST(Faults, TransmitSideWorksOnSinglePackets) {
  UdpOptions options = options_for({"127.0.1.1"});
  options.faults = *parse_faults("drop=20%:dir=tx,delay=10%:50us:dir=tx,corrupt=10%:dir=tx");
  const auto sender = open(options);
  const auto receiver = open(options_for({"127.0.1.2"}));
  ASSERT_TRUE(sender && receiver);
  const Bytes memory = random_bytes(64 << 10, 13);
  std::vector<Received> got;
  const Time limit = now() + seconds(10);
  const auto collect = [&] {
    const uint64_t left = sender->counters().tx_datagrams;
    for (auto& r : receive_datagrams(*receiver, left)) got.push_back(std::move(r));
  };
  for (int i = 0; i < 40; ++i) {
    engine::TxRun run = make_run(*sender, 0, receiver->local()[0], kFull, memory);
    sender->transmit(now(), {&run, 1});
    collect();
  }
  while (sender->tx_faults().next_release() != kNever && now() < limit) {
    sender->transmit(now(), {});
    collect();
  }
  const FaultTally& tally = sender->tx_faults().tally();
  EXPECT_EQ(tally.seen, 600u);
  EXPECT_GT(tally.lost(), 60u);
  EXPECT_GT(tally.of(FaultKind::kDelay), 0u);
  EXPECT_EQ(sender->counters().tx_datagrams, 600 - tally.lost());
  EXPECT_EQ(got.size(), 600 - tally.lost() - tally.of(FaultKind::kCorrupt));
  EXPECT_EQ(receiver->counters().crc_errors, tally.of(FaultKind::kCorrupt));
}

}  // namespace
}  // namespace metaroce::driver
