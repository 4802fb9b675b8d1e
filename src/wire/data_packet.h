// DATA: one fragment of a message, or a Read request or an atomic.
//
//   w0-4  as in common.h
//   w5 | stream 16 | opcode 8 | message flags 8 |   w6 | MSN |   w7 | byte offset |
//   WRITE, WRITE_IMM            w8 key, w9-10 address of this packet's first byte
//   WRITE_IMM, only LAST        w11 receive-queue sequence, w12 immediate
//   SEND, SEND_IMM, SEND_INV    w8 receive-queue sequence
//   SEND_IMM/INV, only LAST     w9 immediate or key to invalidate
//   READ_REQUEST                w8 key, w9-10 address, w11 length
//   FETCH_ADD                   w8 key, w9-10 address, w11-12 operand
//   COMPARE_SWAP                w8 key, w9-10 address, w11-12 compare, w13-14 swap
//   READ/ATOMIC_RESPONSE        nothing more (stream and MSN are the request's)
#pragma once

#include "wire/common.h"

namespace metaroce::wire {

inline constexpr size_t kMaxDataHeader = 60;
inline constexpr size_t kMaxPayloadHeader = 52;  ///< largest header that carries payload

struct DataPacket {
  Sequenced s;
  uint16_t stream = 0;
  Opcode opcode = Opcode::kWrite;
  uint8_t message_flags = 0;
  uint32_t msn = 0;
  uint32_t offset = 0;
  uint32_t key = 0;
  uint64_t address = 0;
  uint32_t rq_seq = 0;
  uint32_t immediate = 0;  ///< or the key to invalidate
  uint32_t read_length = 0;
  uint64_t operand = 0;  ///< add, or compare
  uint64_t swap = 0;
  uint32_t payload_begin = 0;   ///< header bytes; set by decode
  uint32_t payload_length = 0;  ///< set by decode

  bool first() const { return (message_flags & message_flag::kFirst) != 0; }
  bool last() const { return (message_flags & message_flag::kLast) != 0; }
  bool operator==(const DataPacket&) const = default;
};

/// Header bytes of a packet of this opcode; `last` matters for immediates.
constexpr size_t data_header_bytes(Opcode opcode, bool last) {  // MR-WIRE-027
  switch (opcode) {
    case Opcode::kWrite:
      return 44;
    case Opcode::kWriteImm:  // MR-WIRE-023
      return last ? 52 : 44;
    case Opcode::kSend:  // MR-WIRE-024
      return 36;
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      return last ? 40 : 36;
    case Opcode::kReadRequest:  // MR-WIRE-025
      return 48;
    case Opcode::kFetchAdd:
      return 52;
    case Opcode::kCompareSwap:
      return 60;
    case Opcode::kReadResponse:  // MR-WIRE-026
    case Opcode::kAtomicResponse:
      return 32;
  }
  return 0;
}

/// `bytes` is the verified packet without its trailer. Payload may be empty.
/// Fails with kTooShort, kBadOpcode, kBadLength (payload on a kind that has none; offset + payload
/// beyond 2^31), kBadField.
Decoded<DataPacket> decode_data(Bytes bytes);

/// Writes the header to out (at least kMaxDataHeader bytes), returns its length.
size_t encode(const DataPacket& packet, std::byte* out);

/// Writes the headers of packets that follow one another in a run: same message, path, stamp and
/// flags, the next sequence, floor, CPSN and bytes.
class HeaderRun {
 public:
  /// Goes on from an encoded packet that is neither FIRST nor LAST of its message and carries
  /// `length` bytes. Its header must stay where it is.
  HeaderRun(const std::byte* encoded, size_t header, uint32_t length)
      : encoded_(encoded),
        has_address_(header == data_header_bytes(Opcode::kWrite, false)),
        length_(length),
        w0_(load32(encoded)),
        seq_(load32(encoded + 8)),
        cpsn_(load32(encoded + 16)),
        offset_(load32(encoded + 28)),
        address_(has_address_ ? load64(encoded + 36) : 0) {}

  uint32_t length() const { return length_; }
  /// Writes the next header, of the same length, to another place.
  void next(std::byte* out) {
    __builtin_memcpy(out, encoded_, 36);
    store32(out, ++w0_);         // the floor is as far away as the sequence
    store32(out + 8, ++seq_);    // MR-PATH-001
    store32(out + 16, ++cpsn_);  // MR-CPSN-001
    store32(out + 28, offset_ += length_);
    if (has_address_) store64(out + 36, address_ += length_);
  }

 private:
  const std::byte* encoded_;
  bool has_address_;
  uint32_t length_;
  uint32_t w0_;
  uint32_t seq_;
  uint32_t cpsn_;
  uint32_t offset_;
  uint64_t address_;
};

}  // namespace metaroce::wire
