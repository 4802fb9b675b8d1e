// Diffie-Hellman over Curve25519 (RFC 7748).
#pragma once

#include "secure/secret.h"

namespace metaroce::secure {

/// The public key that belongs to 32 random bytes.
PublicKey x25519_public(const Secret& private_key);
/// One of the points that yield zero with every private key. Cheap, unlike finding out by x25519().
bool is_low_order(const PublicKey& key);
/// False when the result is all zero, which a peer can bring about by a bad public key.
bool x25519(const Secret& private_key, const PublicKey& peer, Secret& shared);

}  // namespace metaroce::secure
