// The simulated network alone, with packets made by hand.
#include "tests/pair/network.h"

#include <gtest/gtest.h>

#include <cstring>

#include "wire/data_packet.h"
#include "wire/probe_packet.h"

namespace metaroce::pair {
namespace {

struct Lab {
  explicit Lab(const NetworkConfig& config = {}, uint64_t seed = 1)
      : network(config, {.copy_payload = true, .cpsn_window = 1024}, Rng(seed), events) {}

  void send(Time now, uint32_t seq, uint16_t port = 1000, uint32_t payload = 4096,
            uint32_t cpsn = 0, uint8_t plane = 0) {
    engine::TxRun run;
    run.from = plane_address(plane, 0, port);
    run.to = plane_address(plane, 1, wire::kBasePort);
    run.plane = plane;
    run.count = 1;
    wire::DataPacket d;
    d.s.path_seq = seq;
    d.s.cpsn = cpsn == 0 ? seq : cpsn;
    d.opcode = wire::Opcode::kWrite;
    run.header_length[0] = static_cast<uint16_t>(wire::encode(d, run.headers));
    run.payload_length[0] = payload;
    run.payload[0] = nullptr;
    network.send(now, 0, run);
  }

  struct Arrival {
    int64_t time;
    uint32_t seq;
    Ecn ecn;
  };
  std::vector<Arrival> drain() {
    std::vector<Arrival> out;
    while (!events.empty()) {
      const Event e = events.pop();
      if (e.kind == EventKind::kNetwork) {
        network.update(Time{e.time});
      } else if (network.arrive(Time{e.time}, e.argument)) {
        const FlyingPacket& p = network.packet(e.argument);
        out.push_back({e.time, wire::load32(network.bytes(e.argument) + 8), p.ecn});
        network.release(e.argument);
      }
    }
    return out;
  }

  EventQueue events;
  Network network;
};

Impairment impairment(ImpairmentKind kind, uint64_t ppm) {
  Impairment i;
  i.kind = kind;
  i.probability = per_million(ppm);
  return i;
}

// 4096 + 44 + 4 + 42 bytes at 50 Gb/s.
constexpr int64_t kTakes = 670;
constexpr uint32_t kWire = 4186;

TEST(Network, SerialisationThenDelay) {
  Lab lab;
  lab.send(Time{0}, 1);
  lab.send(Time{0}, 2);
  lab.send(Time{0}, 3, 1001);
  const auto a = lab.drain();
  ASSERT_EQ(a.size(), 3u);
  EXPECT_EQ(a[0].time, 5000 + kTakes);
  EXPECT_EQ(a[1].time, 5000 + kTakes) << "another source port has a link of its own";
  EXPECT_EQ(a[2].time, 5000 + 1340);
  EXPECT_EQ(lab.network.tally().bytes, 3u * kWire);
}

TEST(Network, SharedRateIsOneQueue) {
  NetworkConfig config;
  config.shared_rate = true;
  Lab lab(config);
  lab.send(Time{0}, 1);
  lab.send(Time{0}, 2, 1001);
  const auto a = lab.drain();
  ASSERT_EQ(a.size(), 2u);
  EXPECT_EQ(a[1].time - a[0].time, kTakes);
}

TEST(Network, QueueMarksAndDrops) {
  Lab lab;
  for (uint32_t i = 1; i <= 100; ++i) lab.send(Time{0}, i);
  const auto a = lab.drain();
  const Tally t = lab.network.tally();
  EXPECT_EQ(a.size(), 250'000u / kWire);
  EXPECT_EQ(t.queue_drops, 100u - a.size());
  EXPECT_EQ(a[14].ecn, Ecn::kEct0) << "14 x 4186 bytes wait: below the threshold";
  EXPECT_EQ(a[15].ecn, Ecn::kCe);
  EXPECT_EQ(t.queue_marks, a.size() - 15);
}

TEST(Network, LossIsCountedAndHasTheRightRate) {
  Lab lab;
  lab.network.add(impairment(ImpairmentKind::kLoss, 100'000));
  lab.network.update(Time{0});
  for (uint32_t i = 0; i < 10'000; ++i) lab.send(Time{int64_t{i} * 1000}, i);
  const auto a = lab.drain();
  const uint64_t lost = lab.network.tally().lost;
  EXPECT_EQ(a.size() + lost, 10'000u);
  EXPECT_NEAR(static_cast<double>(lost), 1000, 150);
}

TEST(Network, LossOfDataOnlySparesAcks) {
  Lab lab;
  Impairment i = impairment(ImpairmentKind::kLoss, 1'000'000);
  i.data = false;
  lab.network.add(i);
  lab.network.update(Time{0});
  lab.send(Time{0}, 1);
  EXPECT_EQ(lab.drain().size(), 1u);
}

TEST(Network, DuplicatesAndDamage) {
  Lab lab;
  lab.network.add(impairment(ImpairmentKind::kDuplicate, 1'000'000));
  lab.network.update(Time{0});
  lab.send(Time{0}, 7);
  EXPECT_EQ(lab.drain().size(), 2u);
  EXPECT_EQ(lab.network.tally().duplicates, 1u);

  Lab damaged;
  damaged.network.add(impairment(ImpairmentKind::kCorrupt, 1'000'000));
  damaged.network.update(Time{0});
  damaged.send(Time{0}, 7);
  EXPECT_TRUE(damaged.drain().empty());
  EXPECT_EQ(damaged.network.tally().crc_errors, 1u);
}

TEST(Network, DarkPlaneSwallowsWhatIsInFlight) {
  NetworkConfig config;
  config.planes = 2;
  Lab lab(config);
  Impairment i;
  i.kind = ImpairmentKind::kDark;
  i.plane = 1;
  i.begin = Time{3000};
  i.end = Time{20'000};
  lab.network.add(i);
  lab.send(Time{0}, 1, 1000, 4096, 0, 0);
  lab.send(Time{0}, 2, 1000, 4096, 0, 1);
  const auto a = lab.drain();
  ASSERT_EQ(a.size(), 1u);
  EXPECT_EQ(a[0].seq, 1u);
  EXPECT_EQ(lab.network.tally().dark_drops, 1u);
  lab.send(Time{30'000}, 3, 1000, 4096, 0, 1);
  EXPECT_EQ(lab.drain().size(), 1u) << "the plane is back";
}

TEST(Network, TruthAboutRepairs) {
  Lab lab;
  lab.send(Time{0}, 1, 1000, 64, 500);
  lab.send(Time{10}, 2, 1000, 64, 500);  // sent again though the first is under way
  EXPECT_EQ(lab.network.tally().data_repairs, 1u);
  EXPECT_EQ(lab.network.tally().spurious_repairs, 1u);

  Lab lossy;
  lossy.network.add(impairment(ImpairmentKind::kLoss, 1'000'000));
  lossy.network.update(Time{0});
  lossy.send(Time{0}, 1, 1000, 64, 500);
  lossy.send(Time{10}, 2, 1000, 64, 500);
  EXPECT_EQ(lossy.network.tally().data_repairs, 1u);
  EXPECT_EQ(lossy.network.tally().spurious_repairs, 0u);
}

TEST(Network, RehashMovesTheDelayAndMakesLatePackets) {
  Lab lab;
  Impairment i;
  i.kind = ImpairmentKind::kRehash;
  i.period = microseconds(100);
  i.min = microseconds(3);
  i.max = microseconds(8);
  lab.network.add(i);
  lab.network.update(Time{0});
  for (uint32_t n = 0; n < 3000; ++n) lab.send(Time{int64_t{n} * 1000}, n);
  EXPECT_EQ(lab.drain().size(), 3000u);
  const Tally t = lab.network.tally();
  EXPECT_GE(t.rehashes, 29u);
  EXPECT_LE(t.rehashes, 31u);
  EXPECT_GT(t.late, 0u);
}

TEST(Network, MtuSwallowsLargePackets) {
  Lab lab;
  Impairment i;
  i.kind = ImpairmentKind::kMtu;
  i.value = 1500;
  lab.network.add(i);
  lab.network.update(Time{0});
  lab.send(Time{0}, 1, 1000, 1424);  // 1424 + 44 + 4 + 28 = 1500
  lab.send(Time{0}, 2, 1000, 1425);
  EXPECT_EQ(lab.drain().size(), 1u);
  EXPECT_EQ(lab.network.tally().mtu_drops, 1u);
}

TEST(Network, OnePathsLuckIsItsOwn) {
  auto losses = [](bool other_path_busy) {
    Lab lab;
    lab.network.add(impairment(ImpairmentKind::kLoss, 300'000));
    lab.network.update(Time{0});
    for (uint32_t n = 0; n < 500; ++n) {
      lab.send(Time{int64_t{n} * 1000}, n);
      if (other_path_busy) lab.send(Time{int64_t{n} * 1000}, n, 2000);
    }
    (void)lab.drain();
    return lab.network.tally(0, 0, 1000).lost;
  };
  EXPECT_EQ(losses(false), losses(true));
}

TEST(Network, SameSeedSameHash) {
  auto hash = [](uint64_t seed) {
    Lab lab({}, seed);
    lab.network.add(impairment(ImpairmentKind::kLoss, 300'000));
    lab.network.update(Time{0});
    for (uint32_t n = 0; n < 100; ++n) lab.send(Time{int64_t{n} * 1000}, n);
    (void)lab.drain();
    return lab.network.hash();
  };
  EXPECT_EQ(hash(5), hash(5));
  EXPECT_NE(hash(5), hash(6));
}

TEST(EventQueue, OrderIsTimeThenSequence) {
  EventQueue q;
  Rng rng(3);
  for (uint32_t i = 0; i < 5000; ++i)
    q.push(Time{static_cast<int64_t>(rng.below(50))}, EventKind::kUser, i);
  Event last = q.pop();
  while (!q.empty()) {
    const Event e = q.pop();
    ASSERT_TRUE(last.time < e.time || (last.time == e.time && last.sequence < e.sequence));
    last = e;
  }
}

}  // namespace
}  // namespace metaroce::pair
