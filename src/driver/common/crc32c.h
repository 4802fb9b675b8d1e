// CRC32C (Castagnoli, reflected, initial value and final XOR all ones), MR-WIRE-007.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace metaroce::driver {

/// A CRC over several pieces: Crc32c crc; crc.add(a); crc.add(b); crc.value().
class Crc32c {
 public:
  void add(const void* bytes, size_t length);
  void add(std::span<const std::byte> bytes) { add(bytes.data(), bytes.size()); }
  void add_zeros(size_t length);
  uint32_t value() const { return ~state_; }

 private:
  uint32_t state_ = 0xFFFFFFFFu;
};

uint32_t crc32c(std::span<const std::byte> bytes);

/// Compares the library's result with published vectors; false: this machine must not run.
bool crc32c_self_check();

}  // namespace metaroce::driver
