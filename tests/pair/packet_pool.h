// Packets in flight: metadata and a buffer each, reused, so that a run does not allocate per
// packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/address.h"
#include "base/types.h"

namespace metaroce::pair {

struct FlyingPacket {
  SocketAddress from;
  uint32_t length = 0;  ///< header and payload, without trailer unless sealed
  bool sealed = false;  ///< the tag follows, and counts
  uint32_t link = 0;
  uint32_t path_seq = 0;
  uint32_t cpsn = 0;
  uint8_t to_side = 0;
  uint8_t plane = 0;
  Ecn ecn = Ecn::kNotEct;
  bool damaged = false;
  bool is_data = false;  ///< DATA with a CPSN that counts for the truth about repairs
  bool sequenced = false;
};

class PacketPool {
 public:
  /// `capacity` bytes a buffer.
  explicit PacketPool(size_t capacity) : stride_((capacity + 127) / 64 * 64) {
    // Buffers a multiple of 4 KiB apart would fall into the same cache sets.
    if (stride_ % 1024 == 0) stride_ += 64;
  }

  uint32_t take() {
    if (free_.empty()) grow();
    const uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void give_back(uint32_t index) { free_.push_back(index); }

  FlyingPacket& meta(uint32_t index) { return meta_[index]; }
  std::byte* data(uint32_t index) {
    return chunks_[index / kChunk].get() + (index % kChunk) * stride_;
  }
  size_t capacity() const { return stride_; }

 private:
  static constexpr uint32_t kChunk = 256;

  void grow() {
    const auto first = static_cast<uint32_t>(chunks_.size()) * kChunk;
    chunks_.push_back(std::make_unique<std::byte[]>(kChunk * stride_));
    meta_.resize(first + kChunk);
    for (uint32_t i = kChunk; i > 0; --i) free_.push_back(first + i - 1);
  }

  size_t stride_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::vector<FlyingPacket> meta_;
  std::vector<uint32_t> free_;
};

}  // namespace metaroce::pair
