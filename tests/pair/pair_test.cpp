// Two engines over the simulated network: what must hold before any figure means something.
#include "tests/pair/pair.h"

#include <gtest/gtest.h>

namespace metaroce::pair {
namespace {

using engine::Completion;
using engine::Operation;

PairConfig config_with(uint32_t planes, uint32_t paths, uint64_t seed = 1) {
  PairConfig c;
  c.seed = seed;
  c.network.planes = planes;
  c.network.mtu = 4500;
  c.settings.paths_per_plane = paths;
  c.region_bytes = 8 << 20;
  c.longest_message = 8 << 20;
  c.receive_streams = 8;
  c.receive_slots = 64;
  c.receive_slot_bytes = 64 << 10;
  return c;
}

Impairment everywhere(ImpairmentKind kind, uint64_t ppm) {
  Impairment i;
  i.kind = kind;
  i.probability = per_million(ppm);
  return i;
}

/// All bytes exact, each placed once, nothing outside.
void expect_clean(Pair& pair, int receiver, uint64_t bytes) {
  pair.run_for(milliseconds(1));  // late copies arrive
  const SideCounts& c = pair.counts(receiver);
  EXPECT_EQ(c.wrong_bytes, 0u);
  EXPECT_EQ(c.stray_placements, 0u);
  EXPECT_EQ(c.placed_bytes, bytes);
  EXPECT_EQ(pair.counts(0).failed + pair.counts(1).failed, 0u);
  EXPECT_TRUE(pair.guards_intact());
  EXPECT_FALSE(pair.stuck());
}

void write_and_check(Pair& pair, uint64_t length, Duration limit = milliseconds(50)) {
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.write(0, 0, 1, 100, length), Status::kOk);
  ASSERT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 1; }, limit));
  EXPECT_EQ(pair.wrong_in_region(1, 100, length), 0u);
  expect_clean(pair, 1, length);
}

TEST(Pair, ConnectOpensEveryPathOfEveryPlane) {
  Pair pair(config_with(4, 4));
  ASSERT_TRUE(pair.connect());
  for (int side = 0; side < 2; ++side) {
    const auto paths = pair.paths(side);
    EXPECT_EQ(paths.size(), 16u);
    for (const auto& p : paths) EXPECT_EQ(p.state, engine::PathState::kGood) << int{p.id};
  }
}

TEST(Pair, OneWriteIsByteExact) {
  Pair pair(config_with(1, 8));
  write_and_check(pair, 1'000'003);
  EXPECT_EQ(pair.network().tally().spurious_repairs, 0u);
  EXPECT_EQ(pair.network().tally().data_repairs, 0u);
}

TEST(Pair, OnePathCarriesAWrite) {
  Pair pair(config_with(1, 1));
  write_and_check(pair, 3'000'000);
}

TEST(Pair, WritesOfEdgeLengths) {
  Pair pair(config_with(2, 2));
  ASSERT_TRUE(pair.connect());
  const uint64_t lengths[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 65'536, 100'001};
  uint64_t offset = 0, total = 0, id = 0;
  for (const uint64_t n : lengths) {
    ASSERT_EQ(pair.write(0, 2, id++, offset, n), Status::kOk);
    offset += n + 64;
    total += n;
  }
  ASSERT_TRUE(
      pair.run_until([&] { return pair.counts(0).completions == std::size(lengths); },
                     milliseconds(20)));
  expect_clean(pair, 1, total);
}

TEST(Pair, SendsLandInTheirReceivesInOrder) {
  Pair pair(config_with(2, 4));
  ASSERT_TRUE(pair.connect());
  std::vector<uint64_t> received;
  pair.on_completion = [&](int side, const Completion& c) {
    if (side == 1 && c.operation == Operation::kReceive) received.push_back(c.id);
  };
  for (uint64_t n = 0; n < 30; ++n) ASSERT_EQ(pair.receive(1, 0, n, n), Status::kOk);
  for (uint64_t n = 0; n < 30; ++n)
    ASSERT_EQ(pair.send(0, 0, 100 + n, n, n * 1777, n % 2 == 1), Status::kOk);
  ASSERT_TRUE(pair.run_until(
      [&] { return received.size() == 30 && pair.counts(0).completions == 30; },
      milliseconds(20)));
  uint64_t total = 0;
  for (uint64_t n = 0; n < 30; ++n) {
    EXPECT_EQ(received[n], n);
    EXPECT_EQ(pair.wrong_in_receive(1, 0, n, n * 1777), 0u) << n;
    total += n * 1777;
  }
  expect_clean(pair, 1, total);
}

TEST(Pair, LossOnDataAndAcks) {
  for (const uint64_t ppm : {10'000, 100'000, 300'000}) {
    SCOPED_TRACE(ppm);
    Pair pair(config_with(1, 8, ppm));
    pair.network().add(everywhere(ImpairmentKind::kLoss, ppm));
    write_and_check(pair, 4'000'000, milliseconds(400));
    EXPECT_GT(pair.network().tally().lost, 0u);
  }
}

TEST(Pair, DuplicatesAreNeverPlacedTwice) {
  Pair pair(config_with(1, 4));
  Impairment i = everywhere(ImpairmentKind::kDuplicate, 300'000);
  i.max = microseconds(40);
  pair.network().add(i);
  write_and_check(pair, 2'000'000);
  EXPECT_GT(pair.network().tally().duplicates, 100u);
}

TEST(Pair, DamagedPacketsAreLikeLostOnes) {
  Pair pair(config_with(1, 4));
  pair.network().add(everywhere(ImpairmentKind::kCorrupt, 20'000));
  write_and_check(pair, 2'000'000);
  EXPECT_GT(pair.network().tally().crc_errors, 0u);
}

TEST(Pair, ReorderedPacketsFindTheirPlace) {
  Pair pair(config_with(2, 2));
  Impairment i = everywhere(ImpairmentKind::kReorder, 200'000);
  i.min = microseconds(1);
  i.max = microseconds(20);
  pair.network().add(i);
  write_and_check(pair, 2'000'000);
  EXPECT_GT(pair.network().tally().late, 0u);
}

TEST(Pair, VirtualPayloadBehavesAsRealOne) {
  auto run = [](bool real) {
    PairConfig c = config_with(2, 4, 77);
    c.real_memory = real;
    Pair pair(c);
    pair.network().add(everywhere(ImpairmentKind::kLoss, 20'000));
    EXPECT_TRUE(pair.connect());
    EXPECT_EQ(pair.write(0, 0, 1, 0, 4 << 20), Status::kOk);
    EXPECT_TRUE(
        pair.run_until([&] { return pair.counts(0).completions == 1; }, milliseconds(50)));
    EXPECT_EQ(pair.counts(1).placed_bytes, 4u << 20);
    return pair.hash();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Pair, SameSeedSameHash) {
  auto run = [](uint64_t seed) {
    Pair pair(config_with(2, 4, seed));
    pair.network().add(everywhere(ImpairmentKind::kLoss, 50'000));
    EXPECT_TRUE(pair.connect());
    EXPECT_EQ(pair.write(0, 0, 1, 0, 1 << 20), Status::kOk);
    pair.run_until([&] { return pair.counts(0).completions == 1; }, milliseconds(50));
    return pair.hash();
  };
  EXPECT_EQ(run(9), run(9));
  EXPECT_NE(run(9), run(10));
}

}  // namespace
}  // namespace metaroce::pair
