#include "security_options.h"

#include <unistd.h>

#include <cstdio>

#include "cli_common.h"
#include "secure/key_file.h"
#include "secure/random.h"

namespace metaroce::tool {

using nlohmann::json;

namespace {

constexpr const char* kPlain = "plain: not encrypted, not authenticated";

constexpr const char* kKeygenExamples = R"(
EXAMPLES
  metaroce keygen --psk -o lab.psk       one key for both sides: copy the file over a safe way
  metaroce keygen --x25519 -o host.key > host.pub
                                         give host.pub to the peers, keep host.key

Files get mode 0600 and are never overwritten; see docs/keys.md. Exit codes: 0 done, 1 failed,
2 wrong arguments.)";

void must(const Expected<void, std::string>& done, const char* option) {
  if (!done) throw UsageError{std::string(option) + ": " + done.error()};
}

std::string host_name() {
  char name[secure::kMaxName + 1] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "host";
  return secure::valid_name(name) ? name : "host";
}

/// Which option says that security is meant, beside the files; "": none.
std::string first_without_keys(const SecurityOptions& options) {
  if (!options.security.empty()) return "--security";
  if (!options.identity.empty()) return "--identity";
  if (!options.peer_name.empty()) return "--peer-name";
  return options.suites.empty() ? "" : "--suites";
}

}  // namespace

void add_security_options(CLI::App& app, SecurityOptions& options) {
  app.add_option("--psk-file", options.psk_file,
                 "Secured by a pre-shared key of FILE (`metaroce keygen --psk`)")
      ->type_name("FILE");
  app.add_option("--key-file", options.key_file,
                 "Own X25519 key of FILE (`metaroce keygen --x25519`); needs --peer-key")
      ->type_name("FILE");
  app.add_option("--peer-key", options.peer_keys,
                 "A public key that is trusted: FILE, or the 64 hexadecimal digits")
      ->allow_extra_args(false)
      ->type_name("KEY");
  app.add_option("--identity", options.identity, "Which key of the files is used, by its name");
  app.add_option("--peer-name", options.peer_name, "Which of the peer keys the peer must have");
  app.add_option("--security", options.security,
                 "With keys: required (default), or offered: plain with peers that have none")
      ->check(CLI::IsMember({"required", "offered"}));
  app.add_option("--suites", options.suites,
                 "AEAD suites in order of preference: AES-128-GCM, AES-256-GCM, ChaCha20-Poly1305")
      ->delimiter(',');
}

void set_security(const SecurityOptions& options, api::EndpointOptions& endpoint) {
  secure::Config& config = endpoint.security;
  if (!options.psk_file.empty()) {
    must(secure::read_psk_file(options.psk_file, config), "--psk-file");
  }
  if (!options.key_file.empty()) {
    must(secure::read_own_key_file(options.key_file, config), "--key-file");
  }
  for (const std::string& key : options.peer_keys) {
    must(secure::read_peer_key(key, config), "--peer-key");
  }
  const bool files =
      !options.psk_file.empty() || !options.key_file.empty() || !options.peer_keys.empty();
  const std::string option = first_without_keys(options);
  if (!files && option.empty()) return;
  if (!config.has_keys()) {  // MR-SEC-021
    throw UsageError{(files ? "security" : option) +
                     " needs keys: --psk-file, or --key-file and --peer-key together"};
  }
  if (endpoint.seed != 0) {  // MR-SEC-022
    throw UsageError{
        "--seed cannot go with keys: keys made from a seed can be guessed; leave out "
        "--seed, or the keys"};
  }
  config.policy =
      options.security == "offered" ? secure::Policy::kOffered : secure::Policy::kRequired;
  if (!options.suites.empty()) config.suites.clear();
  for (const std::string& name : options.suites) {
    const secure::Suite suite = secure::suite_of(name);
    if (suite == secure::Suite::kNone) {
      throw UsageError{"--suites: \"" + name +
                       "\" is none of AES-128-GCM, AES-256-GCM, ChaCha20-Poly1305"};
    }
    config.suites.push_back(suite);
  }
  endpoint.identity = options.identity;
  endpoint.peer_key = options.peer_name;
  const std::string names = secure::unusable_names(config, endpoint.identity, endpoint.peer_key);
  if (!names.empty()) throw UsageError{"--identity, --peer-name: " + names};  // MR-SEC-020
}

std::string security_text(const api::ConnectionStatus& status) {
  if (status.suite == 0) return kPlain;
  return std::string("secured: ") + to_string(static_cast<secure::Suite>(status.suite)) +
         ", peer " + status.peer_name;
}

json security_json(const api::ConnectionStatus& status) {
  return {{"secured", status.suite != 0},
          {"suite", to_string(static_cast<secure::Suite>(status.suite))},
          {"peer", status.peer_name},
          {"text", security_text(status)},
          {"key_updates", status.key_updates}};
}

std::string security_text(const api::Endpoint& endpoint, api::ConnectionHandle connection) {
  api::ConnectionStatus status;
  endpoint.connection_status(connection, status);
  return security_text(status);
}

json security_json(const api::Endpoint& endpoint, api::ConnectionHandle connection) {
  api::ConnectionStatus status;
  endpoint.connection_status(connection, status);
  return security_json(status);
}

std::string policy_text(const SecurityOptions& options) {
  if (options.psk_file.empty() && options.key_file.empty()) return kPlain;
  return options.security == "offered" ? "secured with peers that have keys, plain with others"
                                       : "secured: plain peers are refused";
}

// ---- metaroce keygen ----------------------------------------------------------------------------

void add_keygen(CLI::App& app, KeygenOptions& options) {
  CLI::Option* psk = app.add_flag("--psk", options.psk, "A pre-shared key");
  app.add_flag("--x25519", options.x25519, "An X25519 key pair (default)")->excludes(psk);
  app.add_option("-o,--out", options.out, "New file for the key")->required()->type_name("FILE");
  app.add_option("--name", options.name,
                 "Name of the key, 1 to 64 letters, digits and .-_@: (default: the host's name)");
  app.add_flag("--json", options.json, "What is printed, as JSON");
  app.footer(kKeygenExamples);
}

int run_keygen(const KeygenOptions& options) {
  const std::string name = options.name.empty() ? host_name() : options.name;
  if (!secure::valid_name(name)) {
    throw UsageError{"--name: \"" + name + "\" must be 1 to 64 letters, digits and .-_@:"};
  }
  secure::SystemRandom random;
  const secure::Mode mode = options.psk ? secure::Mode::kPsk : secure::Mode::kX25519;
  const auto made = secure::write_new_key(options.out, mode, name, random);
  if (!made) {
    say("metaroce keygen: " + made.error());
    return kExitFailed;
  }
  if (options.json) {
    const json report{{"command", "keygen"},
                      {"kind", options.psk ? "psk" : "x25519"},
                      {"name", name},
                      {"file", options.out},
                      {"public", options.psk ? json() : json(made->substr(made->rfind(' ') + 1))}};
    std::printf("%s\n", report.dump(2).c_str());
  } else if (!made->empty()) {
    std::printf("%s\n", made->c_str());
  }
  return kExitOk;
}

}  // namespace metaroce::tool
