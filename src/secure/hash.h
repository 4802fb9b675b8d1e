// SHA-256, HMAC (RFC 2104) and HKDF (RFC 5869) over it.
#pragma once

#include <string_view>

#include "secure/secret.h"

struct evp_md_ctx_st;

namespace metaroce::secure {

/// A digest of bytes that come in pieces. Used at set-up and key update, never per packet.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(Bytes bytes);
  /// The digest of all that came; begins anew.
  Digest finish();
  void finish(std::span<std::byte, 32> out);

 private:
  void begin();
  evp_md_ctx_st* context_;
};

/// Any length of key; `parts` one after the other are the message, and may overlap `out`. Nothing
/// of the result stays anywhere else.
void hmac(Bytes key, std::initializer_list<Bytes> parts, std::span<std::byte, 32> out);

void hkdf_extract(Bytes salt, Bytes input, Secret& out);
/// At most 32 bytes, which is one round of the expansion.
void hkdf_expand(const Secret& key, std::string_view label, std::span<std::byte> out);
/// The whole of RFC 5869, at most 255 * 32 bytes.
void hkdf_expand_long(const Secret& key, Bytes info, std::span<std::byte> out);

}  // namespace metaroce::secure
