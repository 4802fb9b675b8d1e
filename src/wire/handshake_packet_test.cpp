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
    if (kind == tlv::kOperations) continue;
    if (kind >= tlv::kVersions && kind <= tlv::kProof && kind != tlv::kAckWide &&
        kind != tlv::kVendor) {
      continue;
    }
    out[size] = static_cast<std::byte>(type);
    out[size + 1] = std::byte{1};
    const auto decoded = decode_hello(out);
    EXPECT_EQ(decoded.has_value(), type < 128) << type;
    if (!decoded) {
      EXPECT_EQ(decoded.error(), DropReason::kBadTlv);
    }
  }
}

HelloPacket with_security(bool accept, uint8_t mode) {
  HelloPacket h = with_all_planes(accept);
  h.params.has_cookie = !accept;
  h.params.suites = {1, 3};
  h.params.suite_count = accept ? 1 : 2;
  if (accept) h.params.suites[1] = 0;
  SecurityOffer& offer = h.params.security;
  offer.mode = mode;
  offer.required = true;
  offer.ephemeral.fill(std::byte{0x11});
  if (mode == 2) {
    offer.static_key.fill(std::byte{0x22});
    offer.wanted.fill(std::byte{0x33});
  } else {
    offer.name_length = static_cast<uint8_t>(offer.name.size());
    offer.name.fill('n');
  }
  h.params.has_proof = accept;
  return h;
}

TEST(Handshake, ASecureAcceptIsNotLargerThanAnySecureHello) {
  MR_COVERS("MR-WIRE-063");
  for (const uint8_t mode : {1, 2}) {
    for (const bool accept : {false, true}) {
      const HelloPacket h = with_security(accept, mode);
      std::vector<std::byte> out(kMaxHandshake, std::byte{0xEE});
      out.resize(encode(h, out.data()));
      if (accept) {
        // GREASE of 20 bytes may follow.
        EXPECT_LE(out.size() + 20, kMinSecureHello - kCrcBytes);
      } else {
        EXPECT_GE(out.size(), kMinSecureHello - kCrcBytes);
      }
      ASSERT_TRUE(decode_hello(out));
      EXPECT_EQ(*decode_hello(out), h);
    }
  }
}

TEST(Handshake, MalformedSecurityIsDropped) {
  MR_COVERS("MR-WIRE-063");
  const auto fate = [](uint8_t type, std::vector<uint8_t> value) {
    HelloPacket h;
    h.is_accept = true;
    std::vector<std::byte> out(kMaxHandshake);
    size_t size = encode(h, out.data());
    size = set_tlv(out.data(), size, type, std::as_bytes(std::span(value)));
    out.resize(size);
    const auto decoded = decode_hello(out);
    return decoded ? DropReason::kNone : decoded.error();
  };
  const auto offer = [](uint8_t mode, size_t length, uint8_t name) {
    std::vector<uint8_t> value(length);
    value[0] = mode;
    if (length > 34) value[34] = name;
    return value;
  };
  EXPECT_EQ(fate(tlv::kSecurity, offer(1, 38, 3)), DropReason::kNone);
  EXPECT_EQ(fate(tlv::kSecurity, offer(1, 38, 4)), DropReason::kBadTlv) << "name too long";
  EXPECT_EQ(fate(tlv::kSecurity, offer(1, 34, 0)), DropReason::kBadTlv) << "no name length";
  EXPECT_EQ(fate(tlv::kSecurity, offer(1, 120, 65)), DropReason::kBadTlv) << "name of 65";
  EXPECT_EQ(fate(tlv::kSecurity, offer(2, 74, 0)), DropReason::kNone);
  EXPECT_EQ(fate(tlv::kSecurity, offer(2, 73, 0)), DropReason::kBadTlv) << "key cut";
  EXPECT_EQ(fate(tlv::kSecurity, offer(3, 34, 0)), DropReason::kNone) << "a mode to come";
  EXPECT_EQ(fate(tlv::kSecurity, offer(0, 34, 0)), DropReason::kBadTlv) << "no mode";
  EXPECT_EQ(fate(tlv::kSecurity, offer(1, 33, 0)), DropReason::kBadTlv) << "too short";
  EXPECT_EQ(fate(tlv::kAead, {}), DropReason::kBadTlv);
  EXPECT_EQ(fate(tlv::kAead, std::vector<uint8_t>(200, 9)), DropReason::kNone);
  EXPECT_EQ(fate(tlv::kProof, std::vector<uint8_t>(15)), DropReason::kBadTlv);
}

TEST(Handshake, AnswersAreNotLargerThanTheSmallestQuestion) {
  std::byte out[kMaxHandshake];
  EXPECT_LT(encode(CookiePacket{}, out), kMinHello - kCrcBytes);
  EXPECT_EQ(encode(HostProbePacket{true, 1}, out), encode(HostProbePacket{false, 1}, out));
  EXPECT_LE(encode(UnknownConnectionPacket{}, out), 32u);  // the smallest sequenced packet
}

}  // namespace
}  // namespace metaroce::wire
