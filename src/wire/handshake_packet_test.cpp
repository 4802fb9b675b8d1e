#include "wire/handshake_packet.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/covers.h"

namespace metaroce::wire {
namespace {

HelloPacket with_all_planes(bool accept) {
  HelloPacket h;
  h.is_accept = accept;
  h.connection = accept ? 0x01020304 : 0;
  h.params.has_cookie = true;
  for (uint32_t i = 0; i < kMaxPlanes; ++i) {
    h.params.planes[i].family = i % 2 == 0 ? 6 : 4;
    h.params.planes[i].port = static_cast<uint16_t>(kBasePort + i);
    h.params.planes[i].bytes[0] = static_cast<uint8_t>(i + 1);
  }
  return h;
}

TEST(Handshake, ASixteenPlaneHostFitsIntoTheSmallestHello) {
  MR_COVERS("MR-WIRE-050");
  const HelloPacket h = with_all_planes(false);
  std::vector<std::byte> out(kMaxHandshake);
  out.resize(encode(h, out.data()));
  EXPECT_EQ(out.size(), kMinHello);
  ASSERT_TRUE(decode_hello(out));
  EXPECT_EQ(*decode_hello(out), h);
}

TEST(Handshake, AcceptIsNotLargerThanAnyHello) {
  const HelloPacket h = with_all_planes(true);
  std::vector<std::byte> out(kMaxHandshake);
  out.resize(encode(h, out.data()));
  EXPECT_LE(out.size(), kMinHello);
  ASSERT_TRUE(decode_hello(out));
  EXPECT_EQ(*decode_hello(out), h);
}

TEST(Handshake, HelloOf512BytesWithItsTrailerIsEnough) {
  MR_COVERS("MR-WIRE-050");
  std::byte out[kMaxHandshake];
  encode(HelloPacket{}, out);
  EXPECT_TRUE(decode_hello({out, 508}));
  EXPECT_EQ(decode_hello({out, 507}).error(), DropReason::kBadLength);
}

TEST(Handshake, CriticalBitDecidesWhetherAnUnknownTlvIsSkipped) {
  MR_COVERS("MR-CONN-016");
  HelloPacket h;
  h.is_accept = true;
  std::vector<std::byte> out(kMaxHandshake);
  const size_t size = encode(h, out.data());
  out.resize(size + 4);
  out[31] = static_cast<std::byte>(size + 4 - kAcceptFixed);
  for (uint32_t type = 0; type < 256; ++type) {
    const uint32_t kind = type & 0x7F;
    if ((kind >= tlv::kVersions && kind <= tlv::kCookie) || kind == tlv::kOperations) continue;
    out[size] = static_cast<std::byte>(type);
    out[size + 1] = std::byte{1};
    const auto decoded = decode_hello(out);
    EXPECT_EQ(decoded.has_value(), type < 128) << type;
    if (!decoded) {
      EXPECT_EQ(decoded.error(), DropReason::kBadTlv);
    }
  }
}

TEST(Handshake, AnswersAreNotLargerThanTheSmallestQuestion) {
  std::byte out[kMaxHandshake];
  EXPECT_LT(encode(CookiePacket{}, out), kMinHello - kCrcBytes);
  EXPECT_EQ(encode(HostProbePacket{true, 1}, out), encode(HostProbePacket{false, 1}, out));
  EXPECT_LE(encode(UnknownConnectionPacket{}, out), 32u);  // the smallest sequenced packet
}

}  // namespace
}  // namespace metaroce::wire
