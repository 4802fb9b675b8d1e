// 32 bytes that are wiped when they go, and comparisons that take the same time whatever differs.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace metaroce::secure {

using Bytes = std::span<const std::byte>;
using PublicKey = std::array<std::byte, 32>;
using Digest = std::array<std::byte, 32>;

/// Overwrites memory in a way that no optimiser removes.
void wipe(std::span<std::byte> bytes);
/// Compares without telling by its time where the first difference is.
bool equal(Bytes a, Bytes b);

class Secret {
 public:
  static constexpr size_t kBytes = 32;
  Secret() = default;
  ~Secret() { wipe(bytes_); }
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  std::span<std::byte, kBytes> bytes() { return bytes_; }
  std::span<const std::byte, kBytes> bytes() const { return bytes_; }

 private:
  std::array<std::byte, kBytes> bytes_{};
};

}  // namespace metaroce::secure
