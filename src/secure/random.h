// The cryptographic generator of products (MR-SEC-008): OpenSSL's, which the system seeds.
#pragma once

#include <array>

#include "base/random_source.h"

namespace metaroce::secure {

class SystemRandom final : public RandomSource {
 public:
  ~SystemRandom() override;
  /// Ends the program when the system has no random numbers: no key is better than a bad one.
  void fill(std::span<std::byte> out) override;

 private:
  // Ids and nonces are eight bytes each; asking for each would cost more than the rest of set-up.
  std::array<std::byte, 256> buffer_{};
  size_t used_ = sizeof(buffer_);
};

}  // namespace metaroce::secure
