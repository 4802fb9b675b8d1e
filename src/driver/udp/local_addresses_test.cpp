// The table that every datagram of a wildcard plane may reach.
#include "driver/udp/local_addresses.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/covers.h"
#include "base/rng.h"

namespace metaroce::driver {
namespace {

class SeededSource : public RandomSource {
 public:
  explicit SeededSource(uint64_t seed) : rng_(seed) {}
  void fill(std::span<std::byte> out) override { rng_.fill(out); }

 private:
  Rng rng_;
};

SocketAddress host(uint64_t a, uint64_t b) {
  SocketAddress s;
  std::memcpy(s.bytes.data(), &a, 8);
  std::memcpy(s.bytes.data() + 8, &b, 8);
  s.family = 6;
  return s;
}

// A hash without a key: two products, joined. Whoever knows them can solve for the address.
constexpr uint64_t kA = 0x9e3779b97f4a7c15ull;
constexpr uint64_t kB = 0xd1342543de82ef95ull;
uint64_t unkeyed(uint64_t a, uint64_t b) { return (a * kA) ^ (b * kB >> 17); }

uint64_t inverse(uint64_t odd) {
  uint64_t x = odd;
  for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
  return x;
}

TEST(LocalAddresses, AddressesMadeToCollideDoNot) {
  MR_COVERS("MR-SEC-024");
  SeededSource random(1);
  LocalAddresses table(random);
  const uint64_t back = inverse(kA);
  constexpr uint64_t kHosts = 5000;
  for (uint64_t b = 0; b < kHosts; ++b) {
    const uint64_t a = (b * kB >> 17) * back;
    ASSERT_EQ(unkeyed(a, b), 0u);
    table.learn(host(a, b), host(1, b));
  }
  EXPECT_EQ(table.size(), kHosts);
  EXPECT_LE(table.longest_chain(), 12u);
  for (uint64_t b = 0; b < kHosts; ++b) {
    const SocketAddress* found = table.find(host((b * kB >> 17) * back, b));
    ASSERT_NE(found, nullptr);
    EXPECT_TRUE(found->same_host(host(1, b)));
  }
  EXPECT_EQ(table.find(host(7, 7)), nullptr);
}

TEST(LocalAddresses, TheKeyIsOfTheSource) {
  MR_COVERS("MR-SEC-024");
  // The longest chains of the same hosts differ, as their places do.
  const auto chain = [](uint64_t seed) {
    SeededSource random(seed);
    LocalAddresses table(random);
    std::vector<size_t> chains;
    for (uint64_t i = 0; i < 2000; ++i) {
      table.learn(host(i, 0), host(1, 1));
      if (i % 20 == 0) chains.push_back(table.longest_chain());
    }
    return chains;
  };
  EXPECT_EQ(chain(1), chain(1));
  EXPECT_NE(chain(1), chain(2));
}

TEST(LocalAddresses, AFloodHoldsNoMemory) {
  MR_COVERS("MR-SEC-024");
  SeededSource random(1);
  LocalAddresses table(random);
  for (uint64_t i = 0; i < 3 * LocalAddresses::kMost; ++i) {
    table.learn(host(i, i), host(1, 1));
    ASSERT_LE(table.size(), LocalAddresses::kMost);
  }
  EXPECT_NE(table.find(host(3 * LocalAddresses::kMost - 1, 3 * LocalAddresses::kMost - 1)),
            nullptr);
}

}  // namespace
}  // namespace metaroce::driver
