// Where numbers come from that nobody may guess (MR-SEC-008).
#pragma once

#include <cstddef>
#include <span>

namespace metaroce {

/// Owned by whoever owns the engine; the engine itself knows no random device.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual void fill(std::span<std::byte> out) = 0;
};

}  // namespace metaroce
