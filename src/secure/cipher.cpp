#include "secure/cipher.h"

#include <openssl/evp.h>

#include "base/assert.h"

namespace metaroce::secure {
namespace {

struct SuiteRow {
  const char* name;
  const char* fetch;
  size_t key;
};
constexpr SuiteRow kRows[] = {
    {"none", nullptr, 0},
    {"AES-128-GCM", "AES-128-GCM", 16},
    {"AES-256-GCM", "AES-256-GCM", 32},
    {"ChaCha20-Poly1305", "ChaCha20-Poly1305", 32},
};

const SuiteRow& row(Suite suite) {
  const auto number = static_cast<uint8_t>(suite);
  return kRows[number <= kLastSuite ? number : 0];
}

const unsigned char* raw(const std::byte* p) { return reinterpret_cast<const unsigned char*>(p); }
unsigned char* raw(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }

}  // namespace

const char* to_string(Suite suite) { return row(suite).name; }

Suite suite_of(std::string_view name) {
  for (uint8_t i = 1; i <= kLastSuite; ++i) {
    if (name == kRows[i].name) return static_cast<Suite>(i);
  }
  return Suite::kNone;
}

size_t key_bytes(Suite suite) { return row(suite).key; }

std::vector<Suite> all_suites() {
  std::vector<Suite> all;
  for (uint8_t i = 1; i <= kLastSuite; ++i) all.push_back(static_cast<Suite>(i));
  return all;
}

Cipher::Cipher(Suite suite, Direction direction)
    : context_(EVP_CIPHER_CTX_new()), direction_(direction), key_bytes_(row(suite).key) {
  EVP_CIPHER* cipher = EVP_CIPHER_fetch(nullptr, row(suite).fetch, nullptr);
  MR_ASSERT(context_ != nullptr && cipher != nullptr);
  const int done = EVP_CipherInit_ex2(context_, cipher, nullptr, nullptr,
                                      direction == Direction::kSeal ? 1 : 0, nullptr);
  MR_ASSERT(done == 1);
  EVP_CIPHER_free(cipher);  // the context holds it
}

Cipher::~Cipher() { EVP_CIPHER_CTX_free(context_); }  // wipes its key

void Cipher::set_key(Bytes key) {
  MR_ASSERT(key.size() == key_bytes_);
  const int done = EVP_CipherInit_ex2(context_, nullptr, raw(key.data()), nullptr,
                                      direction_ == Direction::kSeal ? 1 : 0, nullptr);
  MR_ASSERT(done == 1);
}

void Cipher::seal(const Nonce& nonce, Bytes header, const std::byte* in, size_t length,
                  std::byte* out, std::byte* tag) {
  int n = 0;
  int done = EVP_EncryptInit_ex2(context_, nullptr, nullptr, raw(nonce.data()), nullptr);
  done &= EVP_EncryptUpdate(context_, nullptr, &n, raw(header.data()),
                            static_cast<int>(header.size()));
  if (length > 0) {
    done &= EVP_EncryptUpdate(context_, raw(out), &n, raw(in), static_cast<int>(length));
  }
  unsigned char rest[kTagBytes];
  done &= EVP_EncryptFinal_ex(context_, rest, &n);
  done &= EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag);
  MR_ASSERT(done == 1);
}

bool Cipher::open(const Nonce& nonce, Bytes header, std::byte* data, size_t length,
                  const std::byte* tag) {
  int n = 0;
  int done = EVP_DecryptInit_ex2(context_, nullptr, nullptr, raw(nonce.data()), nullptr);
  done &= EVP_DecryptUpdate(context_, nullptr, &n, raw(header.data()),
                            static_cast<int>(header.size()));
  if (length > 0) {
    done &= EVP_DecryptUpdate(context_, raw(data), &n, raw(data), static_cast<int>(length));
  }
  done &= EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes,
                              const_cast<std::byte*>(tag));
  MR_ASSERT(done == 1);
  unsigned char rest[kTagBytes];
  return EVP_DecryptFinal_ex(context_, rest, &n) == 1;  // compares in constant time
}

}  // namespace metaroce::secure
