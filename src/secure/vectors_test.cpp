// The published vectors of the building blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/covers.h"
#include "secure/cipher.h"
#include "secure/hash.h"
#include "secure/key_file.h"
#include "secure/x25519.h"

namespace metaroce::secure {
namespace {

std::vector<std::byte> bytes(std::string_view hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

Secret secret(std::string_view hex) {
  Secret s;
  EXPECT_TRUE(from_hex(hex, s.bytes()));
  return s;
}

PublicKey public_key(std::string_view hex) {
  PublicKey k{};
  EXPECT_TRUE(from_hex(hex, k));
  return k;
}

TEST(Vectors, HkdfOfRfc5869) {
  const auto input = std::vector<std::byte>(22, std::byte{0x0b});
  Secret prk;
  hkdf_extract(bytes("000102030405060708090a0b0c"), input, prk);
  EXPECT_EQ(to_hex(prk.bytes()),
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
  std::array<std::byte, 42> out;
  hkdf_expand_long(prk, bytes("f0f1f2f3f4f5f6f7f8f9"), out);
  EXPECT_EQ(to_hex(out),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

TEST(Vectors, HmacOfRfc4231TakesLongKeys) {
  const auto key = std::vector<std::byte>(131, std::byte{0xaa});
  const std::string_view text = "Test Using Larger Than Block-Size Key - Hash Key First";
  Digest out;
  hmac(key, {std::as_bytes(std::span(text))}, out);
  EXPECT_EQ(to_hex(out), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Vectors, X25519OfRfc7748) {
  const Secret alice = secret("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
  const Secret bob = secret("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
  EXPECT_EQ(to_hex(x25519_public(alice)),
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
  EXPECT_EQ(to_hex(x25519_public(bob)),
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
  Secret one;
  Secret other;
  ASSERT_TRUE(x25519(alice, x25519_public(bob), one));
  ASSERT_TRUE(x25519(bob, x25519_public(alice), other));
  EXPECT_EQ(to_hex(one.bytes()),
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
  EXPECT_TRUE(equal(one.bytes(), other.bytes()));
}

TEST(Vectors, X25519RefusesPointsOfLowOrder) {
  const Secret alice = secret("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
  Secret shared;
  EXPECT_FALSE(x25519(alice, PublicKey{}, shared));
  EXPECT_FALSE(x25519(
      alice, public_key("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
      shared));
}

struct AeadVector {
  Suite suite;
  const char* key;
  const char* nonce;
  const char* header;
  std::vector<std::byte> plain;
  const char* sealed;  ///< or the beginning of it
  const char* tag;
};

std::vector<AeadVector> aead_vectors() {
  const auto gcm = bytes(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  const std::string_view ladies =
      "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
      "sunscreen would be it.";
  const auto text = std::as_bytes(std::span(ladies));
  return {
      {Suite::kAes128Gcm, "feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
       "feedfacedeadbeeffeedfacedeadbeefabaddad2", gcm,
       "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
       "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
       "5bc94fbc3221a5db94fae95ae7121a47"},
      {Suite::kAes256Gcm, "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
       "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2", gcm,
       "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
       "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
       "76fc6ece0f4e1768cddf8853bb2d551b"},
      {Suite::kChaCha20Poly1305, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
       "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
       std::vector<std::byte>(text.begin(), text.end()), "d31a8d34648e60db7b86afbc53ef7ec2",
       "1ae10b594f09e26a7e902ecbd0600691"},
  };
}

TEST(Vectors, AeadOfTheThreeSuites) {
  MR_COVERS("MR-SEC-004");
  for (const AeadVector& v : aead_vectors()) {
    SCOPED_TRACE(to_string(v.suite));
    Cipher seal(v.suite, Cipher::Direction::kSeal);
    Cipher open(v.suite, Cipher::Direction::kOpen);
    seal.set_key(bytes(v.key));
    open.set_key(bytes(v.key));
    Nonce nonce;
    std::ranges::copy(bytes(v.nonce), nonce.begin());
    const auto header = bytes(v.header);
    // Twice: a context is used again for every packet.
    for (int round = 0; round < 2; ++round) {
      std::vector<std::byte> out(v.plain.size());
      std::array<std::byte, kTagBytes> tag;
      seal.seal(nonce, header, v.plain.data(), v.plain.size(), out.data(), tag.data());
      EXPECT_EQ(to_hex(out).substr(0, std::strlen(v.sealed)), v.sealed);
      EXPECT_EQ(to_hex(tag), v.tag);
      EXPECT_TRUE(open.open(nonce, header, out.data(), out.size(), tag.data()));
      EXPECT_EQ(out, v.plain);
    }
  }
}

TEST(Vectors, AFailedOpeningCanBeTakenBack) {
  for (const AeadVector& v : aead_vectors()) {
    SCOPED_TRACE(to_string(v.suite));
    Cipher open(v.suite, Cipher::Direction::kOpen);
    open.set_key(bytes(v.key));
    auto data = v.plain;
    std::array<std::byte, kTagBytes> tag{};
    Nonce nonce{};
    EXPECT_FALSE(open.open(nonce, {}, data.data(), data.size(), tag.data()));
    EXPECT_NE(data, v.plain);
    EXPECT_FALSE(open.open(nonce, {}, data.data(), data.size(), tag.data()));
    EXPECT_EQ(data, v.plain);
  }
}

}  // namespace
}  // namespace metaroce::secure
