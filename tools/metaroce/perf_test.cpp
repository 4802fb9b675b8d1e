// The parts of `metaroce perf`: histogram, pattern, sizes, and what the two ends say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "perf_histogram.h"
#include "perf_options.h"
#include "perf_pattern.h"
#include "perf_protocol.h"

namespace metaroce::tool {
namespace {

TEST(PerfHistogram, PercentilesAreThoseOfTheSortedValues) {
  Rng rng(7);
  LatencyHistogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 20000; ++i) {
    // From single nanoseconds to minutes, as many in each doubling.
    const int64_t value = static_cast<int64_t>(rng.next() >> (27 + rng.below(36)));
    values.push_back(value);
    histogram.add(nanoseconds(value));
  }
  std::sort(values.begin(), values.end());
  for (const uint32_t per_mille : {1u, 10u, 500u, 900u, 990u, 999u, 1000u}) {
    const auto rank = static_cast<size_t>(std::ceil(20000 * per_mille / 1000.0)) - 1;
    const auto exact = static_cast<double>(values[rank]);
    const auto got = static_cast<double>(histogram.at(per_mille));
    EXPECT_GE(got, exact) << per_mille;
    EXPECT_LE(got, exact * 1.016 + 1) << per_mille;
  }
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.count(), 20000u);
}

TEST(PerfHistogram, SmallValuesAreExactAndNothingIsOutOfRange) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.percentiles(), Percentiles{});
  for (int64_t ns = 0; ns < 128; ++ns) histogram.add(nanoseconds(ns));
  EXPECT_EQ(histogram.at(500), 63);
  histogram.add(nanoseconds(-5));  // a clock that steps back is no reason to fail
  EXPECT_EQ(histogram.min(), 0);
  histogram.add(Duration{INT64_MAX});
  EXPECT_EQ(histogram.at(1000), INT64_MAX);
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.at(990), 0);
}

TEST(PerfPattern, EveryChangedByteIsFound) {
  for (const size_t size : {1u, 7u, 8u, 9u, 64u, 1001u}) {
    std::vector<std::byte> bytes(size);
    const PerfPattern pattern(1, 2, 3);
    pattern.fill(bytes);
    EXPECT_TRUE(pattern.matches(bytes));
    for (size_t i = 0; i < size; ++i) {
      bytes[i] ^= std::byte{0x10};
      EXPECT_FALSE(pattern.matches(bytes)) << size << " " << i;
      bytes[i] ^= std::byte{0x10};
    }
    EXPECT_FALSE(PerfPattern(1, 2, 4).matches(bytes));
    EXPECT_FALSE(PerfPattern(1, 3, 3).matches(bytes));
    EXPECT_FALSE(PerfPattern(2, 2, 3).matches(bytes));
  }
}

TEST(PerfSizes, RangesDoubleAndWrongOnesAreRefused) {
  EXPECT_EQ(parse_sizes("64"), (std::vector<uint64_t>{64}));
  EXPECT_EQ(parse_sizes("64:512"), (std::vector<uint64_t>{64, 128, 256, 512}));
  EXPECT_EQ(parse_sizes("3:10"), (std::vector<uint64_t>{3, 6, 10}));
  EXPECT_EQ(parse_sizes("1K:4k").back(), 4096u);
  EXPECT_EQ(parse_sizes("1G").front(), 1u << 30);
  for (const char* bad : {"", "x", "-1", "0", "2:1", "1T", "64:", ":64", "1.5K", "2G",
                          "99999999999999999999", "17179869184G", "64 "}) {
    EXPECT_THROW(parse_sizes(bad), UsageError) << bad;
  }
}

PerfReport some_report() {
  PerfReport r;
  r.sent = {10, 640, 123456789, 77, {10, 1, 2, 3, 4, 5, 6, 7}};
  r.cpu_ns = 99;
  r.cpu_span_ns = 100;
  r.cpu_shared = true;
  r.packets_received = 11;
  r.duplicates = 12;
  r.messages_received = 13;
  r.verified = 14;
  r.verify_errors = 15;
  for (uint8_t i = 0; i < 3; ++i) {
    r.paths.push_back({i, 1, 2, 60000, 1500, 65536, 12345, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  return r;
}

std::vector<PerfMessage> every_message() {
  PerfPlan plan{PerfOp::kSend, false, true, kBoth, 7, 33, 1u << 20, 1, 2, 0, 42};
  return {PerfStart{kPerfVersion, plan},
          PerfReady{kPerfVersion, {17, 1ull << 60}},
          PerfRefuse{kPerfVersion, "no"},
          PerfGo{{18, 19}},
          PerfMark{1ull << 40},
          PerfDone{1ull << 50},
          PerfStop{},
          some_report()};
}

TEST(PerfProtocol, EveryMessageComesBackAsItWas) {
  for (const PerfMessage& message : every_message()) {
    const auto bytes = encode(message);
    const auto back = decode_perf(bytes);
    ASSERT_TRUE(back) << back.error();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
  }
  const auto report = decode_perf(encode(some_report()));
  EXPECT_EQ(std::get<PerfReport>(*report), some_report());
}

TEST(PerfProtocol, AReportOfEveryPathFitsAMessage) {
  PerfReport report = some_report();
  report.paths.assign(kMostPerfPaths + 5, report.paths[0]);
  const auto bytes = encode(report);
  EXPECT_LE(bytes.size(), kMaxPerfMessage);
  const auto back = decode_perf(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<PerfReport>(*back).paths.size(), kMostPerfPaths);
}

TEST(PerfProtocol, CutAndLongerMessagesAreErrors) {
  for (const PerfMessage& message : every_message()) {
    auto bytes = encode(message);
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(decode_perf({bytes.data(), n})) << message.index() << " " << n;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_perf(bytes)) << message.index();
  }
}

TEST(PerfProtocol, HostileBytesGiveAnErrorOrAMessage) {
  Rng rng(11);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = encode(every_message()[rng.below(8)]);
    for (uint64_t k = rng.below(4); k > 0; --k) {
      bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.next());
    }
    const auto decoded = decode_perf(bytes);
    if (!decoded) {
      EXPECT_FALSE(decoded.error().empty());
      continue;
    }
    if (const auto* start = std::get_if<PerfStart>(&*decoded)) check_plan(start->plan);
    EXPECT_TRUE(decode_perf(encode(*decoded)));
  }
  EXPECT_FALSE(decode_perf(std::vector<std::byte>(kMaxPerfMessage + 1)));
}

TEST(PerfProtocol, AnotherVersionIsNamedWhateverFollows) {
  auto bytes = encode(PerfStart{static_cast<uint16_t>(kPerfVersion + 1), {}});
  bytes.resize(bytes.size() + 100);
  const auto decoded = decode_perf(bytes);
  ASSERT_TRUE(decoded) << decoded.error();
  EXPECT_EQ(std::get<PerfStart>(*decoded).version, kPerfVersion + 1);
  bytes[3] = std::byte{0};  // the mark
  EXPECT_FALSE(decode_perf(bytes));
}

TEST(PerfProtocol, ThePeersTextCannotSteerATerminal) {
  const auto decoded = decode_perf(encode(PerfRefuse{kPerfVersion, "a\x1b[2J\nb"}));
  EXPECT_EQ(std::get<PerfRefuse>(*decoded).text, "a?[2J?b");
}

TEST(PerfProtocol, ImpossiblePlansAreNamed) {
  PerfPlan good;
  good.count = 1;
  EXPECT_EQ(check_plan(good), "");
  const auto bad = [&](auto change, const char* what) {
    PerfPlan plan = good;
    change(plan);
    EXPECT_NE(check_plan(plan).find(what), std::string::npos) << check_plan(plan);
  };
  bad([](PerfPlan& p) { p.direction = 0; }, "direction");
  bad([](PerfPlan& p) { p.direction = 4; }, "direction");
  bad([](PerfPlan& p) { p.streams = 0; }, "streams");
  bad([](PerfPlan& p) { p.streams = kMostPerfStreams + 1; }, "streams");
  bad([](PerfPlan& p) { p.depth = 0; }, "depth");
  bad([](PerfPlan& p) { p.depth = kMostPerfDepth + 1; }, "depth");
  bad([](PerfPlan& p) { p.size = 0; }, "bytes");
  bad([](PerfPlan& p) { p.size = kMostPerfSize + 1; }, "bytes");
  bad([](PerfPlan& p) { p.count = 0; }, "time or a count");
  bad([](PerfPlan& p) { p.time_ns = 5; }, "time or a count");
  bad([](PerfPlan& p) { p.warmup_ns = -1; }, "7 days");
  bad([](PerfPlan& p) { p.ping_pong = true; }, "one message");
}

}  // namespace
}  // namespace metaroce::tool
