#include "secure/x25519.h"

#include <openssl/evp.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/assert.h"

namespace metaroce::secure {
namespace {

const unsigned char* raw(const std::byte* p) { return reinterpret_cast<const unsigned char*>(p); }
unsigned char* raw(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;

Key private_of(const Secret& key) {
  return Key(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, raw(key.bytes().data()),
                                          Secret::kBytes));
}

}  // namespace

PublicKey x25519_public(const Secret& private_key) {
  const Key key = private_of(private_key);
  PublicKey out{};
  size_t length = out.size();
  const int done =
      key == nullptr ? 0 : EVP_PKEY_get_raw_public_key(key.get(), raw(out.data()), &length);
  MR_ASSERT(done == 1 && length == out.size());
  return out;
}

bool is_low_order(const PublicKey& key) {
  // The seven encodings below 2^255 whose order divides 8 (0, 1, two of order 8, p - 1, p, p + 1),
  // as 32-bit words, lowest first; the highest bit of a key is not looked at (RFC 7748, 5).
  constexpr uint32_t kTop = 0x7fffffff, kAll = 0xffffffff;
  constexpr uint32_t kPoints[7][8] = {
      {0, 0, 0, 0, 0, 0, 0, 0},
      {1, 0, 0, 0, 0, 0, 0, 0},
      {0x7c7aebe0, 0xaeb8413b, 0xfae35616, 0x6ac49ff1, 0xeb8d09da, 0xfdb1329c, 0x16056286,
       0x00b8495f},
      {0xbc959c5f, 0x248c50a3, 0x55b1d0b1, 0x5bef839c, 0xc45c4404, 0x868e1c58, 0xdd4e22d8,
       0x57119fd0},
      {0xffffffec, kAll, kAll, kAll, kAll, kAll, kAll, kTop},
      {0xffffffed, kAll, kAll, kAll, kAll, kAll, kAll, kTop},
      {0xffffffee, kAll, kAll, kAll, kAll, kAll, kAll, kTop},
  };
  return std::any_of(std::begin(kPoints), std::end(kPoints), [&key](const uint32_t(&point)[8]) {
    for (size_t i = 0; i < 32; ++i) {
      const uint32_t byte = static_cast<uint8_t>(key[i]) & (i == 31 ? 0x7fu : 0xffu);
      if (byte != (point[i / 4] >> (i % 4 * 8) & 0xffu)) return false;
    }
    return true;
  });
}

bool x25519(const Secret& private_key, const PublicKey& peer, Secret& shared) {
  const Key own = private_of(private_key);
  const Key other(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, raw(peer.data()), peer.size()));
  if (own == nullptr || other == nullptr) return false;
  const std::unique_ptr<EVP_PKEY_CTX, FreeContext> context(EVP_PKEY_CTX_new(own.get(), nullptr));
  size_t length = Secret::kBytes;
  if (context == nullptr || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), other.get()) != 1 ||
      EVP_PKEY_derive(context.get(), raw(shared.bytes().data()), &length) != 1) {
    return false;
  }
  const std::array<std::byte, Secret::kBytes> zero{};
  return length == Secret::kBytes && !equal(shared.bytes(), zero);
}

}  // namespace metaroce::secure
