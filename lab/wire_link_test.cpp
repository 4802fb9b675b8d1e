#include "lab/wire_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

namespace metaroce::lab {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint32_t kIp = 14;
constexpr uint8_t kUdp = 17, kTcp = 6;
constexpr uint8_t kNotEct = 0, kEct1 = 1, kEct0 = 2, kCe = 3;

void put8(Bytes& b, size_t at, uint32_t v) { b.at(at) = static_cast<std::byte>(v); }
void put16(Bytes& b, size_t at, uint32_t v) {
  put8(b, at, v >> 8 & 0xFF);
  put8(b, at + 1, v & 0xFF);
}
uint32_t get8(const Bytes& b, size_t at) { return std::to_integer<uint32_t>(b.at(at)); }
uint32_t get16(const Bytes& b, size_t at) { return get8(b, at) << 8 | get8(b, at + 1); }

/// Ones' complement sum, folded; 0xFFFF over what has a right checksum in it.
uint32_t sum(const Bytes& b, size_t from, size_t to, uint32_t start = 0) {
  uint32_t s = start;
  for (size_t i = from; i < to; ++i) {
    s += (i - from) % 2 == 0 ? get8(b, i) << 8 : get8(b, i);
    s = (s & 0xFFFF) + (s >> 16);
  }
  return s;
}

struct Make {
  int version = 4;
  uint8_t protocol = kUdp;
  uint8_t ecn = kEct0;
  uint32_t payload = 100;
  uint32_t options = 0;    ///< bytes of IPv4 options
  uint32_t fragment = 0;   ///< the word with flags and offset
  uint32_t extension = 0;  ///< an IPv6 extension header of so many bytes
};

uint32_t transport_of(const Bytes& b) {
  return get16(b, 12) == 0x0800 ? kIp + (get8(b, kIp) & 0xF) * 4 : kIp + 40;
}
uint32_t ecn_of(const Bytes& b) {
  return get16(b, 12) == 0x0800 ? get8(b, kIp + 1) & 3 : get8(b, kIp + 1) >> 4 & 3;
}
uint32_t dscp_of(const Bytes& b) {
  return get16(b, 12) == 0x0800 ? get8(b, kIp + 1) >> 2 : (get16(b, kIp) >> 6 & 0x3F);
}

bool ip_checksum_right(const Bytes& b) {
  return get16(b, 12) != 0x0800 || sum(b, kIp, transport_of(b)) == 0xFFFF;
}
bool udp_checksum_right(const Bytes& b) {
  const bool v4 = get16(b, 12) == 0x0800;
  const uint32_t at = transport_of(b);
  const uint32_t pseudo = sum(b, v4 ? kIp + 12 : kIp + 8, v4 ? kIp + 20 : kIp + 40,
                              kUdp + static_cast<uint32_t>(b.size()) - at);
  return get16(b, at + 6) != 0 && sum(b, at, b.size(), pseudo) == 0xFFFF;
}

Bytes make(const Make& m, uint32_t fill = 0) {
  const uint32_t ip = m.version == 4 ? 20 + m.options : 40 + m.extension;
  const uint32_t transport = m.protocol == kUdp ? 8 : 20;
  Bytes b(kIp + ip + transport + m.payload);
  for (size_t i = 0; i < b.size(); ++i) put8(b, i, (fill + i * 7) & 0xFF);
  if (m.version == 4) {
    put16(b, 12, 0x0800);
    put8(b, kIp, 0x40 | (ip / 4));
    put8(b, kIp + 1, 0xB8 | m.ecn);
    put16(b, kIp + 2, static_cast<uint32_t>(b.size()) - kIp);
    put16(b, kIp + 6, m.fragment);
    put8(b, kIp + 9, m.protocol);
    put16(b, kIp + 10, 0);
    put16(b, kIp + 10, ~sum(b, kIp, kIp + ip) & 0xFFFF);
  } else {
    put16(b, 12, 0x86DD);
    put16(b, kIp, 0x6B80 | m.ecn << 4 | 0x5);
    put16(b, kIp + 4, m.extension + transport + m.payload);
    put8(b, kIp + 6, m.extension != 0 ? 60 : m.protocol);
  }
  const uint32_t at = kIp + ip;
  if (m.protocol == kTcp) put8(b, at + 12, 0x50);
  if (m.protocol == kUdp) put16(b, at + 4, 8 + m.payload);
  return b;
}

/// A packet of this size in all.
Bytes sized(uint32_t size, const Make& m = {}) {
  Make sized = m;
  sized.payload = size - (kIp + (m.version == 4 ? 20 : 40) + 8);
  return make(sized);
}

LinkRules rules(const char* words) { return parse_rules(words).value(); }

struct Left {
  Time at;
  WirePacket packet;
};

/// Everything that leaves, as soon as it may.
std::vector<Left> drain(WireLink& link) {
  std::vector<Left> out;
  for (Time next = link.next_departure(); next != kNever; next = link.next_departure()) {
    EXPECT_FALSE(link.take(Time{next.ns - 1}));
    auto packet = link.take(next);
    if (!packet) {
      ADD_FAILURE() << "nothing leaves when it said it would";
      break;
    }
    out.push_back({next, std::move(*packet)});
  }
  return out;
}

void expect_sums(const LinkCounts& c) { EXPECT_EQ(c.seen, c.passed + c.dark + c.lost + c.full); }

/// So many of `n` with this probability, give or take six standard deviations.
void expect_share(uint64_t count, double n, double p) {
  EXPECT_NEAR(static_cast<double>(count), n * p, 6 * std::sqrt(n * p * (1 - p)) + 1);
}

constexpr Time kStart{1'000'000'007};

TEST(WireLink, WithoutRulesCarriesWhatComesAtOnce) {
  WireLink link(1);
  VnetHeader vnet;
  vnet.flags = VnetHeader::kNeedsChecksum;
  vnet.checksum_start = 34;
  std::vector<Bytes> sent = {
      make({}), make({.version = 6}), make({.protocol = kTcp}), Bytes(60), Bytes(3), Bytes()};
  EXPECT_EQ(link.next_departure(), kNever);
  for (const Bytes& b : sent) link.offer(kStart, b, vnet);
  const auto left = drain(link);
  ASSERT_EQ(left.size(), sent.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].at, kStart);
    EXPECT_EQ(left[i].packet.bytes, sent[i]);
    EXPECT_EQ(left[i].packet.vnet, vnet);
  }
  EXPECT_EQ(link.counts(), (LinkCounts{.seen = 6, .passed = 6}));
}

TEST(WireLink, TheRateIsExactOverAllPackets) {
  for (const uint64_t rate : {7'000'003ull, 100'000'000ull, 1'000'000'000ull, 99'999'999'977ull}) {
    WireLink link(1);
    LinkRules r;
    r.rate_bps = rate;
    r.queue_bytes = 4'000'000;
    link.set(r);
    uint64_t bits = 0;
    std::vector<int64_t> expected;
    for (uint32_t i = 0; i < 1000; ++i) {
      const Bytes b = sized(60 + i * 131 % 1400);
      link.offer(kStart, b);
      bits += b.size() * 8;
      expected.push_back(static_cast<int64_t>(bits * 1'000'000'000 / rate));
    }
    const auto left = drain(link);
    ASSERT_EQ(left.size(), 1000u);
    for (size_t i = 0; i < left.size(); ++i) ASSERT_EQ(left[i].at.ns - kStart.ns, expected[i]) << i;
    // After a pause the wire is free again.
    const Time later = left.back().at + seconds(1);
    link.offer(later, sized(1250));
    EXPECT_EQ(link.next_departure().ns - later.ns, static_cast<int64_t>(10'000'000'000'000 / rate));
    expect_sums(link.counts());
  }
}

TEST(WireLink, DelayIsExactAndJitterKeepsTheOrder) {
  WireLink link(3);
  link.set(rules("delay=300us"));
  for (int i = 0; i < 100; ++i) {
    const Time now = kStart + microseconds(i * 7);
    link.offer(now, make({}));
    link.offer(now, make({}));
  }
  auto left = drain(link);
  ASSERT_EQ(left.size(), 200u);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(left[static_cast<size_t>(i)].at, kStart + microseconds(i / 2 * 7 + 300));
  }

  link.set(rules("delay=300us,jitter=100us"));
  for (uint32_t i = 0; i < 2000; ++i) link.offer(kStart + microseconds(50 * i), make({}, i));
  left = drain(link);
  ASSERT_EQ(left.size(), 2000u);
  Duration least = seconds(1), most{};
  for (uint32_t i = 0; i < 2000; ++i) {
    const Duration took = left[i].at - (kStart + microseconds(50 * i));
    EXPECT_EQ(left[i].packet.bytes, make({}, i));
    EXPECT_GE(took, microseconds(300));
    EXPECT_LE(took, microseconds(400));
    least = std::min(least, took);
    most = std::max(most, took);
  }
  EXPECT_LT(least, microseconds(310));
  EXPECT_GT(most, microseconds(390));
}

TEST(WireLink, LatePacketsAreOvertaken) {
  WireLink link(4);
  link.set(rules("delay=100us,reorder=20%:500us"));
  constexpr uint32_t kPackets = 5000;
  for (uint32_t i = 0; i < kPackets; ++i) {
    Bytes b = make({});
    put16(b, b.size() - 2, i);
    link.offer(kStart + microseconds(10 * i), b);
  }
  uint64_t late = 0;
  std::vector<uint32_t> normal_order, late_order;
  for (const Left& l : drain(link)) {
    const Bytes& b = l.packet.bytes;
    const uint32_t i = get16(b, b.size() - 2);
    const Duration took = l.at - (kStart + microseconds(10 * i));
    ASSERT_TRUE(took == microseconds(100) || took == microseconds(600)) << took.ns;
    (took == microseconds(100) ? normal_order : late_order).push_back(i);
    late += took == microseconds(600);
  }
  EXPECT_TRUE(std::is_sorted(normal_order.begin(), normal_order.end()));
  EXPECT_TRUE(std::is_sorted(late_order.begin(), late_order.end()));
  EXPECT_EQ(normal_order.size() + late_order.size(), kPackets);
  EXPECT_EQ(link.counts().late, late);
  EXPECT_EQ(link.counts().passed, kPackets);
  expect_share(late, kPackets, 0.2);
}

TEST(WireLink, ARuleTakenBackLetsNothingOvertake) {
  WireLink link(4);
  link.set(rules("delay=1s"));
  link.offer(kStart, make({}, 1));
  link.set(rules("none"));
  link.offer(kStart + milliseconds(1), make({}, 2));
  const auto left = drain(link);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].packet.bytes, make({}, 1));
  EXPECT_EQ(left[0].at, kStart + seconds(1));
  EXPECT_EQ(left[1].at, kStart + seconds(1));
}

TEST(WireLink, LatePacketsKeepTheirOrderUnderNewRules) {
  WireLink link(4);
  link.set(rules("reorder=100%:1s"));
  link.offer(kStart, make({}, 1));
  link.set(rules("reorder=100%:1ms"));
  link.offer(kStart, make({}, 2));
  const auto left = drain(link);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].packet.bytes, make({}, 1));
  EXPECT_EQ(left[1].at, kStart + seconds(1));
}

TEST(WireLink, AnotherRateStartsAnew) {
  WireLink link(4);
  LinkRules r;
  r.rate_bps = 999'999'999'989;
  link.set(r);
  link.offer(kStart, Bytes(60));  // 0.48 ns
  r.rate_bps = 1000;
  link.set(r);
  link.offer(kStart, Bytes(60));
  EXPECT_EQ(drain(link).back().at, kStart + milliseconds(480));
}

TEST(WireLink, LosesItsShareOfEverything) {
  WireLink link(5);
  link.set(rules("loss=1%"));
  const Bytes arp(60);
  uint64_t gone = 0;
  constexpr uint64_t kPackets = 300'000;
  for (uint64_t i = 0; i < kPackets; ++i) {
    link.offer(kStart, arp);
    gone += !link.take(kStart);
  }
  expect_share(gone, kPackets, 0.01);
  EXPECT_EQ(link.counts(), (LinkCounts{.seen = kPackets, .passed = kPackets - gone, .lost = gone}));
  link.set(rules("loss=100%"));
  link.offer(kStart, arp);
  EXPECT_EQ(link.next_departure(), kNever);
}

TEST(WireLink, BurstsHaveTheirShareAndLength) {
  WireLink link(6);
  constexpr double kIn = 0.002, kOut = 0.1;
  link.set(rules("ge=0.2%/10%"));
  constexpr uint64_t kPackets = 1'000'000;
  uint64_t lost = 0, bursts = 0;
  bool before = false;
  for (uint64_t i = 0; i < kPackets; ++i) {
    link.offer(kStart, make({.payload = 0}));
    const bool gone = !link.take(kStart);
    lost += gone;
    bursts += gone && !before;
    before = gone;
  }
  EXPECT_EQ(link.counts().lost, lost);
  expect_sums(link.counts());
  // A cycle is a good and a bad time; both are geometric.
  const double cycles = kPackets / (1 / kIn + 1 / kOut);
  EXPECT_NEAR(static_cast<double>(bursts), cycles, 6 * std::sqrt(cycles));
  const double length = static_cast<double>(lost) / static_cast<double>(bursts);
  EXPECT_NEAR(length, 1 / kOut, 6 / kOut / std::sqrt(cycles));
  link.set(rules("ge=100%/0%"));
  link.offer(kStart, make({}));
  link.set(rules("none"));  // and a burst without an end is over
  link.offer(kStart, make({}));
  EXPECT_TRUE(link.take(kStart));
  EXPECT_FALSE(link.take(kStart));
}

TEST(WireLink, IsDarkOnRequestAndInEverySecondPhase) {
  WireLink link(7);
  link.set(rules("dark=on"));
  link.offer(kStart, Bytes(60));
  EXPECT_EQ(link.counts(), (LinkCounts{.seen = 1, .dark = 1}));
  link.set(rules("flap=10ms"));
  for (int64_t ms = 0; ms < 100; ++ms) {
    const Time now{milliseconds(ms).ns};
    link.offer(now, Bytes(60));
    EXPECT_EQ(link.take(now).has_value(), ms / 10 % 2 == 0) << ms;
  }
  EXPECT_EQ(link.counts(), (LinkCounts{.seen = 101, .passed = 50, .dark = 51}));
}

TEST(WireLink, MarksWhatFindsAQueue) {
  for (const int version : {4, 6}) {
    WireLink link(8);
    link.set(rules("rate=8mbit,mark=3000,queue=1m"));  // a microsecond for each byte
    const uint8_t ecns[] = {kEct0, kEct1, kNotEct, kCe};
    // The first four find 0 to 3000 bytes, which is not more than 3000.
    for (uint32_t i = 0; i < 12; ++i) {
      link.offer(kStart, sized(1000, {.version = version, .ecn = ecns[i % 4]}));
    }
    const auto left = drain(link);
    ASSERT_EQ(left.size(), 12u);
    for (uint32_t i = 0; i < 12; ++i) {
      const Bytes& b = left[i].packet.bytes;
      const uint8_t before = ecns[i % 4];
      const bool marked = i >= 4 && (before == kEct0 || before == kEct1);
      EXPECT_EQ(ecn_of(b), marked ? kCe : before) << version << " " << i;
      EXPECT_TRUE(ip_checksum_right(b));
      // And nothing else is different.
      EXPECT_EQ(sized(1000, {.version = version, .ecn = marked ? kCe : before}), b);
    }
    EXPECT_EQ(link.counts(), (LinkCounts{.seen = 12, .passed = 12, .marked = 4}));
    // The queue is empty by then.
    const Time later = left.back().at;
    link.offer(later, sized(1000, {.version = version}));
    EXPECT_EQ(link.counts().marked, 4u);
    // Half a packet is still a packet.
    link.offer(later, sized(1000, {.version = version}));
    link.offer(later, sized(1000, {.version = version}));
    link.offer(later, sized(1000, {.version = version}));
    link.offer(later + microseconds(500), sized(1000, {.version = version}));
    link.offer(later + microseconds(1000), sized(1000, {.version = version}));
    EXPECT_EQ(link.counts().marked, 6u);
  }
}

TEST(WireLink, BleachesBeforeItMarks) {
  for (const int version : {4, 6}) {
    WireLink link(9);
    link.set(rules("bleach=on,rate=1gbit,mark=1"));
    for (const uint8_t ecn : {kNotEct, kEct1, kEct0, kCe}) {
      link.offer(kStart, make({.version = version, .protocol = kTcp, .ecn = ecn}));
    }
    link.offer(kStart, Bytes(60));
    const auto left = drain(link);
    ASSERT_EQ(left.size(), 5u);
    for (size_t i = 0; i < 4; ++i) {
      const Bytes expected = make({.version = version, .protocol = kTcp, .ecn = kNotEct});
      EXPECT_EQ(left[i].packet.bytes, expected);
      EXPECT_TRUE(ip_checksum_right(left[i].packet.bytes));
    }
    EXPECT_EQ(left[4].packet.bytes, Bytes(60));
    EXPECT_EQ(link.counts(), (LinkCounts{.seen = 5, .passed = 5, .bleached = 3}));
  }
}

TEST(WireLink, AWrongChecksumStaysWrong) {
  WireLink link(9);
  link.set(rules("bleach=on"));
  Bytes b = make({});
  put16(b, kIp + 10, get16(b, kIp + 10) ^ 0x0100);
  link.offer(kStart, b);
  EXPECT_FALSE(ip_checksum_right(link.take(kStart)->bytes));
}

TEST(WireLink, CorruptsOneBitOfThePayload) {
  WireLink link(10);
  link.set(rules("corrupt=100%"));
  for (const Make& m :
       {Make{}, Make{.version = 6}, Make{.protocol = kTcp}, Make{.version = 6, .protocol = kTcp},
        Make{.payload = 1}, Make{.payload = 40, .options = 8}}) {
    const Bytes b = make(m);
    size_t first = b.size(), last = 0;
    for (int i = 0; i < 3000; ++i) {
      Bytes padded = b;
      padded.resize(padded.size() + 6);  // Ethernet's, not payload
      link.offer(kStart, padded);
      const Bytes out = link.take(kStart)->bytes;
      ASSERT_EQ(out.size(), padded.size());
      int bits = 0;
      for (size_t k = 0; k < out.size(); ++k) {
        const auto different = std::to_integer<unsigned>(out[k] ^ padded[k]);
        bits += __builtin_popcount(different);
        if (different == 0) continue;
        first = std::min(first, k);
        last = std::max(last, k);
      }
      ASSERT_EQ(bits, 1);
    }
    EXPECT_EQ(first, b.size() - m.payload);
    EXPECT_EQ(last, b.size() - 1);
  }
  EXPECT_EQ(link.counts().corrupted, 18'000u);
  for (const Bytes& b : {make({.payload = 0}), make({.version = 6, .payload = 0}), Bytes(60),
                         make({.fragment = 0x2000}), make({.fragment = 0x0010}),
                         make({.version = 6, .extension = 8})}) {
    link.offer(kStart, b);
    EXPECT_EQ(link.take(kStart)->bytes, b);
  }
  EXPECT_EQ(link.counts().corrupted, 18'000u);
}

TEST(WireLink, DropsWhatTheQueueCannotTake) {
  WireLink link(11);
  link.set(rules("rate=8mbit,queue=10k"));
  for (int i = 0; i < 15; ++i) link.offer(kStart, sized(1000));
  EXPECT_EQ(link.counts(), (LinkCounts{.seen = 15, .passed = 10, .full = 5}));
  link.offer(kStart + microseconds(999), sized(1000));
  EXPECT_EQ(link.counts().full, 6u);
  link.offer(kStart + microseconds(1000), sized(1000));
  EXPECT_EQ(link.counts().full, 6u);
  // The dropped ones took no time on the wire.
  const auto left = drain(link);
  EXPECT_EQ(left.back().at, kStart + microseconds(11'000));
  expect_sums(link.counts());

  EXPECT_EQ(queue_of(rules("rate=1kbit")), 65'536u);
  EXPECT_EQ(queue_of(rules("rate=100mbit")), 1'250'000u);
  EXPECT_EQ(queue_of(rules("rate=10gbit")), 4'194'304u);
  EXPECT_EQ(queue_of(rules("rate=10gbit,queue=1k")), 1000u);
}

TEST(WireLink, TrimsToHeadersThatAreRight) {
  for (const int version : {4, 6}) {
    for (const uint32_t payload : {1000u, 1001u, 64u, 63u, 1u, 0u}) {
      WireLink link(12);
      link.set(rules("rate=8mbit,queue=2k,trim=on"));
      const Make m{.version = version, .payload = payload};
      const Bytes b = make(m, 5);
      VnetHeader vnet;
      vnet.flags = VnetHeader::kNeedsChecksum;
      link.offer(kStart, sized(1999));
      link.offer(kStart, b, vnet);
      const auto left = drain(link);
      ASSERT_EQ(left.size(), 2u);
      EXPECT_EQ(link.counts(), (LinkCounts{.seen = 2, .passed = 2, .trimmed = 1}));
      const Bytes& cut = left[1].packet.bytes;
      const uint32_t kept = std::min(payload, 64u);
      const uint32_t at = transport_of(b);
      ASSERT_EQ(cut.size(), at + 8 + kept);
      EXPECT_EQ(left[1].packet.vnet, VnetHeader{});
      EXPECT_EQ(dscp_of(cut), 0x2Au);
      EXPECT_EQ(ecn_of(cut), kEct0);
      EXPECT_EQ(get16(cut, at + 4), 8 + kept);
      EXPECT_EQ(version == 4 ? get16(cut, kIp + 2) : get16(cut, kIp + 4) + 40, cut.size() - kIp);
      EXPECT_TRUE(ip_checksum_right(cut));
      EXPECT_TRUE(udp_checksum_right(cut));
      EXPECT_TRUE(std::equal(cut.begin(), cut.begin() + 14, b.begin()));                // Ethernet
      EXPECT_TRUE(std::equal(cut.begin() + at, cut.begin() + at + 4, b.begin() + at));  // ports
      EXPECT_TRUE(std::equal(cut.begin() + at + 8, cut.end(), b.begin() + at + 8));
      EXPECT_EQ(left[1].at - left[0].at, microseconds(static_cast<int64_t>(cut.size())));
    }
  }
}

TEST(WireLink, TrimsOnlyWhatItCanAndOnlyTwiceTheQueue) {
  WireLink link(12);
  link.set(rules("rate=8mbit,queue=2k,trim=on"));
  link.offer(kStart, sized(2000));
  for (const Bytes& b :
       {make({.protocol = kTcp}), make({.options = 4}), make({.version = 6, .extension = 8}),
        make({.fragment = 0x2000}), Bytes(60), Bytes()}) {
    link.offer(kStart, b);
  }
  // An empty packet adds nothing to a full queue.
  EXPECT_EQ(link.counts(), (LinkCounts{.seen = 7, .passed = 2, .full = 5}));
  for (int i = 0; i < 30; ++i) link.offer(kStart, sized(1000));
  const uint64_t cut = 14 + 20 + 8 + 64;
  EXPECT_EQ(link.counts().trimmed, 2000 / cut);
  EXPECT_EQ(link.counts().full, 5 + 30 - 2000 / cut);
  expect_sums(link.counts());
}

TEST(WireLink, CopiesComeRightBehind) {
  WireLink link(13);
  link.set(rules("dup=25%,delay=10us"));
  constexpr uint32_t kPackets = 10'000;
  for (uint32_t i = 0; i < kPackets; ++i) link.offer(kStart + microseconds(i), make({}, i));
  uint64_t copies = 0;
  uint32_t next = 0;
  for (const Left& l : drain(link)) {
    if (l.packet.copy) {
      ++copies;
      EXPECT_EQ(l.packet.bytes, make({}, next - 1));
      EXPECT_EQ(l.at, kStart + microseconds(next - 1 + 10));
    } else {
      EXPECT_EQ(l.packet.bytes, make({}, next++));
    }
  }
  EXPECT_EQ(next, kPackets);
  EXPECT_EQ(link.counts(),
            (LinkCounts{.seen = kPackets, .passed = kPackets, .duplicated = copies}));
  expect_share(copies, kPackets, 0.25);
}

TEST(WireLink, HoldsSoMuchAndNoMore) {
  WireLink link(14);
  link.set(rules("delay=1s,dup=50%"));
  const uint64_t large = 60'000, fit = WireLink::kMostBytes / large;
  for (uint64_t i = 0; i < 2 * fit; ++i) link.offer(kStart, sized(large));
  LinkCounts c = link.counts();
  EXPECT_EQ(c.passed + c.duplicated, fit);
  expect_sums(c);
  EXPECT_EQ(drain(link).size(), fit);
  link.set(rules("delay=1s"));
  for (uint64_t i = 0; i < WireLink::kMostPackets + 10; ++i) link.offer(kStart, Bytes(14));
  EXPECT_EQ(link.counts().full, c.full + 10);
  EXPECT_EQ(drain(link).size(), WireLink::kMostPackets);
  link.offer(kStart, Bytes(WireLink::kMostPacket));
  EXPECT_EQ(link.counts().full, c.full + 10);
  link.offer(kStart, Bytes(WireLink::kMostPacket + 1));
  EXPECT_EQ(link.counts().full, c.full + 11);
}

TEST(WireLink, WhatCouldNotBeSentOrReadWasDropped) {
  WireLink link(15);
  link.set(rules("dup=100%"));
  link.offer(kStart, make({}));
  link.refused(*link.take(kStart));
  link.refused(*link.take(kStart));
  link.overrun(3);
  EXPECT_EQ(link.counts(), (LinkCounts{.seen = 4, .full = 4}));
}

TEST(WireLink, TheSeedDecides) {
  const auto run = [](uint64_t seed) {
    WireLink link(seed);
    link.set(rules("loss=20%,corrupt=20%,dup=20%,jitter=1ms,reorder=10%:2ms"));
    for (uint32_t i = 0; i < 200; ++i) link.offer(kStart + microseconds(i), make({}, i));
    std::vector<std::pair<int64_t, Bytes>> out;
    for (const Left& l : drain(link)) out.emplace_back(l.at.ns, l.packet.bytes);
    return out;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

LinkRules any_rules(Rng& rng) {
  const auto ppm = [&rng] { return static_cast<uint32_t>(rng.below(300'000)); };
  LinkRules r;
  r.loss_ppm = ppm() / 3;
  r.burst_in_ppm = ppm() / 10;
  r.burst_out_ppm = ppm();
  r.corrupt_ppm = r.duplicate_ppm = r.reorder_ppm = ppm();
  r.late_us = static_cast<uint32_t>(rng.below(500));
  r.delay_us = static_cast<uint32_t>(rng.below(500));
  r.jitter_us = static_cast<uint32_t>(rng.below(500));
  r.rate_bps = rng.below(3) == 0 ? 0 : rng.below(uint64_t{1} << (10 + rng.below(30)));
  r.queue_bytes = static_cast<uint32_t>(rng.below(20'000));
  r.mark_bytes = static_cast<uint32_t>(rng.below(5'000));
  r.dark = rng.below(20) == 0;
  r.bleach = rng.below(3) == 0;
  r.trim = rng.below(2) == 0;
  r.flap_ms = static_cast<uint32_t>(rng.below(3));
  return r;
}

/// Something between noise and a packet.
Bytes any_packet(Rng& rng) {
  Make m;
  m.version = rng.below(2) == 0 ? 4 : 6;
  m.protocol = rng.below(2) == 0 ? kUdp : kTcp;
  m.ecn = static_cast<uint8_t>(rng.below(4));
  m.payload = static_cast<uint32_t>(rng.below(200));
  m.options = static_cast<uint32_t>(rng.below(3) * 4);
  Bytes b = make(m);
  const uint64_t how = rng.below(4);
  if (how == 0) rng.fill(b);
  if (how <= 1) b.resize(rng.below(b.size() + 20));
  for (uint64_t i = 0; how <= 2 && i < rng.below(4) && !b.empty(); ++i) {
    b[rng.below(std::min<size_t>(b.size(), 60))] = static_cast<std::byte>(rng.next32());
  }
  return b;
}

TEST(WireLink, TakesAnyBytesUnderAnyRules) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    WireLink link(seed);
    Time now = kStart;
    uint64_t left = 0;
    for (int i = 0; i < 1000; ++i) {
      if (rng.below(100) == 0) link.set(any_rules(rng));
      link.offer(now, any_packet(rng));
      now = now + microseconds(static_cast<int64_t>(rng.below(30)));
      while (link.take(now)) ++left;
    }
    left += drain(link).size();
    const LinkCounts& c = link.counts();
    expect_sums(c);
    EXPECT_EQ(c.seen, 1000u);
    EXPECT_EQ(left, c.passed + c.duplicated);
    for (const uint64_t some :
         {c.marked, c.trimmed, c.corrupted, c.duplicated, c.late, c.bleached}) {
      EXPECT_LE(some, c.passed);
    }
  }
}

}  // namespace
}  // namespace metaroce::lab
