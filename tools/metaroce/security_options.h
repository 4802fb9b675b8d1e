// Keys on the command line, and what a connection is worth, in words.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/endpoint.h"

namespace metaroce::tool {

struct SecurityOptions {
  std::string psk_file;
  std::string key_file;
  std::vector<std::string> peer_keys;
  std::string identity;
  std::string peer_name;
  std::string security;  ///< "", "required", "offered"
  std::vector<std::string> suites;
};

void add_security_options(CLI::App& app, SecurityOptions& options);
/// Reads the key files. Throws UsageError.
void set_security(const SecurityOptions& options, api::EndpointOptions& endpoint);

/// "plain: not encrypted, not authenticated" or "secured: AES-128-GCM, peer NAME".
std::string security_text(const api::ConnectionStatus& status);
nlohmann::json security_json(const api::ConnectionStatus& status);
std::string security_text(const api::Endpoint& endpoint, api::ConnectionHandle connection);
nlohmann::json security_json(const api::Endpoint& endpoint, api::ConnectionHandle connection);
/// The same for who listens: what peers are in for.
std::string policy_text(const SecurityOptions& options);

struct KeygenOptions {
  bool psk = false;
  bool x25519 = false;
  std::string out;
  std::string name;
  bool json = false;
};
void add_keygen(CLI::App& app, KeygenOptions& options);
int run_keygen(const KeygenOptions& options);

}  // namespace metaroce::tool
