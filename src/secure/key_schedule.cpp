#include "secure/key_schedule.h"

#include <algorithm>

#include "base/assert.h"
#include "secure/hash.h"

namespace metaroce::secure {

void derive(const Digest& transcript, std::span<const Secret> inputs, HandshakeKeys& out) {
  constexpr size_t kMostInputs = 3;
  MR_ASSERT(inputs.size() <= kMostInputs);
  std::array<std::byte, kMostInputs * Secret::kBytes> all{};
  size_t used = 0;
  for (const Secret& s : inputs) {
    std::copy(s.bytes().begin(), s.bytes().end(), all.begin() + static_cast<std::ptrdiff_t>(used));
    used += Secret::kBytes;
  }
  Secret root;
  hkdf_extract(transcript, Bytes(all).first(used), root);
  wipe(all);
  hkdf_expand(root, "metaroce 1 accept", out.accept.bytes());
  hkdf_expand(root, "metaroce 1 confirm", out.confirm.bytes());
  hkdf_expand(root, "metaroce 1 initiator", out.initiator.bytes());
  hkdf_expand(root, "metaroce 1 responder", out.responder.bytes());
}

Proof accept_proof(const HandshakeKeys& keys, const Digest& transcript) {
  Digest full;
  hmac(keys.accept.bytes(), {transcript}, full);
  Proof proof;
  std::copy_n(full.begin(), proof.size(), proof.begin());
  wipe(full);
  return proof;
}

uint64_t confirm_mac(const HandshakeKeys& keys, const Digest& transcript) {
  Digest full;
  hmac(keys.confirm.bytes(), {transcript}, full);
  uint64_t mac = 0;
  for (size_t i = 0; i < sizeof mac; ++i) mac = mac << 8 | static_cast<uint8_t>(full[i]);
  wipe(full);
  return mac;
}

TrafficKeys::~TrafficKeys() { wipe(key); }

void traffic_keys(const Secret& traffic, TrafficKeys& out) {
  hkdf_expand(traffic, "metaroce 1 key", out.key);
  hkdf_expand(traffic, "metaroce 1 iv", out.iv);
}

void next_traffic(Secret& traffic) {
  Secret next;
  hkdf_expand(traffic, "metaroce 1 update", next.bytes());
  traffic = next;
}

}  // namespace metaroce::secure
