#include "secure/x25519.h"

#include <openssl/evp.h>

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
  const int done = key == nullptr
                       ? 0
                       : EVP_PKEY_get_raw_public_key(key.get(), raw(out.data()), &length);
  MR_ASSERT(done == 1 && length == out.size());
  return out;
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
