#include "lab/bpf_links.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <numeric>
#include <thread>

#include "lab/bpf/link.h"
#include "lab/test_cable.h"

namespace metaroce::lab {
namespace {

constexpr uint32_t kLink = TestCable::kLink;
constexpr uint8_t kNotEct = 0, kEct1 = 1, kEct0 = 2, kCe = 3;
/// So slow that nothing leaves a queue during a test.
constexpr uint64_t kStill = 1;

/// Whether the error says that BPF is not to be had here at all.
bool is_unavailable(const std::string& error) {
  return error.starts_with("BPF needs root") || error.starts_with("this build has no BPF") ||
         error.starts_with("this kernel has no BPF");
}

class Links : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto loaded = BpfLinks::load(TestCable::kLinks, TestCable::kFirst);
    if (!loaded && is_unavailable(loaded.error())) GTEST_SKIP() << loaded.error();
    ASSERT_TRUE(loaded) << loaded.error();
    links_ = std::move(*loaded);
    const auto built = cable_.build(GetParam());
    ASSERT_TRUE(built) << built.error();
    const auto attached = links_->attach(kLink, cable_.near());
    ASSERT_TRUE(attached) << attached.error();
  }

  void set(const LinkRules& rules, uint64_t seed = 1) {
    const auto done = links_->set(kLink, rules, seed);
    ASSERT_TRUE(done) << done.error();
  }
  LinkCounts counts() const { return links_->counts(kLink); }
  /// What comes of `count` datagrams of `bytes`.
  std::vector<Datagram> exchange(uint32_t count, size_t bytes = 64) {
    const LinkCounts before = counts();
    cable_.send_numbered(count, bytes);
    const LinkCounts after = counts();
    EXPECT_EQ(after.seen - before.seen, count);
    const uint64_t copies = after.duplicated - before.duplicated;
    auto got = cable_.receive(after.passed - before.passed + copies);
    EXPECT_EQ(got.size(), after.passed - before.passed + copies);
    return got;
  }
  std::vector<Datagram> exchange_class(uint32_t count, uint8_t traffic_class) {
    cable_.set_class(traffic_class);
    return exchange(count);
  }

  TestCable cable_;
  std::unique_ptr<BpfLinks> links_;
};

INSTANTIATE_TEST_SUITE_P(, Links, testing::Values(AF_INET, AF_INET6), [](const auto& family) {
  return std::string(family.param == AF_INET ? "v4" : "v6");
});

size_t with_class(const std::vector<Datagram>& all, uint8_t traffic_class) {
  return static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [&](const Datagram& d) { return d.traffic_class == traffic_class; }));
}

std::vector<uint32_t> numbers_of(const std::vector<Datagram>& all) {
  std::vector<uint32_t> out;
  for (const Datagram& d : all) out.push_back(number_of(d));
  return out;
}

TEST_P(Links, WithoutRulesEverythingPasses) {
  EXPECT_EQ(exchange(500).size(), 500u);
  LinkCounts all;
  all.seen = all.passed = 500;
  EXPECT_EQ(counts(), all);
  EXPECT_EQ(links_->counts(0), LinkCounts{});
}

TEST_P(Links, LossIsWhatTheReceiverMisses) {
  LinkRules rules;
  rules.loss_ppm = 100000;
  set(rules);
  constexpr uint32_t kSent = 10000;
  const auto got = exchange(kSent);
  EXPECT_EQ(got.size() + counts().lost, kSent);
  // Mean 1000, standard deviation 30.
  EXPECT_GT(counts().lost, 820u);
  EXPECT_LT(counts().lost, 1180u);

  rules.loss_ppm = 1000000;
  set(rules);
  EXPECT_TRUE(exchange(100).empty());
}

TEST_P(Links, ASeedIsARun) {
  LinkRules rules;
  rules.loss_ppm = 300000;
  set(rules, 7);
  const auto first = numbers_of(exchange(1000));
  set(rules, 7);
  EXPECT_EQ(numbers_of(exchange(1000)), first);
  set(rules, 8);
  EXPECT_NE(numbers_of(exchange(1000)), first);
  // Dice are thrown in darkness, too, so that a clock does not change the luck of later packets.
  rules.flap_ms = 1;
  set(rules, 7);
  const auto some = numbers_of(exchange(1000));
  EXPECT_TRUE(std::includes(first.begin(), first.end(), some.begin(), some.end()));
}

TEST_P(Links, BurstsLoseRunsOfPackets) {
  LinkRules rules;
  rules.burst_in_ppm = 20000;
  rules.burst_out_ppm = 200000;
  set(rules);
  constexpr uint32_t kSent = 20000;
  auto arrived = numbers_of(exchange(kSent));
  EXPECT_EQ(arrived.size() + counts().lost, kSent);
  arrived.push_back(kSent);
  uint32_t runs = 0, expected = 0;
  for (const uint32_t n : arrived) {
    runs += n != expected;
    expected = n + 1;
  }
  // About 363 bursts of 5 on average (deviation of that average: 0.24).
  const double mean = static_cast<double>(counts().lost) / runs;
  EXPECT_GT(runs, 200u);
  EXPECT_GT(mean, 3.5);
  EXPECT_LT(mean, 6.5);
}

TEST_P(Links, DarknessTakesEverythingAndEnds) {
  LinkRules rules;
  rules.dark = true;
  set(rules);
  EXPECT_TRUE(exchange(100).empty());
  cable_.send_foreign();  // as a real link does, not only packets of IP
  EXPECT_EQ(counts().dark, 101u);
  EXPECT_EQ(counts().seen, 101u);
  set({});
  cable_.send_foreign();
  EXPECT_EQ(exchange(100).size(), 100u);
  EXPECT_EQ(counts().passed, 101u);
}

TEST_P(Links, FlapIsDarkInTurn) {
  LinkRules rules;
  rules.flap_ms = 1;
  set(rules);
  uint32_t changes = 0, sent = 0;
  bool was_dark = false;
  for (; changes < 4 && sent < 5000000; ++sent) {
    const uint64_t dark = counts().dark;
    cable_.send({1, 2, 3, 4});
    const bool is_dark = counts().dark != dark;
    changes += is_dark != was_dark;
    was_dark = is_dark;
    EXPECT_EQ(cable_.receive(is_dark ? 0 : 1).size(), is_dark ? 0u : 1u);
  }
  EXPECT_EQ(changes, 4u);
  EXPECT_EQ(counts().seen, sent);
  EXPECT_EQ(counts().seen, counts().passed + counts().dark);
}

TEST_P(Links, OneBitOfThePayloadIsCorruptedWhereNoChecksumTells) {
  LinkRules rules;
  rules.corrupt_ppm = 200000;
  set(rules);
  const std::vector<uint8_t> sent(64, 0x5a);
  constexpr uint32_t kSent = 2000;
  for (uint32_t i = 0; i < kSent; ++i) cable_.send(sent);
  const auto got = cable_.receive(kSent);
  ASSERT_EQ(got.size(), kSent);
  uint64_t bad = 0;
  std::vector<uint32_t> places(64);
  for (const Datagram& d : got) {
    ASSERT_EQ(d.data.size(), sent.size());
    int bits = 0;
    for (size_t i = 0; i < sent.size(); ++i) {
      const int here = std::popcount(static_cast<uint8_t>(d.data[i] ^ sent[i]));
      places[i] += static_cast<uint32_t>(here);
      bits += here;
    }
    EXPECT_LE(bits, 1);
    bad += bits != 0;
  }
  EXPECT_EQ(bad, counts().corrupted);
  EXPECT_EQ(counts().passed, kSent);
  // Mean 400, deviation 18; and the first and the last byte are hit as all others (6 of each).
  EXPECT_GT(bad, 290u);
  EXPECT_LT(bad, 510u);
  EXPECT_GT(std::accumulate(places.begin(), places.begin() + 16, 0u), 40u);
  EXPECT_GT(std::accumulate(places.end() - 16, places.end(), 0u), 40u);
}

TEST_P(Links, AChecksumThatWasComputedFindsCorruption) {
  LinkRules rules;
  rules.corrupt_ppm = 300000;
  set(rules);
  cable_.set_checksum_offload(false);
  cable_.tap();
  constexpr uint32_t kSent = 500;
  cable_.send_numbered(kSent, 64);
  EXPECT_GT(counts().corrupted, 80u);
  EXPECT_LT(counts().corrupted, 220u);
  EXPECT_EQ(cable_.tapped(kSent).size(), kSent);
  const size_t good = kSent - counts().corrupted;
  EXPECT_EQ(cable_.receive(good).size(), good);
}

TEST_P(Links, WhatHasNoPayloadIsNotCorrupted) {
  LinkRules rules;
  rules.corrupt_ppm = 1000000;
  set(rules);
  for (int i = 0; i < 10; ++i) cable_.send({});
  EXPECT_EQ(cable_.receive(10).size(), 10u);
  cable_.send_foreign();
  EXPECT_EQ(counts().corrupted, 0u);
  EXPECT_EQ(counts().passed, 11u);
  cable_.send({1});
  EXPECT_EQ(counts().corrupted, 1u);
}

TEST_P(Links, DuplicatesComeOnceMore) {
  LinkRules rules;
  rules.duplicate_ppm = 100000;
  set(rules);
  const auto got = exchange(2000);
  EXPECT_EQ(counts().passed, 2000u);
  EXPECT_GT(counts().duplicated, 120u);  // 200, deviation 13
  EXPECT_LT(counts().duplicated, 280u);
  auto numbers = numbers_of(got);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  EXPECT_EQ(numbers.size(), 2000u);

  rules.duplicate_ppm = 1000000;
  rules.loss_ppm = 200000;  // what is lost has no copy
  set(rules);
  const LinkCounts before = counts();
  const auto doubled = exchange(100);
  EXPECT_LT(doubled.size(), 200u);
  EXPECT_EQ(doubled.size(), 2 * (counts().passed - before.passed));
}

TEST_P(Links, MarksAreWhatTheReceiverSees) {
  LinkRules rules;
  rules.rate_bps = kStill;
  rules.queue_bytes = 1000000;
  rules.mark_bytes = 10 * cable_.frame_bytes(64);
  const uint8_t dscp = 0x2e << 2;
  for (const uint8_t ect : {kEct0, kEct1}) {
    set(rules);  // anew: the queue is empty
    const uint64_t before = counts().marked;
    const auto got = exchange_class(50, dscp | ect);
    // Who finds more than 10 before it is marked.
    EXPECT_EQ(counts().marked - before, 39u);
    EXPECT_EQ(with_class(got, dscp | kCe), 39u);
    EXPECT_EQ(with_class(got, dscp | ect), 11u);
    EXPECT_EQ(got[10].traffic_class, dscp | ect);
    EXPECT_EQ(got[11].traffic_class, dscp | kCe);
  }
  set(rules);
  const uint64_t before = counts().marked;
  EXPECT_EQ(with_class(exchange_class(50, dscp | kNotEct), dscp), 50u);
  EXPECT_EQ(with_class(exchange_class(50, kCe), kCe), 50u);  // marked by somebody else
  EXPECT_EQ(counts().marked, before);
}

TEST_P(Links, AMarkedPacketHasARightChecksum) {
  LinkRules rules;
  rules.rate_bps = kStill;
  rules.queue_bytes = 1000000;
  rules.mark_bytes = 1;
  set(rules);
  cable_.set_checksum_offload(false);
  EXPECT_EQ(with_class(exchange_class(10, kEct0), kCe), 9u);
}

TEST_P(Links, BleachingTakesMarksAndEctAway) {
  LinkRules rules;
  rules.bleach = true;
  rules.rate_bps = kStill;  // and then a queue has nothing to mark
  rules.queue_bytes = 1000000;
  rules.mark_bytes = 1;
  set(rules);
  cable_.set_checksum_offload(false);
  const uint8_t dscp = 0x2b << 2;
  for (const uint8_t ecn : {kNotEct, kEct1, kEct0, kCe}) {
    EXPECT_EQ(with_class(exchange_class(20, dscp | ecn), dscp), 20u) << int{ecn};
  }
  EXPECT_EQ(counts().bleached, 60u);
  EXPECT_EQ(counts().marked, 0u);
  EXPECT_EQ(counts().passed, 80u);
}

TEST_P(Links, AQueueHoldsWhatItIsGivenAndNoMore) {
  LinkRules rules;
  rules.rate_bps = kStill;
  rules.queue_bytes = 25 * cable_.frame_bytes(1000);
  set(rules);
  EXPECT_EQ(exchange(40, 1000).size(), 25u);
  EXPECT_EQ(counts().full, 15u);
  cable_.send_foreign();
  EXPECT_EQ(counts().full, 16u);

  rules.queue_bytes = 0;  // at so low a rate: the least there is
  set(rules);
  const uint32_t room = 65536 / cable_.frame_bytes(1000);
  EXPECT_EQ(exchange(room + 10, 1000).size(), room);
}

TEST_P(Links, AQueueIsDrainedAtItsRate) {
  LinkRules rules;
  rules.rate_bps = 1000000000000;
  rules.queue_bytes = 2 * cable_.frame_bytes(1000);
  set(rules);  // 8 ns for a packet: the next comes later than that
  EXPECT_EQ(exchange(1000, 1000).size(), 1000u);
}

/// Everything in a trimmed frame that a receiver looks at.
void expect_trimmed(const Frame& frame, int family, uint8_t ecn, size_t kept, bool checksum) {
  const uint8_t* ip = frame.bytes.data() + 14;
  const size_t header = family == AF_INET ? 20 : 40;
  const uint8_t* udp = ip + header;
  ASSERT_EQ(frame.bytes.size(), 14 + header + 8 + kept);
  const auto word = [](const uint8_t* at) { return size_t{at[0]} * 256 + at[1]; };
  const uint8_t traffic_class = static_cast<uint8_t>(
      family == AF_INET ? ip[1] : static_cast<uint8_t>((ip[0] << 4) | (ip[1] >> 4)));
  EXPECT_EQ(traffic_class, (MR_TRIMMED_DSCP << 2) | ecn);
  EXPECT_EQ(word(udp + 4), 8 + kept);
  if (family == AF_INET) {
    EXPECT_EQ(word(ip + 2), header + 8 + kept);
    EXPECT_EQ(checksum_of(ip, header), 0xffff);
  } else {
    EXPECT_EQ(word(ip + 4), 8 + kept);
  }
  const size_t addresses = family == AF_INET ? 8 : 32;
  const uint32_t pseudo =
      checksum_of(udp - addresses, addresses) + IPPROTO_UDP + static_cast<uint32_t>(8 + kept);
  if (checksum) {
    EXPECT_EQ(checksum_of(udp, 8 + kept, pseudo), 0xffff);
  } else {
    EXPECT_EQ(word(udp + 6), 0u);
  }
}

TEST_P(Links, ATrimmedPacketIsAPacket) {
  LinkRules rules;
  rules.rate_bps = kStill;
  rules.trim = true;
  rules.queue_bytes = 20 * cable_.frame_bytes(1001);
  cable_.tap();
  for (const bool offload : {true, false}) {
    cable_.set_checksum_offload(offload);
    for (const size_t bytes : {size_t{1001}, size_t{65}, size_t{64}, size_t{13}, size_t{0}}) {
      set(rules);
      // Fill the queue, so that every next one has to be cut.
      cable_.set_class(kNotEct);
      cable_.send_numbered(20, 1001);
      ASSERT_EQ(cable_.receive(20).size(), 20u);
      ASSERT_EQ(cable_.tapped(20).size(), 20u);
      const uint64_t before = counts().trimmed;
      cable_.set_class((0x12 << 2) | kEct0);
      const size_t kept = std::min<size_t>(bytes, MR_TRIMMED_PAYLOAD);
      std::vector<uint8_t> payload(bytes);
      for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<uint8_t>(i * 7 + 3);
      cable_.send(payload);
      EXPECT_EQ(counts().trimmed, before + 1);
      const auto frames = cable_.tapped(1);
      ASSERT_EQ(frames.size(), 1u);
      EXPECT_EQ(frames[0].completed, offload);
      expect_trimmed(frames[0], GetParam(), kEct0, kept, true);
      // The stack takes it for whole, and has looked at the checksum when that was computed.
      const auto got = cable_.receive(1);
      ASSERT_EQ(got.size(), 1u);
      payload.resize(kept);
      EXPECT_EQ(got[0].data, payload);
      EXPECT_EQ(got[0].traffic_class, (MR_TRIMMED_DSCP << 2) | kEct0);
    }
  }
  EXPECT_EQ(counts().passed, counts().seen);
}

TEST_P(Links, ATrimmedPacketWithoutAChecksumStaysWithoutOne) {
  LinkRules rules;
  rules.rate_bps = kStill;
  rules.trim = true;
  rules.queue_bytes = 500;
  set(rules);
  cable_.tap();
  cable_.set_checksum_sent(false);
  cable_.send_numbered(1, 1000);
  const auto frames = cable_.tapped(1);
  ASSERT_EQ(frames.size(), 1u);
  // IPv6 has no UDP without a checksum, and the socket does not heed the wish.
  expect_trimmed(frames[0], GetParam(), kNotEct, MR_TRIMMED_PAYLOAD, GetParam() == AF_INET6);
}

TEST_P(Links, TrimmedPacketsHaveAQueueOfTheSameLength) {
  LinkRules rules;
  rules.rate_bps = kStill;
  rules.trim = true;
  rules.queue_bytes = 20 * cable_.frame_bytes(1000);
  set(rules);
  const uint32_t cut = rules.queue_bytes / cable_.frame_bytes(MR_TRIMMED_PAYLOAD);
  const auto got = exchange(20 + cut + 30, 1000);
  ASSERT_EQ(got.size(), 20 + cut);
  EXPECT_EQ(counts().passed, 20 + cut);
  EXPECT_EQ(counts().trimmed, cut);
  EXPECT_EQ(counts().full, 30u);
  EXPECT_EQ(got[19].data.size(), 1000u);
  EXPECT_EQ(got[20].data.size(), size_t{MR_TRIMMED_PAYLOAD});
  cable_.send_foreign();  // cannot be trimmed
  EXPECT_EQ(counts().full, 31u);
}

TEST_P(Links, APacketWithOneFateIsCountedOnce) {
  LinkRules rules;
  rules.loss_ppm = rules.corrupt_ppm = rules.duplicate_ppm = 300000;
  rules.rate_bps = kStill;
  rules.trim = true;
  rules.queue_bytes = 200 * cable_.frame_bytes(500);
  rules.mark_bytes = rules.queue_bytes / 2;
  set(rules);
  cable_.set_class(kEct0);
  const auto got = exchange(3000, 500);
  const LinkCounts c = counts();
  EXPECT_EQ(c.seen, 3000u);
  EXPECT_EQ(c.passed + c.lost + c.full, c.seen);
  for (const uint64_t part : {c.passed, c.lost, c.full, c.marked, c.trimmed, c.corrupted}) {
    EXPECT_GT(part, 0u);
  }
  EXPECT_LE(c.marked + c.trimmed, c.passed);
  EXPECT_EQ(got.size(), c.passed + c.duplicated);
}

TEST_P(Links, ASuperPacketIsOnePacket) {
  cable_.send_super(10, 500);
  EXPECT_EQ(cable_.receive(10).size(), 10u);
  EXPECT_EQ(counts().passed, 1u);

  LinkRules rules;
  rules.rate_bps = kStill;
  rules.queue_bytes = 10 * cable_.frame_bytes(500);
  rules.mark_bytes = 1;
  set(rules);
  cable_.set_class(kEct0);
  cable_.send_super(2, 500);  // what each datagram of it takes on the wire counts
  cable_.send_super(8, 500);
  EXPECT_EQ(with_class(cable_.receive(10), kCe), 8u);
  EXPECT_EQ(counts().marked, 1u);
  cable_.send_super(2, 500);
  EXPECT_EQ(counts().full, 1u);

  rules.trim = true;
  for (const bool offload : {true, false}) {
    cable_.set_checksum_offload(offload);
    set(rules);
    cable_.send_super(11, 500);  // the first one becomes its headers, the others go with it
    const auto got = cable_.receive(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].data, std::vector<uint8_t>(MR_TRIMMED_PAYLOAD, 0x5a));
  }
}

TEST_P(Links, RulesChangeWhileTrafficFlowsAndNeverByHalves) {
  LinkRules all_lost, all_dark;
  all_lost.loss_ppm = 1000000;
  all_dark.dark = true;
  set(all_lost);
  std::atomic<bool> over = false;
  std::atomic<uint64_t> sent = 0;
  std::thread sender([&] {
    while (!over) {
      cable_.send({1, 2, 3, 4});
      ++sent;
    }
  });
  // A mixture of both would let a packet through.
  for (uint64_t changes = 0; changes < 2000 || sent < 2000; ++changes) {
    set(changes % 2 == 0 ? all_dark : all_lost);
  }
  over = true;
  sender.join();
  const LinkCounts c = counts();
  EXPECT_EQ(c.passed, 0u);
  EXPECT_EQ(c.seen, sent);
  EXPECT_EQ(c.dark + c.lost, c.seen);
}

TEST_P(Links, AttachedAgainItCountsFromZeroAndKeepsItsRules) {
  LinkRules rules;
  rules.dark = true;
  set(rules);
  EXPECT_TRUE(exchange(10).empty());
  const auto again = links_->attach(kLink, cable_.near());
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(counts(), LinkCounts{});
  EXPECT_TRUE(exchange(5).empty());
  EXPECT_EQ(counts().dark, 5u);
}

TEST_P(Links, WhatCannotBeIsRefusedWithItsReason) {
  LinkRules delay, jitter, late;
  delay.delay_us = jitter.jitter_us = late.reorder_ppm = 1;
  for (const LinkRules& rules : {delay, jitter, late}) {
    const auto set = links_->set(kLink, rules, 1);
    ASSERT_FALSE(set);
    EXPECT_NE(set.error().find("build the link as a wire"), std::string::npos) << set.error();
  }
  const auto none = links_->attach(0, cable_.near());
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().find("interface 10"), std::string::npos) << none.error();
  EXPECT_NE(none.error().find("No such device"), std::string::npos) << none.error();
  const auto nowhere = links_->attach(kLink, -1);
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().find("namespace"), std::string::npos) << nowhere.error();
}

TEST(BpfLinks, InAUserNamespaceItSaysWhatIsMissing) {
  const auto outside = BpfLinks::load(1, 2);
  if (!outside && outside.error().starts_with("this build")) GTEST_SKIP() << outside.error();
  const pid_t child = fork();
  if (child == 0) {
    // Other errors than this one are for the parent to tell: this process has no test to fail.
    if (unshare(CLONE_NEWUSER) != 0) _exit(2);
    const auto inside = BpfLinks::load(1, 2);
    _exit(!inside && inside.error().starts_with("BPF needs root outside of a user namespace") ? 0
                                                                                              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace metaroce::lab
