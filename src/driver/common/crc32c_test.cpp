#include "driver/common/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/covers.h"
#include "base/rng.h"
#include "driver/common/trailer.h"

namespace metaroce::driver {
namespace {

// Bit by bit from the definition: nothing shared with the library.
uint32_t slow_crc(std::span<const std::byte> bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const std::byte b : bytes) {
    crc ^= static_cast<uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

std::vector<std::byte> random_bytes(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> out(n);
  for (auto& b : out) b = static_cast<std::byte>(rng.next());
  return out;
}

TEST(Crc32c, MatchesPublishedVectorsAndTheDefinition) {
  MR_COVERS("MR-WIRE-007");
  EXPECT_TRUE(crc32c_self_check());
  for (size_t n : {0u, 1u, 3u, 8u, 44u, 63u, 64u, 65u, 1023u, 4144u, 65507u}) {
    const auto bytes = random_bytes(n, n);
    EXPECT_EQ(crc32c(bytes), slow_crc(bytes)) << n;
  }
}

TEST(Crc32c, PiecesGiveTheSameAsTheWhole) {
  const auto bytes = random_bytes(5000, 7);
  for (size_t cut : {0u, 1u, 44u, 2500u, 4999u, 5000u}) {
    Crc32c crc;
    crc.add({bytes.data(), cut});
    crc.add({bytes.data() + cut, bytes.size() - cut});
    EXPECT_EQ(crc.value(), crc32c(bytes)) << cut;
  }
  Crc32c zeros;
  zeros.add_zeros(10000);
  EXPECT_EQ(zeros.value(), crc32c(std::vector<std::byte>(10000)));
}

TEST(Trailer, IsBigEndianAndEveryBitFlipIsFound) {
  MR_COVERS("MR-WIRE-007");
  MR_COVERS("MR-WIRE-008");
  MR_COVERS("MR-CPSN-031");
  auto packet = random_bytes(68, 3);
  append_crc(packet);
  const uint32_t crc = slow_crc({packet.data(), 64});
  EXPECT_EQ(packet[64], static_cast<std::byte>(crc >> 24));
  EXPECT_EQ(packet[67], static_cast<std::byte>(crc));
  EXPECT_EQ(verify_crc(packet).size(), 64u);
  for (size_t bit = 0; bit < packet.size() * 8; ++bit) {
    packet[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_TRUE(verify_crc(packet).empty()) << bit;
    packet[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  for (size_t n = 0; n <= 4; ++n) EXPECT_TRUE(verify_crc({packet.data(), n}).empty());
}

TEST(Trailer, RunIsFilledAndFlattened) {
  const auto payload = random_bytes(3000, 5);
  engine::TxRun run;
  run.count = 3;
  run.header_length[0] = 44;
  run.header_length[1] = 32;
  run.header_length[2] = 44;
  run.payload[0] = payload.data();
  run.payload[1] = payload.data() + 1000;
  run.payload[2] = nullptr;
  for (auto& n : run.payload_length) n = 1000;
  const auto headers = random_bytes(engine::kRunHeaderBytes, 9);
  std::memcpy(run.headers, headers.data(), headers.size());
  ASSERT_TRUE(fill_trailers(run));
  const std::byte* header = run.headers;
  for (size_t i = 0; i < 3; ++i) {
    std::vector<std::byte> out(packet_bytes(run, i));
    EXPECT_EQ(flatten(run, i, header, out.data()), out.size());
    EXPECT_EQ(verify_crc(out).size(), out.size() - 4) << i;
    EXPECT_EQ(std::memcmp(out.data(), header, run.header_length[i]), 0);
    header += run.header_length[i] + 4;
  }
  run.trailer = wire::kTagBytes;
  EXPECT_FALSE(fill_trailers(run));
}

}  // namespace
}  // namespace metaroce::driver
