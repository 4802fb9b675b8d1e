#include "driver/udp/udp_driver.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include "driver/common/loop.h"
#include "driver/udp/test_support.h"

namespace metaroce::driver {
namespace {

using namespace test;

/// The three ways a peer's address can look: sender plane, receiver plane, address sent to.
struct Form {
  const char* name;
  const char* from;
  const char* bound;
  const char* to;
};
constexpr Form kForms[] = {{"IPv4", "127.0.0.1", "127.0.0.2", "127.0.0.2"},
                           {"IPv6", "::1", "::1", "::1"},
                           {"mapped", "127.0.0.1", "::", "127.0.0.3"},
                           {"mapped sender", "::", "127.0.0.2", "127.0.0.2"},
                           {"wildcard6", "::1", "::", "::1"}};

SocketAddress target(const Form& form, const UdpDriver& receiver) {
  return parse_address(form.to, receiver.port());
}

constexpr Shape kShapes[] = {
    {1, 44, 0, 0, false},       {1, 64, 1, 1, false},         {15, 44, 4096, 4096, false},
    {15, 44, 4096, 16, false},  {2, 48, 1408, 1, false},      {15, 32, 0, 0, false},
    {4, 44, 8192, 8192, false}, {1, 44, 60000, 60000, false}, {3, 36, 1408, 1392, true},
    {7, 44, 9000, 128, false},
};

class RoundTrip : public testing::TestWithParam<GsoMode> {};

TEST_P(RoundTrip, EveryByteArrivesForEveryAddressForm) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.name);
    UdpOptions options = options_for({form.from});
    options.gso = GetParam();
    const auto sender = open(options);
    const auto receiver = open(options_for({form.bound}));
    ASSERT_TRUE(sender && receiver);
    const Bytes memory = random_bytes(128 << 10, 1);
    uint8_t path = 0;
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(shape.payload);
      engine::TxRun run = make_run(*sender, 0, target(form, *receiver), shape, memory, ++path);
      EXPECT_EQ(sender->transmit(now(), {&run, 1}), shape.count);
      const auto got = receive_count(*receiver, shape.count);
      ASSERT_EQ(got.size(), shape.count);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].bytes, expected_bytes(run, i)) << i;
        EXPECT_EQ(got[i].from.port, run.from.port);
        EXPECT_EQ(got[i].plane, 0);
      }
    }
    const bool gso = GetParam() != GsoMode::kOff;
    EXPECT_EQ(sender->counters().gso_batches > 0, gso);
    EXPECT_EQ(receiver->counters().gro_batches > 0, gso);
    EXPECT_EQ(receiver->counters().truncated, 0u);
    EXPECT_EQ(receiver->counters().crc_errors, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Gso, RoundTrip, testing::Values(GsoMode::kAuto, GsoMode::kOff));

// N15: on a socket for both families IPV6_TCLASS leaves the bits of an IPv4 packet at zero.
TEST(Ecn, EveryCodePointArrivesForEveryAddressForm) {
  const Bytes memory = random_bytes(64 << 10, 2);
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.name);
    const auto sender = open(options_for({form.from}));
    const auto receiver = open(options_for({form.bound}));
    ASSERT_TRUE(sender && receiver);
    for (const Ecn ecn : {Ecn::kNotEct, Ecn::kEct0, Ecn::kEct1, Ecn::kCe}) {
      engine::TxRun run =
          make_run(*sender, 0, target(form, *receiver), {4, 44, 1000, 1000, false}, memory);
      run.ecn = ecn;
      ASSERT_EQ(sender->transmit(now(), {&run, 1}), 4u);
      for (const Received& r : receive_count(*receiver, 4)) EXPECT_EQ(r.ecn, ecn);
    }
    EXPECT_EQ(receiver->counters().rx_ce, 4u);
  }
}

// P03: 40 datagrams of 1400 bytes in one buffer lose nothing.
TEST(Receive, CoalescedBatchesAreNotCut) {
  const auto sender = open(options_for({"127.0.0.1"}));
  const auto receiver = open(options_for({"127.0.0.2"}));
  ASSERT_TRUE(sender && receiver);
  const Bytes memory = random_bytes(64 << 10, 3);
  std::vector<engine::TxRun> runs(
      8, make_run(*sender, 0, receiver->local()[0], {15, 44, 1356, 1356, false}, memory));
  EXPECT_EQ(sender->transmit(now(), runs), 120u);
  EXPECT_EQ(receive_count(*receiver, 120).size(), 120u);
  EXPECT_EQ(receiver->counters().truncated, 0u);
  EXPECT_LT(receiver->counters().rx_calls, 120u);
}

// S16: the answer of a wildcard endpoint comes from the address that was asked.
TEST(Wildcard, AnswersFromTheAddressThatWasAsked) {
  for (const char* any : {"0.0.0.0", "::"}) {
    const auto server = open(options_for({any}));
    const Bytes memory = random_bytes(4096, 4);
    ASSERT_TRUE(server);
    // Different clients, so that one's answer does not follow the other's question.
    uint8_t client_number = 10;
    for (const char* asked : {"127.0.0.5", "127.0.0.6", "127.0.7.7"}) {
      const std::string own = "127.0.0." + std::to_string(client_number++);
      const auto client = open(options_for({own.c_str()}));
      ASSERT_TRUE(client);
      engine::TxRun ask = make_run(*client, 0, parse_address(asked, server->port()), {}, memory, 1);
      client->transmit(now(), {&ask, 1});
      const auto question = receive_count(*server, 1);
      ASSERT_EQ(question.size(), 1u);
      engine::TxRun answer = make_run(*server, 0, client->local()[0], {}, memory, 2);
      EXPECT_EQ(server->transmit(now(), {&answer, 1}), 1u);
      const auto got = receive_count(*client, 1);
      ASSERT_EQ(got.size(), 1u);
      EXPECT_TRUE(got[0].from.same_host(parse_address(asked, 0)))
          << to_string(got[0].from) << " for " << asked;
    }
  }
}

TEST(Planes, EachAddressIsAPlaneOfItsOwn) {
  const auto sender = open(options_for({"127.0.1.1", "127.0.2.1", "127.0.3.1", "127.0.4.1"}));
  const auto receiver = open(options_for({"127.0.1.2", "127.0.2.2", "127.0.3.2", "127.0.4.2"}));
  ASSERT_TRUE(sender && receiver);
  const Bytes memory = random_bytes(4096, 5);
  ASSERT_EQ(receiver->local().size(), 4u);
  ASSERT_EQ(receiver->plane_mtu().size(), 4u);
  std::vector<engine::TxRun> runs;
  for (uint8_t plane = 0; plane < 4; ++plane) {
    EXPECT_EQ(receiver->local()[plane].port, receiver->port());
    EXPECT_EQ(receiver->plane_mtu()[plane], 65535);
    runs.push_back(make_run(*sender, plane, receiver->local()[plane], {}, memory, plane));
  }
  EXPECT_EQ(sender->transmit(now(), runs), 4u);
  std::array<int, 4> seen{};
  for (const Received& r : receive_count(*receiver, 4)) {
    ++seen[r.plane];
    EXPECT_TRUE(r.from.same_host(sender->local()[r.plane]));
  }
  EXPECT_EQ(seen, (std::array<int, 4>{1, 1, 1, 1}));
}

TEST(Open, SaysWhatIsWrongWithAnAddress) {
  const auto first = open(options_for({"127.0.0.1"}));
  ASSERT_TRUE(first);
  UdpOptions taken = options_for({"127.0.0.1"});
  taken.port = first->port();
  const auto second = UdpDriver::open(taken);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
  EXPECT_NE(second.error().text.find(std::to_string(first->port())), std::string::npos);
  EXPECT_NE(second.error().text.find("choose another service port"), std::string::npos);

  const auto foreign = UdpDriver::open(options_for({"203.0.113.77"}));
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, EADDRNOTAVAIL);
  EXPECT_NE(foreign.error().text.find("203.0.113.77"), std::string::npos);
  EXPECT_NE(foreign.error().text.find("ip address"), std::string::npos);

  UdpOptions many;
  many.local.assign(17, parse_address("127.0.0.1", 0));
  EXPECT_FALSE(UdpDriver::open(many));
  UdpOptions none;
  none.local.emplace_back();
  EXPECT_FALSE(UdpDriver::open(none));
}

// S23.
TEST(Buffers, OneWarningNamesSysctlAndBothNumbers) {
  FailingSyscalls calls;
  calls.allow_force = false;
  UdpOptions options = options_for({"127.0.0.1"});
  options.syscalls = &calls;
  options.receive_buffer = 1u << 30;
  options.send_buffer = 4608;
  const auto driver = open(options);
  ASSERT_TRUE(driver);
  EXPECT_LT(driver->receive_buffer(), 1u << 30);
  const std::string& text = driver->buffer_warning();
  EXPECT_NE(text.find("net.core.rmem_max"), std::string::npos) << text;
  EXPECT_EQ(text.find("net.core.wmem_max"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(1u << 30)), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(driver->receive_buffer())), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);

  options.receive_buffer = 100'000;
  const auto modest = open(options);
  ASSERT_TRUE(modest);
  EXPECT_EQ(modest->buffer_warning(), "");
}

// S23: the number the engine advertises must fit, whatever the kernel granted.
TEST(Buffers, AsManyPacketsAsPromisedFit) {
  FailingSyscalls calls;
  calls.allow_force = false;
  const Bytes memory = random_bytes(64 << 10, 6);
  for (const uint32_t payload : {256u, 1408u, 4096u, 8192u}) {
    SCOPED_TRACE(payload);
    UdpOptions options = options_for({"127.0.0.2"});
    options.syscalls = &calls;
    options.receive_buffer = 106'496;  // half of the usual default of 212992
    options.max_payload = payload;
    const auto receiver = open(options);
    const auto sender = open(options_for({"127.0.0.1"}));
    ASSERT_TRUE(receiver && sender);
    const uint32_t n = receiver->inflight_packets();
    EXPECT_GE(n, 8u);
    for (uint32_t i = 0; i < n; ++i) {
      engine::TxRun run =
          make_run(*sender, 0, receiver->local()[0], {1, 52, payload, payload, false}, memory);
      ASSERT_EQ(sender->transmit(now(), {&run, 1}), 1u);
    }
    EXPECT_EQ(receive_count(*receiver, n).size(), n);
    EXPECT_EQ(receiver->counters().rx_overflow, 0u);
  }
}

TEST(TxSockets, TakenSourcePortIsReplacedAndPacketsStillLeave) {
  const auto other = open(options_for({"127.0.0.1"}));
  const auto sender = open(options_for({"127.0.0.1"}));
  const auto receiver = open(options_for({"127.0.0.2"}));
  ASSERT_TRUE(other && sender && receiver);
  const Bytes memory = random_bytes(4096, 7);
  engine::TxRun run = make_run(*sender, 0, receiver->local()[0], {}, memory);
  run.from.port = other->port();
  EXPECT_EQ(sender->transmit(now(), {&run, 1}), 1u);
  EXPECT_EQ(sender->transmit(now(), {&run, 1}), 1u);
  EXPECT_EQ(sender->counters().ports_substituted, 1u);
  EXPECT_EQ(sender->tx_sockets(), 1u);
  const auto got = receive_count(*receiver, 2);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_NE(got[0].from.port, other->port());
  EXPECT_EQ(got[0].from.port, got[1].from.port);
}

TEST(TxSockets, CapClosesIdleOnesAndOtherwiseSendsShared) {
  UdpOptions options = options_for({"127.0.0.1"});
  options.max_tx_sockets = 2;
  const auto sender = open(options);
  const auto receiver = open(options_for({"127.0.0.2"}));
  ASSERT_TRUE(sender && receiver);
  const Bytes memory = random_bytes(4096, 8);
  const Time start = now();
  const auto send = [&](uint8_t path, Duration after) {
    engine::TxRun run = make_run(*sender, 0, receiver->local()[0], {}, memory, path);
    EXPECT_EQ(sender->transmit(start + after, {&run, 1}), 1u);
    const auto got = receive_count(*receiver, 1);
    return got.empty() ? uint16_t{0} : got[0].from.port;
  };
  EXPECT_EQ(send(1, {}), test_port(1));
  EXPECT_EQ(send(2, milliseconds(1)), test_port(2));
  EXPECT_EQ(send(3, milliseconds(2)), sender->port());
  EXPECT_EQ(sender->counters().shared_sends, 1u);
  EXPECT_EQ(send(2, seconds(9)), test_port(2));
  EXPECT_EQ(send(3, seconds(9)), test_port(3));  // path 1 had rested
  EXPECT_EQ(sender->counters().tx_sockets_closed, 1u);
  EXPECT_EQ(sender->tx_sockets(), 2u);
}

TEST(Receive, ABatchIsNotCutShortBySmallDatagrams) {
  // Answers to probes must not be read slower than a turn can send probes (P09).
  const auto sender = open(options_for({"127.0.0.1"}));
  const auto receiver = open(options_for({"127.0.0.2"}));
  ASSERT_TRUE(sender && receiver);
  const Bytes memory = random_bytes(64, 5);
  for (uint8_t i = 0; i < 40; ++i) {
    engine::TxRun run =
        make_run(*sender, 0, receiver->local()[0], {1, 44, 16, 16, false}, memory, i % 4);
    ASSERT_EQ(sender->transmit(now(), {&run, 1}), 1u);
  }
  EXPECT_EQ(receiver->receive(now()).size(), 40u);
}

/// Records what the driver does, in which order.
struct FakeEngine {
  std::vector<std::string> calls;
  Time deadline = kNever;
  std::vector<engine::TxRun> to_send;
  std::vector<Hint> hints;
  Bytes target = Bytes(1 << 20);
  bool placed_before_poll = true;
  size_t received = 0;

  size_t on_packets(Time, std::span<const engine::RxPacket> packets,
                    std::span<engine::Placement> placements) {
    calls.push_back("packets");
    received += packets.size();
    for (uint32_t i = 0; i < packets.size(); ++i) {
      engine::Placement& p = placements[i];
      p = {};
      p.packet = i;
      p.payload_begin = 44;
      p.length = static_cast<uint32_t>(packets[i].bytes.size() - 44);
      p.address = target.data() + size_t{i} * 1000;
    }
    return packets.size();
  }
  size_t poll_transmit(Time, std::span<engine::TxRun> runs) {
    calls.push_back("poll");
    placed_before_poll = placed_before_poll && target[0] != std::byte{0};
    const size_t n = std::min(runs.size(), to_send.size());
    std::copy_n(to_send.begin(), n, runs.begin());
    to_send.erase(to_send.begin(), to_send.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }
  Time next_deadline() const { return deadline; }
  void on_deadline(Time) {
    calls.push_back("deadline");
    deadline = kNever;
  }
  void on_network_hint(Time, uint32_t connection, uint8_t path, engine::NetworkHint hint,
                       uint32_t value) {
    hints.push_back({connection, path, hint, value});
  }
  void on_plane_state(Time, uint8_t, bool) {}
};

TEST(Progress, PlacesBeforeItPollsAndMovesWorkBothWays) {
  const auto a = open(options_for({"127.0.0.1"}));
  const auto b = open(options_for({"127.0.0.2"}));
  ASSERT_TRUE(a && b);
  const Bytes memory(20000, std::byte{7});
  FakeEngine sending;
  FakeEngine receiving;
  sending.deadline = now();
  for (int i = 0; i < 20; ++i) {
    sending.to_send.push_back(
        make_run(*a, 0, b->local()[0], {5, 44, 1000, 1000, false}, memory, 1));
  }
  sending.target[0] = std::byte{1};
  while (!sending.to_send.empty()) ASSERT_NE(a->progress(sending), 0u);
  EXPECT_EQ(sending.calls[0], "deadline");
  const Time limit = now() + seconds(10);
  while (receiving.received < 100 && now() < limit) {
    if (b->progress(receiving) == 0) b->wait(receiving, -1, milliseconds(20));
  }
  EXPECT_EQ(receiving.received, 100u);
  EXPECT_TRUE(receiving.placed_before_poll);
  EXPECT_EQ(receiving.target[4999], std::byte{7});
  EXPECT_EQ(b->counters().placed_bytes, 100'000u);
  EXPECT_EQ(a->progress(sending), 0u);
}

TEST(Wait, BlocksUntilTheDeadlineAndWakesForDescriptorsAndPackets) {
  UdpOptions options = options_for({"127.0.0.1"});
  options.spin = {};
  const auto driver = open(options);
  const auto peer = open(options_for({"127.0.0.2"}));
  ASSERT_TRUE(driver && peer);
  const Time start = now();
  driver->wait_until(start + milliseconds(2), -1, seconds(60));
  EXPECT_GE(now(), start + milliseconds(2));
  driver->wait_until(kNever, -1, milliseconds(2));  // the time-out holds without a deadline
  const int event = eventfd(1, EFD_CLOEXEC);
  driver->wait_until(kNever, event, seconds(600));
  driver->wait_until(now() - seconds(1), -1, seconds(600));  // past: no waiting
  const Bytes memory = random_bytes(4096, 9);
  engine::TxRun run = make_run(*peer, 0, driver->local()[0], {}, memory);
  peer->transmit(now(), {&run, 1});
  driver->wait_until(kNever, -1, seconds(600));
  EXPECT_EQ(receive_count(*driver, 1).size(), 1u);
  close(event);
}

TEST(Wait, SpinsOnlyForAWhileAfterWork) {
  Loop loop(microseconds(50));
  EXPECT_FALSE(loop.spinning({1'000'000}));
  loop.note_work({1'000'000});
  EXPECT_TRUE(loop.spinning({1'049'999}));
  EXPECT_FALSE(loop.spinning({1'050'000}));
  Loop never({});
  never.note_work({1'000'000});
  EXPECT_FALSE(never.spinning({1'000'000}));
}

}  // namespace
}  // namespace metaroce::driver
