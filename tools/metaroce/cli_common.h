// What the subcommands share: options, settings, planes, signals, reports.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/settings.h"
#include "driver/common/fault_spec.h"
#include "endpoint_transport.h"
#include "security_options.h"

namespace metaroce::tool {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoConnection = 3;
inline constexpr int kExitUnreadable = 4;  ///< a file that is damaged or no recording
inline constexpr int kExitInterrupted = 130;

/// A wrong argument: exit code 2.
struct UsageError {
  std::string text;
};

struct CommonOptions {
  std::vector<std::string> settings;  ///< name=value
  std::string faults;
  std::string json;
  std::string series;
  std::string record;
  std::string pcap;
  std::string trace;
  SecurityOptions security;
  uint64_t seed = 0;
  unsigned planes = 0;
  unsigned paths_per_plane = 0;
  unsigned workers = 1;
  bool quiet = false;
  bool verbose = false;
};

void add_common_options(CLI::App& app, CommonOptions& options);

/// Defaults, then METAROCE_<NAME> of the environment, then --set. Throws UsageError.
Settings make_settings(const CommonOptions& options);
/// --record, --pcap and --trace; each further worker adds its number to the file names.
void set_taps(const CommonOptions& options, unsigned worker, api::EndpointOptions& endpoint);
/// Says what ended a recording or capture early; false if something did.
bool taps_complete(const std::string& command,
                   const std::vector<std::unique_ptr<EndpointTransport>>& transports);
/// Throws UsageError.
driver::FaultSpec make_faults(const CommonOptions& options);
/// Planes on one host: 127.0.P.1 for P = 1 to `count`.
std::vector<SocketAddress> loopback_planes(unsigned count, uint16_t port);
/// One address from "ADDR[:PORT]", "[V6]:PORT" or a name. Throws UsageError.
std::vector<SocketAddress> resolve_or_throw(const std::string& text, uint16_t port);
std::string join_addresses(const std::vector<SocketAddress>& addresses);

/// Settings closest to a mistyped name, or "".
std::string suggest_setting(const std::string& name);

// ---- a person at the terminal -------------------------------------------------------------------

/// One line on standard error, whole even when several threads speak.
void say(const std::string& line);
/// A progress line: rewritten on a terminal every 200 ms, elsewhere a line every 2 s.
class Progress {
 public:
  explicit Progress(bool quiet);
  /// `total` may be kUnknownSize.
  void update(Time now, uint64_t bytes, uint64_t total);
  void clear();

 private:
  bool quiet_;
  bool terminal_;
  bool shown_ = false;
  bool started_ = false;
  Time begin_{};
  Time last_{};
  uint64_t first_bytes_ = 0;
  uint64_t last_bytes_ = 0;
};
std::string human_bytes(uint64_t bytes);

/// SIGINT and SIGTERM: until armed they end the process with 130 at once, then they are noted;
/// a second one ends the process.
void install_signals();
void arm_signals();
/// The name of the signal that came, or null.
const char* signal_received();

// ---- reports ------------------------------------------------------------------------------------

double gigabits_per_second(uint64_t bytes, Duration time);
/// Figures of all transports: packets, paths, faults and drops.
nlohmann::json transport_report(std::vector<std::unique_ptr<EndpointTransport>>& transports);
std::string path_table(std::vector<std::unique_ptr<EndpointTransport>>& transports);
/// Return false after a line on standard error.
bool write_json(const std::string& path, const nlohmann::json& report);
bool write_series(const std::string& path,
                  const std::vector<std::unique_ptr<EndpointTransport>>& transports);

// ---- the subcommands ----------------------------------------------------------------------------

struct SendOptions {
  CommonOptions common;
  std::string host;
  std::vector<std::string> paths;
  std::vector<std::string> plane_pairs;  ///< LOCAL=REMOTE
  std::string stdin_name = "stdin";
};
struct RecvOptions {
  CommonOptions common;
  std::vector<std::string> listen;
  std::string folder = ".";
  std::string overwrite = "never";
  bool once = false;
};
struct StatOptions {
  bool paths = false;
  bool json = false;
  std::optional<double> watch;  ///< seconds between two tables
  std::vector<uint32_t> pids;
  std::vector<std::string> peers;
};
struct ReplayOptions {
  std::string file;
  std::string pcap;
  std::string trace;
  bool json = false;
};
struct SettingsOptions {
  bool json = false;
  bool markdown = false;
};

int run_send(const SendOptions& options);
int run_recv(const RecvOptions& options);
int run_settings(const SettingsOptions& options);
int run_replay(const ReplayOptions& options);
int run_stat(const StatOptions& options);

}  // namespace metaroce::tool
