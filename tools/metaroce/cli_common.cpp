#include "cli_common.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "driver/common/resolve.h"
#include "driver/common/socket_address.h"

namespace metaroce::tool {

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--planes", options.planes,
                 "Planes on this host: 127.0.1.1, 127.0.2.1, ... (for trying things out)")
      ->check(CLI::Range(1u, kMaxPlanes));
  app.add_option("--paths-per-plane", options.paths_per_plane,
                 "Paths (UDP source ports) opened on each plane")
      ->check(CLI::Range(1u, 64u));
  app.add_option("--workers", options.workers,
                 "Connections at consecutive ports, a thread each; the same on both sides")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  app.add_option("--set", options.settings,
                 "Change a setting, NAME=VALUE; `metaroce settings` lists them")
      ->allow_extra_args(false);
  app.add_option("--fault", options.faults,
                 "Inject faults, for example drop=1%,dup=0.1%,reorder=1%:50us,corrupt=0.01% or "
                 "blackhole@2s-5s:plane=1:dir=both");
  app.add_option("--seed", options.seed, "Seed of ids and ports, not with keys; 0: of the system");
  app.add_option("--json", options.json, "Write the figures to FILE")->type_name("FILE");
  app.add_option("--series", options.series,
                 "Write time, bytes and injected losses every 5 ms to FILE (tab-separated)")
      ->type_name("FILE");
  app.add_option("--record", options.record,
                 "Write every call of the engine to FILE, for `metaroce replay`")
      ->type_name("FILE");
  app.add_option("--pcap", options.pcap, "Write every datagram to FILE (pcapng, for Wireshark)")
      ->type_name("FILE");
  app.add_option("--trace", options.trace, "Write every event of the engine to FILE (qlog-like)")
      ->type_name("FILE");
  add_security_options(app, options.security);
  app.add_flag("-q,--quiet", options.quiet, "Only errors");
  app.add_flag("-v,--verbose", options.verbose, "Every item and the state of every path");
}

// ---- settings -----------------------------------------------------------------------------------

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

void set_or_throw(Settings& settings, const std::string& name, const std::string& value,
                  const std::string& where) {
  const auto set = set_setting(settings, name, value);
  if (set) return;
  int count = 0;
  const SettingInfo* table = setting_table(count);
  const auto* info =
      std::find_if(table, table + count, [&](const SettingInfo& s) { return s.name == name; });
  switch (set.error()) {
    case SettingError::kUnknownName: {
      const std::string near = suggest_setting(name);
      throw UsageError{where + ": there is no setting \"" + name + "\"" +
                       (near.empty() ? "" : "; did you mean " + near + "?") +
                       " (metaroce settings lists them)"};
    }
    case SettingError::kNotANumber:
      throw UsageError{where + ": \"" + value + "\" is not a whole number"};
    case SettingError::kOutOfRange:
      throw UsageError{fmt::format("{}: {} must be {} to {} {}", where, name, info->minimum,
                                   info->maximum, info->unit)};
  }
}

}  // namespace

std::string suggest_setting(const std::string& name) {
  int count = 0;
  const SettingInfo* table = setting_table(count);
  std::string best;
  size_t best_distance = name.size() / 3 + 2;
  for (int i = 0; i < count; ++i) {
    const size_t distance = edit_distance(name, table[i].name);
    if (distance < best_distance) {
      best_distance = distance;
      best = table[i].name;
    }
  }
  return best;
}

Settings make_settings(const CommonOptions& options) {
  Settings settings;
  int count = 0;
  const SettingInfo* table = setting_table(count);
  for (int i = 0; i < count; ++i) {
    std::string variable = "METAROCE_" + std::string(table[i].name);
    for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (const char* value = std::getenv(variable.c_str())) {
      set_or_throw(settings, std::string(table[i].name), value, "environment " + variable);
    }
  }
  for (const std::string& text : options.settings) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) throw UsageError{"--set " + text + ": write NAME=VALUE"};
    set_or_throw(settings, text.substr(0, equals), text.substr(equals + 1), "--set " + text);
  }
  if (options.paths_per_plane != 0) settings.paths_per_plane = options.paths_per_plane;
  return settings;
}

driver::FaultSpec make_faults(const CommonOptions& options) {
  auto spec = driver::parse_faults(options.faults);
  if (!spec) throw UsageError{"--fault: " + spec.error().text};
  return *spec;
}

void set_taps(const CommonOptions& options, unsigned worker, api::EndpointOptions& endpoint) {
  const auto name = [worker](const std::string& file) {
    return file.empty() || worker == 0 ? file : file + "." + std::to_string(worker);
  };
  endpoint.record = name(options.record);
  endpoint.pcap = name(options.pcap);
  endpoint.trace = name(options.trace);
}

bool taps_complete(const std::string& command,
                   const std::vector<std::unique_ptr<EndpointTransport>>& transports) {
  bool complete = true;
  for (const auto& transport : transports) {
    const std::string error = transport->endpoint().telemetry_error();
    if (error.empty()) continue;
    say("metaroce " + command + ": " + error);
    complete = false;
  }
  return complete;
}

// ---- addresses ----------------------------------------------------------------------------------

std::vector<SocketAddress> loopback_planes(unsigned count, uint16_t port) {
  std::vector<SocketAddress> planes;
  for (unsigned i = 1; i <= count; ++i) {
    planes.push_back(driver::parse_address("127.0." + std::to_string(i) + ".1", port));
  }
  return planes;
}

std::vector<SocketAddress> resolve_or_throw(const std::string& text, uint16_t port) {
  auto resolved = driver::resolve(text, port);
  if (!resolved) throw UsageError{resolved.error().text};
  return *resolved;
}

std::string join_addresses(const std::vector<SocketAddress>& addresses) {
  std::string text;
  for (const SocketAddress& address : addresses) {
    if (!text.empty()) text += ", ";
    text += driver::to_string(address);
  }
  return text;
}

// ---- a person at the terminal -------------------------------------------------------------------

namespace {

std::mutex terminal_mutex;
bool progress_line_open = false;

}  // namespace

void say(const std::string& line) {
  const std::lock_guard lock(terminal_mutex);
  if (progress_line_open) std::fputs("\r\x1b[K", stderr);
  progress_line_open = false;
  std::fputs((line + "\n").c_str(), stderr);
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::update(Time now, uint64_t bytes, uint64_t total) {
  if (quiet_) return;
  if (!started_) {
    started_ = true;
    begin_ = last_ = now;
    first_bytes_ = last_bytes_ = bytes;
    return;
  }
  const Duration since = now - last_;
  if (since < (terminal_ ? milliseconds(200) : seconds(2))) return;
  const double rate =
      static_cast<double>(bytes - last_bytes_) * 1e9 / static_cast<double>(since.ns);
  std::string line = human_bytes(bytes);
  if (total != kUnknownSize && total != 0) {
    line += fmt::format(" of {} ({:.0f} %)", human_bytes(total),
                        100.0 * static_cast<double>(bytes) / static_cast<double>(total));
  }
  line += fmt::format(", {:.2f} Gbit/s", rate * 8 / 1e9);
  if (total != kUnknownSize && rate > 0 && total > bytes) {
    line += fmt::format(", {:.0f} s left", static_cast<double>(total - bytes) / rate);
  }
  last_ = now;
  last_bytes_ = bytes;
  if (!terminal_) return say(line);
  const std::lock_guard lock(terminal_mutex);
  std::fputs(("\r\x1b[K" + line).c_str(), stderr);
  progress_line_open = true;
}

void Progress::clear() {
  const std::lock_guard lock(terminal_mutex);
  if (progress_line_open) std::fputs("\r\x1b[K", stderr);
  progress_line_open = false;
}

// ---- signals ------------------------------------------------------------------------------------

namespace {

std::atomic<int> received_signal{0};
std::atomic<bool> armed{false};

void on_signal(int number) {
  if (!armed.load() || received_signal.exchange(number) != 0) ::_exit(kExitInterrupted);
}

}  // namespace

void install_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void arm_signals() { armed.store(true); }

const char* signal_received() {
  switch (received_signal.load()) {
    case 0: return nullptr;
    case SIGINT: return "SIGINT";
    default: return "SIGTERM";
  }
}

}  // namespace metaroce::tool
