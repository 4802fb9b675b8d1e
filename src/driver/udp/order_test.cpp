// The order of a round, for owners that answer at once.
#include <gtest/gtest.h>

#include "driver/udp/test_support.h"

namespace metaroce::driver {
namespace {

using test::Bytes;

/// Gives what it was told to give, and notes when it was asked.
struct ScriptedEngine {
  std::vector<engine::TxRun> runs;
  std::vector<std::string> calls;
  size_t packets = 0;

  void on_plane_state(Time, uint8_t, bool) {}
  size_t on_packets(Time, std::span<const engine::RxPacket> in, std::span<engine::Placement>) {
    calls.emplace_back("packets");
    packets += in.size();
    return 0;
  }
  void on_network_hint(Time, uint32_t, uint8_t, engine::NetworkHint, uint32_t) {}
  Time next_deadline() const { return kNever; }
  void on_deadline(Time) {}
  size_t poll_transmit(Time, std::span<engine::TxRun> out) {
    calls.emplace_back("transmit");
    const size_t n = std::min(runs.size(), out.size());
    std::copy_n(runs.begin(), n, out.begin());
    runs.clear();
    return n;
  }
};

engine::TxRun run_of(const UdpDriver& from, const UdpDriver& to, bool is_data, uint8_t count,
                     const Bytes& memory, uint8_t mark) {
  engine::TxRun run =
      test::make_run(from, 0, to.local()[0], {count, 44, 100, 100, false}, memory, mark);
  run.is_data = is_data;
  return run;
}

TEST(Order, LoneDataPacketsOvertakeAcknowledgementsOnly) {
  auto a = test::open(test::options_for({"127.0.0.1"}));
  auto b = test::open(test::options_for({"127.0.0.1"}));
  ASSERT_TRUE(a && b);
  const Bytes memory = test::random_bytes(2000, 1);
  const auto marks = [&](bool answers_first) {
    ScriptedEngine engine;
    engine.runs = {run_of(*a, *b, false, 1, memory, 1), run_of(*a, *b, true, 2, memory, 2),
                   run_of(*a, *b, true, 1, memory, 3)};
    answers_first ? a->progress_out_in(engine) : a->progress(engine);
    std::vector<int> out;
    for (const auto& r : test::receive_count(*b, 4)) out.push_back(static_cast<int>(r.bytes[2]));
    return out;
  };
  EXPECT_EQ(marks(false), (std::vector<int>{1, 2, 2, 3}));
  EXPECT_EQ(marks(true), (std::vector<int>{3, 1, 2, 2}));
}

TEST(Order, TransmitComesFirstWhenAskedFor) {
  auto a = test::open(test::options_for({"127.0.0.1"}));
  auto b = test::open(test::options_for({"127.0.0.1"}));
  ASSERT_TRUE(a && b);
  const Bytes memory = test::random_bytes(2000, 1);
  for (const bool out_first : {false, true}) {
    std::vector<engine::TxRun> runs{run_of(*b, *a, true, 1, memory, 1)};
    ASSERT_EQ(b->transmit(now(), runs), 1u);
    ScriptedEngine engine;
    while (engine.packets == 0) {
      engine.calls.clear();
      out_first ? a->progress_out_in(engine) : a->progress(engine);
    }
    const std::vector<std::string> in_first{"packets", "transmit"};
    EXPECT_EQ(engine.calls,
              out_first ? std::vector<std::string>({"transmit", "packets"}) : in_first);
  }
}

TEST(Order, ALoneDatagramIsHandedOverWithoutAnotherLook) {
  for (const bool single : {false, true}) {
    UdpOptions options = test::options_for({"127.0.0.1"});
    options.hand_over_single = single;
    auto a = test::open(options);
    auto b = test::open(test::options_for({"127.0.0.1"}));
    ASSERT_TRUE(a && b);
    const Bytes memory = test::random_bytes(2000, 1);
    // Ports of their own: datagrams of one flow may be coalesced.
    std::vector<engine::TxRun> runs;
    for (uint8_t i = 0; i < 3; ++i) runs.push_back(run_of(*b, *a, true, 1, memory, i));
    ASSERT_EQ(b->transmit(now(), runs), 3u);
    std::vector<size_t> batches;
    for (size_t all = 0; all < 3;) {
      const size_t n = a->receive(now()).size();
      if (n != 0) batches.push_back(n);
      all += n;
    }
    EXPECT_EQ(batches, single ? std::vector<size_t>({1, 1, 1}) : std::vector<size_t>({3}));
  }
}

}  // namespace
}  // namespace metaroce::driver
