// Who proves what to whom while a connection is set up (MR-SEC-009 to 011).
#pragma once

#include <memory>
#include <string>

#include "secure/config.h"
#include "wire/handshake_packet.h"

namespace metaroce::connection {

/// What an attempt offers, and what is needed until the connection is open.
struct SecureSetup {
  secure::Mode mode = secure::Mode::kNone;
  const secure::PskIdentity* psk = nullptr;
  const secure::OwnKey* own = nullptr;
  const secure::PeerKey* peer = nullptr;  ///< the only one that will do; null: any that is pinned
  secure::Suite suite = secure::Suite::kNone;
  secure::Secret ephemeral;
};

/// The keys for an attempt by name: `identity` one of ours (a pre-shared key or an own key, empty:
/// the first), `peer` a pinned key (empty: any). Null without keys; `known` is false for a name
/// that is none.
std::unique_ptr<SecureSetup> choose_security(const secure::Config& config,
                                             const std::string& identity, const std::string& peer,
                                             bool& known);

/// What a responder makes of a HELLO. Looks names up, computes nothing (MR-SEC-011).
struct SecurePlan {
  bool secured = false;
  /// kOther: not refused.
  wire::SetupRefusal refusal = wire::SetupRefusal::kOther;
  SecureSetup setup;
};
/// False for a HELLO that nobody honest sends: an offer with an ephemeral key of low order, or one
/// that is not as long as it must be (MR-WIRE-063). `bytes` without the trailer.
bool is_worth_a_key(const wire::HelloPacket& hello, size_t bytes);
SecurePlan plan_security(const secure::Config& config, const wire::HelloPacket& hello);

}  // namespace metaroce::connection
