#include "memory/regions.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>

#include "base/covers.h"

namespace metaroce::memory {
namespace {

constexpr uint64_t kTop = std::numeric_limits<uint64_t>::max();

TEST(Regions, KeysAreFreshEachTime) {
  MR_COVERS("MR-MEM-001");
  Regions regions(4, Rng(1));
  std::set<uint32_t> keys;
  for (int i = 0; i < 1000; ++i) {
    const auto info = regions.add_at(nullptr, 10, access::kRemoteWrite, 0);
    ASSERT_TRUE(info.has_value());
    EXPECT_NE(info->key, 0u);
    keys.insert(info->key);
    EXPECT_EQ(regions.remove(info->index), Status::kOk);
  }
  EXPECT_GE(keys.size(), 999u);
  const auto high = [](uint32_t key) { return key >> 24; };
  std::set<uint32_t> tops;
  for (const uint32_t key : keys) tops.insert(high(key));
  EXPECT_GT(tops.size(), 200u);
}

TEST(Regions, UnknownKeyIsRefused) {
  MR_COVERS("MR-MEM-002");
  Regions regions(4, Rng(1));
  const auto info = regions.add_at(nullptr, 10, access::kRemoteWrite, 100);
  EXPECT_EQ(regions.check(info->key + 1, 100, 1, access::kRemoteWrite).error(), AccessError::kKey);
  EXPECT_EQ(regions.check(0, 100, 1, access::kRemoteWrite).error(), AccessError::kKey);
  EXPECT_TRUE(regions.check(info->key, 100, 1, access::kRemoteWrite).has_value());
}

TEST(Regions, BoundsToTheByte) {
  MR_COVERS("MR-MEM-003");
  MR_COVERS("MR-MEM-006");
  Regions regions(4, Rng(1));
  std::array<std::byte, 64> memory{};
  const auto info = regions.add_at(memory.data(), 64, access::kRemoteWrite, 1000);
  const auto check = [&](uint64_t address, uint32_t length) {
    return regions.check(info->key, address, length, access::kRemoteWrite);
  };
  const auto whole = check(1000, 64);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->address, memory.data());
  const auto end = check(1063, 1);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->offset, 63u);
  EXPECT_EQ(end->address, memory.data() + 63);
  for (const auto& [address, length] : {std::pair<uint64_t, uint32_t>{999, 1},
                                        {999, 2},
                                        {1063, 2},
                                        {1064, 1},
                                        {1000, 65},
                                        {kTop, 2},
                                        {kTop, 1},
                                        {0, 1},
                                        {1001, 0xFFFFFFFFu}}) {
    const auto r = check(address, length);
    ASSERT_FALSE(r.has_value()) << address << " " << length;
    EXPECT_EQ(r.error(), AccessError::kBounds);
  }
}

TEST(Regions, NothingWrapsAtTheTop) {
  MR_COVERS("MR-MEM-003");
  Regions regions(4, Rng(1));
  EXPECT_EQ(regions.add_at(nullptr, 2, 0, kTop).error(), Status::kInvalid);
  const auto info = regions.add_at(nullptr, 16, access::kRemoteWrite, kTop - 16);
  ASSERT_TRUE(info.has_value());
  EXPECT_TRUE(regions.check(info->key, kTop - 1, 1, access::kRemoteWrite).has_value());
  EXPECT_FALSE(regions.check(info->key, kTop - 1, 2, access::kRemoteWrite).has_value());
  EXPECT_FALSE(regions.check(info->key, kTop, 1, access::kRemoteWrite).has_value());
  EXPECT_FALSE(regions.check(info->key, 3, 1, access::kRemoteWrite).has_value());
}

TEST(Regions, RightsAreChecked) {
  MR_COVERS("MR-MEM-004");
  Regions regions(4, Rng(1));
  const auto info = regions.add_at(nullptr, 10, access::kRemoteRead, 0);
  EXPECT_TRUE(regions.check(info->key, 0, 10, access::kRemoteRead).has_value());
  EXPECT_EQ(regions.check(info->key, 0, 10, access::kRemoteWrite).error(), AccessError::kRights);
  EXPECT_EQ(regions.check(info->key, 0, 10, access::kRemoteRead | access::kRemoteAtomic).error(),
            AccessError::kRights);
}

TEST(Regions, EmptyAccessChecksNothing) {
  MR_COVERS("MR-MEM-005");
  const Regions regions(1, Rng(1));
  EXPECT_TRUE(regions.check(12345, kTop, 0, access::kRemoteWrite).has_value());
}

TEST(Regions, RemovedRegionIsGone) {
  MR_COVERS("MR-MEM-007");
  Regions regions(1, Rng(1));
  const auto info = regions.add_at(nullptr, 10, access::kRemoteWrite, 0);
  EXPECT_EQ(regions.add_at(nullptr, 10, access::kRemoteWrite, 0).error(), Status::kFull);
  EXPECT_EQ(regions.remove(info->index), Status::kOk);
  EXPECT_EQ(regions.count(), 0u);
  EXPECT_EQ(regions.check(info->key, 0, 1, access::kRemoteWrite).error(), AccessError::kKey);
  EXPECT_EQ(regions.remove(info->index), Status::kUnknownHandle);
  EXPECT_EQ(regions.remove(99), Status::kUnknownHandle);
  const auto again = regions.add_at(nullptr, 10, access::kRemoteWrite, 0);
  ASSERT_TRUE(again.has_value());
  EXPECT_NE(again->key, info->key);
}

TEST(Regions, OwnAddressIsTheDefaultRemoteBase) {
  Regions regions(1, Rng(1));
  std::array<std::byte, 8> memory{};
  const auto info = regions.add(memory.data(), memory.size(), access::kRemoteWrite);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->remote_base, reinterpret_cast<uint64_t>(memory.data()));
  EXPECT_EQ(regions.add(memory.data(), 0, 0).error(), Status::kInvalid);
}

}  // namespace
}  // namespace metaroce::memory
