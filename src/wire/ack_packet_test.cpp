#include "wire/ack_packet.h"

#include <gtest/gtest.h>

#include "base/covers.h"

namespace metaroce::wire {
namespace {

TEST(AckPacket, BitIOfTheMapIsTheIthBitOnTheWire) {
  MR_COVERS("MR-WIRE-043");
  for (uint32_t i = 0; i < 256; ++i) {
    AckPacket a;
    a.map.set(i);
    std::byte out[kAckLongBytes];
    ASSERT_EQ(encode(a, out), kAckBytes);
    for (uint32_t byte = 0; byte < 32; ++byte) {
      const uint32_t expected = byte == i / 8 ? 0x80u >> i % 8 : 0;
      ASSERT_EQ(static_cast<uint32_t>(out[16 + byte]), expected) << "bit " << i;
    }
  }
}

TEST(AckPacket, BitIOfTheWideMapIsTheIthBitOnTheWire) {
  MR_COVERS("MR-WIRE-042");
  for (uint32_t i = 0; i < 1024; ++i) {
    AckWidePacket a;
    a.map[i / 64] = 1ull << i % 64;
    std::byte out[kAckWideRefusedBytes];
    ASSERT_EQ(encode(a, out), kAckWideBytes);
    for (uint32_t byte = 0; byte < 128; ++byte) {
      const uint32_t expected = byte == i / 8 ? 0x80u >> i % 8 : 0;
      ASSERT_EQ(static_cast<uint32_t>(out[16 + byte]), expected) << "bit " << i;
    }
  }
}

TEST(AckPacket, ARefusedBitWithoutMapBitIsRefused) {
  MR_COVERS("MR-WIRE-047");
  for (const uint32_t i : {0u, 63u, 64u, 200u, 255u}) {
    AckPacket a;
    a.is_long = true;
    a.refused.set(i);
    std::byte out[kAckLongBytes];
    encode(a, out);
    EXPECT_EQ(decode_ack(out).error(), DropReason::kBadField);
    a.map.set(i);
    encode(a, out);
    ASSERT_TRUE(decode_ack(out));
    EXPECT_EQ(*decode_ack(out), a);
  }
}

TEST(AckPacket, LengthIsExact) {
  MR_COVERS("MR-WIRE-040");
  MR_COVERS("MR-WIRE-041");
  std::byte out[kAckLongBytes + 1] = {};
  AckPacket a;
  for (const bool is_long : {false, true}) {
    a.is_long = is_long;
    const size_t size = encode(a, out);
    EXPECT_EQ(size, is_long ? kAckLongBytes : kAckBytes);
    EXPECT_EQ(decode_ack({out, size - 1}).error(), DropReason::kTooShort);
    EXPECT_EQ(decode_ack({out, size + 1}).error(), DropReason::kBadLength);
    EXPECT_TRUE(decode_ack({out, size}));
  }
}

TEST(AckPacket, UnknownReasonReadsAsUnknown) {
  MR_COVERS("MR-WIRE-060");
  AckPacket a;
  a.is_long = true;
  a.f.reason = static_cast<Refusal>(200);
  std::byte out[kAckLongBytes];
  encode(a, out);
  ASSERT_TRUE(decode_ack(out));
  EXPECT_EQ(decode_ack(out)->f.reason, Refusal::kUnknown);
}

}  // namespace
}  // namespace metaroce::wire
