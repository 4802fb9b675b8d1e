#include "secure/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/assert.h"

namespace metaroce::secure {
namespace {

constexpr size_t kBlock = 64;

/// Fetched once: a fetch for each digest would take a lock and allocate.
const EVP_MD* sha256() {
  static EVP_MD* const kDigest = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  MR_ASSERT(kDigest != nullptr);
  return kDigest;
}

}  // namespace

void wipe(std::span<std::byte> bytes) { OPENSSL_cleanse(bytes.data(), bytes.size()); }

bool equal(Bytes a, Bytes b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  MR_ASSERT(context_ != nullptr);
  begin();
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::begin() {
  const int done = EVP_DigestInit_ex(context_, sha256(), nullptr);
  MR_ASSERT(done == 1);
}

void Sha256::update(Bytes bytes) {
  const int done = EVP_DigestUpdate(context_, bytes.data(), bytes.size());
  MR_ASSERT(done == 1);
}

Digest Sha256::finish() {
  Digest out;
  finish(out);
  return out;
}

void Sha256::finish(std::span<std::byte, 32> out) {
  const int done =
      EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(out.data()), nullptr);
  MR_ASSERT(done == 1);
  begin();
}

void hmac(Bytes key, std::initializer_list<Bytes> parts, std::span<std::byte, 32> out) {
  // Made once: keys go on while packets fly, and nothing is allocated then.
  static thread_local Sha256 hash;
  std::array<std::byte, kBlock> block{};
  if (key.size() > kBlock) {
    hash.update(key);
    hash.finish(std::span(block).first<32>());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  for (std::byte& b : block) b ^= std::byte{0x36};
  hash.update(block);
  for (const Bytes part : parts) hash.update(part);
  Digest inner;
  hash.finish(inner);
  for (std::byte& b : block) b ^= std::byte{0x36 ^ 0x5c};
  hash.update(block);
  hash.update(inner);
  wipe(block);
  wipe(inner);
  hash.finish(out);
}

void hkdf_extract(Bytes salt, Bytes input, Secret& out) { hmac(salt, {input}, out.bytes()); }

void hkdf_expand(const Secret& key, std::string_view label, std::span<std::byte> out) {
  MR_ASSERT(out.size() <= Secret::kBytes);
  hkdf_expand_long(key, std::as_bytes(std::span(label)), out);
}

void hkdf_expand_long(const Secret& key, Bytes info, std::span<std::byte> out) {
  MR_ASSERT(out.size() <= 255 * Secret::kBytes);
  Digest block{};
  std::byte count{0};
  for (size_t done = 0; done < out.size();) {
    count = static_cast<std::byte>(static_cast<uint8_t>(count) + 1);
    const Bytes before = done == 0 ? Bytes{} : Bytes{block};
    hmac(key.bytes(), {before, info, Bytes{&count, 1}}, block);
    const size_t n = std::min(block.size(), out.size() - done);
    std::copy_n(block.begin(), n, out.begin() + static_cast<std::ptrdiff_t>(done));
    done += n;
  }
  wipe(block);
}

}  // namespace metaroce::secure
