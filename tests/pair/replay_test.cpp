// Recordings: a run repeats bit for bit, a difference is found where it is, damage is told.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "telemetry/pcapng.h"
#include "telemetry/replay.h"
#include "tests/pair/pair.h"

namespace metaroce::pair {
namespace {

namespace fs = std::filesystem;
using telemetry::Recording;

class Replay : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/metaroce-replay-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(int side) const { return folder_ / ("side" + std::to_string(side)); }

  /// Writes and sends through loss, duplicates and reordering; both sides recorded.
  void record(uint64_t seed, uint64_t length = 2 << 20) {
    PairConfig c;
    c.seed = seed;
    c.network.planes = 2;
    c.network.mtu = 4500;
    c.settings.paths_per_plane = 2;
    c.region_bytes = c.longest_message = 4 << 20;
    c.receive_streams = 2;
    c.receive_slots = 8;
    c.receive_slot_bytes = 64 << 10;
    c.record = {file(0), file(1)};
    Pair pair(c);
    for (const auto& [kind, ppm] : {std::pair{ImpairmentKind::kLoss, 20'000},
                                    std::pair{ImpairmentKind::kDuplicate, 10'000}}) {
      Impairment i;
      i.kind = kind;
      i.probability = per_million(static_cast<uint64_t>(ppm));
      i.max = microseconds(5);
      pair.network().add(i);
    }
    ASSERT_TRUE(pair.connect(milliseconds(500)));
    for (uint64_t n = 0; n < 8; ++n) ASSERT_EQ(pair.receive(1, 2, 100 + n, n), Status::kOk);
    for (uint64_t n = 0; n < 8; ++n) {
      ASSERT_EQ(pair.send(0, 2, 200 + n, n, 10'000 + n), Status::kOk);
    }
    ASSERT_EQ(pair.write(0, 4, 1, 0, length), Status::kOk);
    pair.change_port(0, 40'000);
    ASSERT_TRUE(pair.run_until([&] { return pair.counts(0).completions == 9; }, seconds(2)));
    pair.run_for(milliseconds(1));
  }

  static telemetry::ReplayResult replay(const std::string& path) {
    auto recording = Recording::open(path);
    if (!recording) {
      telemetry::ReplayResult result;
      result.damaged = true;
      result.text = recording.error();
      return result;
    }
    return telemetry::replay(**recording);
  }

  static std::vector<char> read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static void write(const std::string& path, const std::vector<char>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  fs::path folder_;
};

TEST_F(Replay, BothSidesOfALossyRunRepeatBitForBit) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    record(seed);
    for (int side = 0; side < 2; ++side) {
      const auto result = replay(file(side));
      EXPECT_TRUE(result.identical) << result.text;
      EXPECT_TRUE(result.complete) << result.text;
      EXPECT_GT(result.calls, 500u);
      EXPECT_EQ(result.text, std::to_string(result.calls) + " calls identical");
    }
  }
}

/// One byte of one received header differs: found at that call, with the block's checksum mended
/// so that nothing else complains.
TEST_F(Replay, TheFirstDifferenceIsNamed) {
  record(7);
  std::vector<char> bytes = read(file(1));
  // The second block holds the calls; the engine's answer depends on every header.
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 16 + 4, 4);
  const size_t block = 16 + 24 + length;
  std::memcpy(&length, bytes.data() + block + 4, 4);
  size_t changed = 0;
  int different = 0;
  for (size_t at = block + 24 + length / 2; at < block + 24 + length && different == 0; at += 7) {
    std::vector<char> copy = bytes;
    copy[at] = static_cast<char>(copy[at] ^ 0x10);
    const uint64_t sum = telemetry::checksum(
        std::as_bytes(std::span<const char>(copy.data() + block + 24, length)));
    std::memcpy(copy.data() + block + 16, &sum, 8);
    write(file(1), copy);
    ++changed;
    const auto result = replay(file(1));
    if (!result.identical) {
      ++different;
      EXPECT_NE(result.text.find("is the first that differs"), std::string::npos) << result.text;
      EXPECT_NE(result.text.find(" s "), std::string::npos) << result.text;
    }
  }
  EXPECT_EQ(different, 1) << changed;
}

TEST_F(Replay, EveryDamagedByteIsFound) {
  record(3, 64 << 10);
  const std::vector<char> bytes = read(file(0));
  Rng rng(11);
  for (int i = 0; i < 300; ++i) {
    std::vector<char> copy = bytes;
    const size_t at = i < 64 ? static_cast<size_t>(i) : rng.below(copy.size());
    if (at >= 12 && at < 16) continue;  // spare bytes of the file's header
    copy[at] = static_cast<char>(copy[at] ^ (1 << rng.below(8)));
    write(file(0), copy);
    const auto result = replay(file(0));
    EXPECT_TRUE(result.damaged) << "byte " << at;
    EXPECT_FALSE(result.complete);
    EXPECT_NE(result.text.find(file(0)), std::string::npos) << result.text;
  }
}

TEST_F(Replay, EveryTruncationIsTold) {
  record(3, 64 << 10);
  const std::vector<char> bytes = read(file(0));
  Rng rng(12);
  for (int i = 0; i < 200; ++i) {
    const size_t length = i < 50 ? static_cast<size_t>(i) : rng.below(bytes.size());
    write(file(0), {bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length)});
    const auto result = replay(file(0));
    EXPECT_FALSE(result.complete) << length;
    EXPECT_FALSE(result.text.empty());
    // Only a cut between two blocks looks like a process that was killed.
    if (!result.damaged) {
      EXPECT_NE(result.text.find("no end"), std::string::npos) << result.text;
    }
  }
}

/// The reader alone, behind right checksums: any bytes give calls or an error, never more.
TEST_F(Replay, AnyBytesBehindARightChecksumAreReadSafely) {
  record(3, 64 << 10);
  const std::vector<char> bytes = read(file(0));
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 16 + 4, 4);
  const size_t block = 16 + 24 + length;
  std::memcpy(&length, bytes.data() + block + 4, 4);
  Rng rng(13);
  int damaged = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<char> copy = bytes;
    for (uint64_t n = 1 + rng.below(8); n > 0; --n) {
      copy[block + 24 + rng.below(length)] = static_cast<char>(rng.next());
    }
    const uint64_t sum = telemetry::checksum(
        std::as_bytes(std::span<const char>(copy.data() + block + 24, length)));
    std::memcpy(copy.data() + block + 16, &sum, 8);
    write(file(0), copy);
    auto recording = Recording::open(file(0));
    ASSERT_TRUE(recording.has_value());
    telemetry::RecordedCall call;
    Recording::Next next = Recording::Next::kCall;
    while (next == Recording::Next::kCall) next = (*recording)->next(call);
    damaged += next == Recording::Next::kDamaged;
  }
  EXPECT_GT(damaged, 50);
}

TEST_F(Replay, WhatIsNoRecordingIsSaidSo) {
  write(file(0), {'h', 'e', 'l', 'l', 'o'});
  EXPECT_NE(replay(file(0)).text.find("is no recording"), std::string::npos);
  EXPECT_NE(replay(folder_ / "absent").text.find("cannot read"), std::string::npos);
}

TEST_F(Replay, TheCaptureOfARecordingHoldsEveryDatagram) {
  record(2);
  auto recording = Recording::open(file(0));
  ASSERT_TRUE(recording.has_value());
  const std::string path = folder_ / "out.pcapng";
  auto pcap = telemetry::PcapWriter::create(path, (*recording)->config().local, {});
  ASSERT_TRUE(pcap.has_value());
  const auto result = telemetry::replay(**recording, pcap->get());
  EXPECT_TRUE(result.complete) << result.text;
  (*pcap)->flush();
  EXPECT_EQ((*pcap)->error(), "");
  EXPECT_GT((*pcap)->packets(), 500u);
  // Blocks follow each other without a gap up to the end.
  const std::vector<char> bytes = read(path);
  size_t at = 0;
  uint64_t packets = 0;
  while (at + 12 <= bytes.size()) {
    uint32_t type = 0;
    uint32_t length = 0;
    uint32_t again = 0;
    std::memcpy(&type, bytes.data() + at, 4);
    std::memcpy(&length, bytes.data() + at + 4, 4);
    ASSERT_LE(at + length, bytes.size());
    std::memcpy(&again, bytes.data() + at + length - 4, 4);
    ASSERT_EQ(length, again);
    packets += type == 6;
    at += length;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(packets, (*pcap)->packets());
}

}  // namespace
}  // namespace metaroce::pair
