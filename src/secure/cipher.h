// One AEAD key in one direction. The context is made once; a packet costs no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "secure/secret.h"

struct evp_cipher_ctx_st;

namespace metaroce::secure {

inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kNonceBytes = 12;
using Nonce = std::array<std::byte, kNonceBytes>;

/// Numbers of TLV 6 (spec/10-registries.md).
enum class Suite : uint8_t { kNone = 0, kAes128Gcm = 1, kAes256Gcm = 2, kChaCha20Poly1305 = 3 };
inline constexpr uint8_t kLastSuite = 3;

/// "AES-128-GCM" ...; "none".
const char* to_string(Suite suite);
/// kNone for a name that is none.
Suite suite_of(std::string_view name);
size_t key_bytes(Suite suite);
/// In the order of their numbers.
std::vector<Suite> all_suites();

class Cipher {
 public:
  enum class Direction { kSeal, kOpen };

  Cipher(Suite suite, Direction direction);
  ~Cipher();
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  /// `key` has key_bytes(suite) bytes.
  void set_key(Bytes key);
  /// Encrypts `length` bytes from `in` to `out` (may be the same) and writes the tag over `header`
  /// and them.
  void seal(const Nonce& nonce, Bytes header, const std::byte* in, size_t length, std::byte* out,
            std::byte* tag);
  /// Decrypts in place; true when the tag is right. When not, `data` holds nothing of use until a
  /// second call with the same nonce has brought the bytes back that stood there.
  bool open(const Nonce& nonce, Bytes header, std::byte* data, size_t length,
            const std::byte* tag);

 private:
  evp_cipher_ctx_st* context_;
  const Direction direction_;
  const size_t key_bytes_;
};

}  // namespace metaroce::secure
