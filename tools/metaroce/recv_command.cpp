// metaroce recv: a folder that receives.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli_common.h"
#include "driver/common/clock.h"
#include "driver/common/resolve.h"
#include "driver/common/socket_address.h"
#include "file_names.h"
#include "receiver.h"

namespace metaroce::tool {
namespace {

using nlohmann::json;

/// As resolve_or_throw, but ":0" asks for a free port.
SocketAddress listen_address(const std::string& text) {
  const bool has_port = text.find(']') != std::string::npos ||
                        std::count(text.begin(), text.end(), ':') == 1;
  if (has_port && text.size() > 2 && text.compare(text.size() - 2, 2, ":0") == 0) {
    return resolve_or_throw(text.substr(0, text.size() - 2), 0).front();
  }
  return resolve_or_throw(text, wire::kBasePort).front();
}

std::vector<SocketAddress> listen_addresses(const RecvOptions& options, uint16_t& port) {
  port = wire::kBasePort;
  if (options.common.planes != 0) {
    if (options.listen.size() > 1) {
      throw UsageError{"with --planes, --listen may only be given once, for the port (:PORT)"};
    }
    if (options.listen.size() == 1) port = listen_address(options.listen[0]).port;
    return loopback_planes(options.common.planes, port);
  }
  std::vector<SocketAddress> planes;
  for (const std::string& text : options.listen) {
    const SocketAddress address = listen_address(text);
    if (!planes.empty() && address.port != planes[0].port) {
      throw UsageError{"--listen " + text + ": all addresses share one port, the first has " +
                       std::to_string(planes[0].port)};
    }
    planes.push_back(address);
    port = address.port;
  }
  if (planes.size() > kMaxPlanes) {
    throw UsageError{"at most " + std::to_string(kMaxPlanes) + " --listen addresses"};
  }
  return planes;
}

using Transports = std::vector<std::unique_ptr<EndpointTransport>>;

bool open_all(const RecvOptions& options, const Settings& settings, Transports& transports) {
  uint16_t port = 0;
  const std::vector<SocketAddress> planes = listen_addresses(options, port);
  for (unsigned worker = 0; worker < options.common.workers; ++worker) {
    api::EndpointOptions endpoint;
    endpoint.local = planes;
    endpoint.port = port == 0 ? 0 : static_cast<uint16_t>(port + worker);
    endpoint.accept = true;
    endpoint.settings = settings;
    endpoint.faults = make_faults(options.common);
    endpoint.faults.seed += 1000 + worker;
    endpoint.seed = options.common.seed == 0 ? 0 : options.common.seed + 1000 + worker;
    set_taps(options.common, worker, endpoint);
    set_security(options.common.security, endpoint);
    auto opened = api::Endpoint::open(endpoint);
    if (!opened) {
      say("metaroce recv: " + opened.error().text);
      return false;
    }
    if (worker == 0) port = (*opened)->port();
    if (worker == 0 && !(*opened)->buffer_warning().empty() && !options.common.quiet) {
      say("metaroce recv: warning: " + (*opened)->buffer_warning());
    }
    transports.push_back(std::make_unique<EndpointTransport>(
        std::move(*opened), EndpointTransport::Role::kReceiver, Duration{settings.death_timeout}));
    if (!options.common.series.empty()) transports.back()->record(milliseconds(5));
  }
  return true;
}

void print_session(const RecvOptions& options, const SessionResult& session) {
  if (options.common.verbose) {
    for (const ReceivedItem& item : session.items) {
      std::printf("%s  %s\n", item.stored ? to_hex(item.sha256).c_str() : "not stored",
                  printable(item.name).c_str());
    }
  }
  if (!session.text.empty()) say("metaroce recv: " + session.peer + ": " + session.text);
  if (options.common.quiet) return;
  const Duration time = session.end - session.begin;
  std::string line = fmt::format(
      "received {} {} from {}, {} bytes in {:.3f} s, {:.3f} Gbit/s", session.stored,
      session.stored == 1 ? "file" : "files", session.peer, session.bytes,
      static_cast<double>(time.ns) / 1e9, gigabits_per_second(session.bytes, time));
  if (session.stored == 1 && session.failed == 0) {
    line += ", sha256 " + to_hex(session.items[0].sha256);
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

json session_report(const SessionResult& session) {
  const Duration time = session.end - session.begin;
  json out{{"peer", session.peer},       {"complete", session.complete},
           {"error", session.text},      {"stored", session.stored},
           {"failed", session.failed},   {"bytes", session.bytes},
           {"begin_ns", session.begin.ns}, {"end_ns", session.end.ns}};
  out["seconds"] = static_cast<double>(time.ns) / 1e9;
  out["goodput_gbps"] = gigabits_per_second(session.bytes, time);
  out["sha256"] = nullptr;
  out["items"] = json::array();
  for (const ReceivedItem& item : session.items) {
    if (session.items.size() == 1 && item.stored) out["sha256"] = to_hex(item.sha256);
    out["items"].push_back({{"name", item.name},
                            {"bytes", item.bytes},
                            {"stored", item.stored},
                            {"sha256", item.stored ? json(to_hex(item.sha256)) : json()},
                            {"text", item.text}});
  }
  return out;
}

/// Runs until --once is served or a signal comes; appends what each session gave.
bool serve(const RecvOptions& options, TargetFolder folder, Transports& transports,
           json& sessions) {
  ReceiverOptions receiver_options;
  receiver_options.overwrite = options.overwrite == "always"   ? Overwrite::kAlways
                               : options.overwrite == "rename" ? Overwrite::kRename
                                                               : Overwrite::kNever;
  receiver_options.once = options.once;
  receiver_options.now = [] { return driver::now(); };
  receiver_options.log = [&](const std::string& line) {
    if (!options.common.quiet) say("metaroce recv: " + line);
  };
  std::vector<Transport*> pointers;
  for (auto& transport : transports) pointers.push_back(transport.get());
  Receiver receiver(receiver_options, std::move(folder), pointers);
  receiver.start();
  bool all_complete = true;
  Progress progress(options.common.quiet);
  const auto take = [&] {
    for (const SessionResult& session : receiver.take_results()) {
      print_session(options, session);
      sessions.push_back(session_report(session));
      all_complete &= session.complete;
      progress = Progress(options.common.quiet);
    }
  };
  bool stopped = false;
  while (!receiver.wait_finished(milliseconds(100))) {
    const char* signal = signal_received();
    if (signal != nullptr && !stopped) {
      receiver.stop(std::string("interrupted at the receiver (") + signal + ")");
      stopped = true;
    }
    take();
    if (receiver.open_sessions() != 0) {
      progress.update(driver::now(), receiver.bytes(), kUnknownSize);
    }
  }
  receiver.join();
  progress.clear();
  take();
  return all_complete;
}

}  // namespace

int run_recv(const RecvOptions& options) {
  const Settings settings = make_settings(options.common);
  make_faults(options.common);
  auto folder = TargetFolder::open(options.folder);
  if (!folder) throw UsageError{"--dir: " + folder.error()};
  install_signals();
  Transports transports;
  if (!open_all(options, settings, transports)) return kExitFailed;
  arm_signals();
  if (!options.common.quiet) {
    std::string ports;
    if (transports.size() > 1) {
      ports = fmt::format(" and the {} ports above", transports.size() - 1);
    }
    say("metaroce recv: listening on " + join_addresses(transports[0]->endpoint().local()) + ports +
        " (UDP), files go to " + options.folder + ", " + policy_text(options.common.security));
  }
  json sessions = json::array();
  const bool complete = serve(options, std::move(*folder), transports, sessions);
  if (options.common.verbose) say(path_table(transports));
  bool written = taps_complete("recv", transports);
  if (!options.common.json.empty()) {
    json report = transport_report(transports);
    report["command"] = "recv";
    report["security"] = policy_text(options.common.security);
    report["sessions"] = sessions;
    written &= write_json(options.common.json, report);
  }
  if (!options.common.series.empty()) written &= write_series(options.common.series, transports);
  if (signal_received() != nullptr) return kExitInterrupted;
  return complete && written ? kExitOk : kExitFailed;
}

}  // namespace metaroce::tool
