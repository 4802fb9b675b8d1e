#include "wire/data_packet.h"

#include <gtest/gtest.h>

#include "base/covers.h"
#include "wire/ack_packet.h"
#include "wire/control_packet.h"
#include "wire/probe_packet.h"

namespace metaroce::wire {
namespace {

constexpr size_t kWithCrc = kCrcBytes;

size_t encoded_size(Opcode opcode, bool last) {
  DataPacket d;
  d.opcode = opcode;
  d.message_flags = last ? message_flag::kLast : uint8_t{0};
  std::byte out[kMaxDataHeader];
  const size_t size = encode(d, out);
  EXPECT_EQ(size, data_header_bytes(opcode, last));
  return size + kWithCrc;
}

TEST(HeaderSizes, AreThoseOfTheSpecification) {
  MR_COVERS("MR-WIRE-027");
  for (const bool last : {false, true}) {
    EXPECT_EQ(encoded_size(Opcode::kWrite, last), 48u);
    EXPECT_EQ(encoded_size(Opcode::kSend, last), 40u);
    EXPECT_EQ(encoded_size(Opcode::kReadRequest, last), 52u);
    EXPECT_EQ(encoded_size(Opcode::kReadResponse, last), 36u);
    EXPECT_EQ(encoded_size(Opcode::kFetchAdd, last), 56u);
    EXPECT_EQ(encoded_size(Opcode::kCompareSwap, last), 64u);
    EXPECT_EQ(encoded_size(Opcode::kAtomicResponse, last), 36u);
  }
  EXPECT_EQ(encoded_size(Opcode::kWriteImm, false), 48u);
  EXPECT_EQ(encoded_size(Opcode::kWriteImm, true), 56u);
  EXPECT_EQ(encoded_size(Opcode::kSendImm, false), 40u);
  EXPECT_EQ(encoded_size(Opcode::kSendImm, true), 44u);
  EXPECT_EQ(encoded_size(Opcode::kSendInv, false), 40u);
  EXPECT_EQ(encoded_size(Opcode::kSendInv, true), 44u);
  std::byte out[kMaxDataHeader];
  EXPECT_EQ(encode(ProbePacket{}, out) + kWithCrc, 36u);
  EXPECT_EQ(encode(VoidPacket{}, out) + kWithCrc, 36u);
}

TEST(HeaderSizes, LargestHeadersAreTheConstants) {
  size_t largest = 0;
  size_t largest_with_payload = 0;
  for (uint32_t op = 1; op <= 10; ++op) {
    const auto opcode = static_cast<Opcode>(op);
    const size_t size = data_header_bytes(opcode, true);
    largest = std::max(largest, size);
    const bool bare = opcode == Opcode::kReadRequest || opcode == Opcode::kFetchAdd ||
                      opcode == Opcode::kCompareSwap;
    if (!bare) largest_with_payload = std::max(largest_with_payload, size);
  }
  EXPECT_EQ(largest, kMaxDataHeader);
  EXPECT_EQ(largest_with_payload, kMaxPayloadHeader);
}

TEST(HeaderSizes, EncodeStaysInsideTheHeader) {
  for (uint32_t op = 1; op <= 10; ++op) {
    for (const uint8_t flags : {uint8_t{0}, message_flag::kLast}) {
      DataPacket d;
      d.opcode = static_cast<Opcode>(op);
      d.message_flags = flags;
      std::byte out[kMaxDataHeader + 8];
      std::fill(std::begin(out), std::end(out), std::byte{0xC3});
      for (size_t i = encode(d, out); i < std::size(out); ++i) EXPECT_EQ(out[i], std::byte{0xC3});
    }
  }
}

TEST(DataPacket, PayloadIsWhatFollowsTheHeader) {
  MR_COVERS("MR-WIRE-028");
  DataPacket d;
  d.opcode = Opcode::kSend;
  d.offset = (1u << 31) - 100;
  std::byte bytes[36 + 101] = {};
  encode(d, bytes);
  const auto fits = decode_data({bytes, 36 + 100});
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->payload_begin, 36u);
  EXPECT_EQ(fits->payload_length, 100u);
  const auto beyond = decode_data({bytes, 36 + 101});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error(), DropReason::kBadLength);
}

TEST(DataPacket, OtherDecodersRefuseIt) {
  std::byte bytes[64] = {};
  encode(DataPacket{}, bytes);
  EXPECT_EQ(decode_control({bytes, 44}).error(), DropReason::kBadType);
  EXPECT_EQ(decode_probe({bytes, 44}).error(), DropReason::kBadType);
  EXPECT_EQ(decode_ack({bytes, 64}).error(), DropReason::kBadType);
}

}  // namespace
}  // namespace metaroce::wire
