// Room for packets whose bytes lie in several segments: they are put side by side here when their
// header is written, and are gone with the next poll_transmit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/assert.h"

namespace metaroce::message {

class GatherSpace {
 public:
  static constexpr uint32_t kPackets = 64;

  explicit GatherSpace(uint32_t max_payload)
      : bytes_(new std::byte[size_t{kPackets} * max_payload]), size_(max_payload) {}

  void clear() { used_ = 0; }
  /// Less than a run may need: what is sent next waits for the next call.
  bool scarce() const { return kPackets - used_ < 16; }
  std::byte* take() {
    MR_ASSERT(used_ < kPackets);
    return bytes_.get() + size_t{used_++} * size_;
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;  // not initialised: pages are touched when they are used
  uint32_t size_;
  uint32_t used_ = 0;
};

}  // namespace metaroce::message
