// metaroce send: files, trees or standard input to a receiver.
#include <fmt/format.h>
#include <sys/random.h>

#include <cstdio>

#include "cli_common.h"
#include "driver/common/clock.h"
#include "driver/common/resolve.h"
#include "driver/common/socket_address.h"
#include "file_names.h"
#include "sender.h"

namespace metaroce::tool {
namespace {

using nlohmann::json;

struct Targets {
  std::vector<SocketAddress> local;
  /// Tried in this order until one answers: each is a list with an address a plane.
  std::vector<std::vector<SocketAddress>> remote;
};

Targets make_targets(const SendOptions& options) {
  Targets targets;
  const auto host = resolve_or_throw(options.host, wire::kBasePort);
  if (!options.plane_pairs.empty() && options.common.planes != 0) {
    throw UsageError{"--plane and --planes exclude each other"};
  }
  if (options.common.planes != 0) {
    for (const SocketAddress& address : host) {
      if (address.family != 4 || address.bytes[0] != 127) continue;
      targets.local = loopback_planes(options.common.planes, 0);
      targets.remote = {loopback_planes(options.common.planes, address.port)};
      return targets;
    }
    throw UsageError{"--planes is for receivers on this host (127.0.1.1); name the planes of "
                     "another host with --plane LOCAL=REMOTE"};
  }
  if (!options.plane_pairs.empty()) {
    targets.remote.emplace_back();
    for (const std::string& pair : options.plane_pairs) {
      const size_t equals = pair.find('=');
      if (equals == std::string::npos) {
        throw UsageError{"--plane " + pair + ": write LOCAL=REMOTE, two addresses"};
      }
      targets.local.push_back(resolve_or_throw(pair.substr(0, equals), 0).front());
      targets.remote[0].push_back(
          resolve_or_throw(pair.substr(equals + 1), host.front().port).front());
      if (targets.local.back().family != targets.remote[0].back().family) {
        throw UsageError{"--plane " + pair + ": one address is IPv4 and the other IPv6"};
      }
    }
    return targets;
  }
  for (const SocketAddress& address : host) targets.remote.push_back({address});
  return targets;
}

std::unique_ptr<EndpointTransport> open_transport(const SendOptions& options,
                                                  const Targets& targets, const Settings& settings,
                                                  unsigned worker, std::string& error) {
  api::EndpointOptions endpoint;
  endpoint.local = targets.local;
  endpoint.settings = settings;
  endpoint.faults = make_faults(options.common);
  endpoint.faults.seed += worker;
  endpoint.seed = options.common.seed == 0 ? 0 : options.common.seed + worker;
  set_taps(options.common, worker, endpoint);
  set_security(options.common.security, endpoint);
  auto opened = api::Endpoint::open(endpoint);
  if (!opened) {
    error = opened.error().text;
    return nullptr;
  }
  auto transport = std::make_unique<EndpointTransport>(
      std::move(*opened), EndpointTransport::Role::kSender, Duration{settings.death_timeout});
  if (!options.common.series.empty()) transport->record(milliseconds(5));
  return transport;
}

struct Connected {
  std::vector<std::unique_ptr<EndpointTransport>> transports;
  std::vector<Sender::Connection> connections;
  std::vector<SocketAddress> remote;
  int exit_code = kExitOk;
};

Connected connect_all(const SendOptions& options, const Targets& targets,
                      const Settings& settings) {
  Connected result;
  std::vector<std::vector<SocketAddress>> candidates = targets.remote;
  for (unsigned worker = 0; worker < options.common.workers; ++worker) {
    std::string error;
    auto transport = open_transport(options, targets, settings, worker, error);
    if (!transport) {
      say("metaroce send: " + error);
      result.exit_code = kExitFailed;
      return result;
    }
    Link link = 0;
    for (std::vector<SocketAddress> remote : candidates) {
      for (SocketAddress& address : remote) {
        address.port = static_cast<uint16_t>(address.port + worker);
      }
      const auto connected = transport->connect(remote, Duration{settings.connect_timeout});
      if (connected) {
        link = *connected;
        // The further connections go to the address that answered.
        for (SocketAddress& a : remote) a.port = static_cast<uint16_t>(a.port - worker);
        candidates = {remote};
        break;
      }
      error = connected.error().text;
      if (remote != candidates.back()) say("metaroce send: " + error);
    }
    if (link == 0) {
      say("metaroce send: cannot connect: " + error);
      if (worker != 0) say("metaroce send: the receiver needs --workers too, with the same number");
      result.exit_code = kExitNoConnection;
      return result;
    }
    if (!transport->endpoint().buffer_warning().empty() && !options.common.quiet) {
      say("metaroce send: warning: " + transport->endpoint().buffer_warning());
    }
    result.connections.push_back({transport.get(), link});
    result.transports.push_back(std::move(transport));
  }
  result.remote = candidates.front();
  return result;
}

json result_report(const SendResult& result, const std::vector<std::string>& warnings,
                   std::vector<std::unique_ptr<EndpointTransport>>& transports) {
  json report = transport_report(transports);
  for (const std::string& warning : warnings) report["warnings"].push_back(warning);
  const Duration time = result.end - result.begin;
  report["command"] = "send";
  report["complete"] = result.complete;
  report["error"] = result.text;
  report["bytes"] = result.bytes;
  report["seconds"] = static_cast<double>(time.ns) / 1e9;
  report["goodput_gbps"] = gigabits_per_second(result.bytes, time);
  report["stored"] = result.stored;
  report["failed"] = result.failed;
  report["begin_ns"] = result.begin.ns;
  report["end_ns"] = result.end.ns;
  report["sha256"] = nullptr;
  report["items"] = json::array();
  for (const SentItem& item : result.items) {
    if (result.items.size() == 1 && item.stored) report["sha256"] = to_hex(item.sha256);
    report["items"].push_back({{"name", item.name},
                               {"bytes", item.bytes},
                               {"stored", item.stored},
                               {"sha256", item.stored ? json(to_hex(item.sha256)) : json()},
                               {"text", item.text}});
  }
  return report;
}

void print_result(const SendOptions& options, const SendResult& result) {
  if (options.common.verbose) {
    for (const SentItem& item : result.items) {
      std::printf("%s  %s\n", item.stored ? to_hex(item.sha256).c_str() : "not stored",
                  printable(item.name).c_str());
    }
  }
  if (!result.text.empty()) say("metaroce send: " + result.text);
  if (options.common.quiet) return;
  const Duration time = result.end - result.begin;
  std::string line =
      fmt::format("sent {} {}, {} bytes in {:.3f} s, {:.3f} Gbit/s", result.stored,
                  result.stored == 1 ? "item" : "items", result.bytes,
                  static_cast<double>(time.ns) / 1e9, gigabits_per_second(result.bytes, time));
  if (result.items.size() == 1 && result.stored == 1) {
    line += ", sha256 " + to_hex(result.items[0].sha256);
  }
  std::printf("%s\n", line.c_str());
}

SendResult transfer(const SendOptions& options, std::vector<SourceItem> items,
                    const std::vector<Sender::Connection>& connections) {
  SenderOptions sender_options;
  uint64_t session[2] = {};
  if (::getrandom(session, sizeof session, 0) != static_cast<ssize_t>(sizeof session)) {
    session[0] = static_cast<uint64_t>(driver::now().ns);
  }
  sender_options.session_high = session[0];
  sender_options.session_low = session[1];
  sender_options.now = [] { return driver::now(); };
  sender_options.log = [](const std::string& line) { say("metaroce send: " + line); };
  Sender sender(sender_options, std::move(items), connections);
  sender.start();
  Progress progress(options.common.quiet);
  while (!sender.wait_finished(milliseconds(100))) {
    if (const char* signal = signal_received()) {
      sender.stop(std::string("interrupted at the sender (") + signal + ")");
    }
    progress.update(driver::now(), sender.bytes_sent(), sender.bytes_total());
  }
  SendResult result = sender.join();
  progress.clear();
  return result;
}

}  // namespace

int run_send(const SendOptions& options) {
  const Settings settings = make_settings(options.common);
  make_faults(options.common);
  const Targets targets = make_targets(options);
  std::vector<std::string> warnings;
  auto items = list_sources(options.paths, options.stdin_name, [&](const std::string& warning) {
    warnings.push_back(warning);
    if (!options.common.quiet) say("metaroce send: warning: " + warning);
  });
  if (!items) {
    say("metaroce send: " + items.error());
    return kExitFailed;
  }
  install_signals();
  Connected connected = connect_all(options, targets, settings);
  if (connected.exit_code != kExitOk) return connected.exit_code;
  const Link link = connected.connections.front().link;
  const api::Endpoint& endpoint = connected.transports.front()->endpoint();
  const json security = security_json(endpoint, link);
  if (!options.common.quiet) {
    say("metaroce send: connected to " + join_addresses(connected.remote) + ", " +
        security["text"].get<std::string>());
  }
  arm_signals();
  const SendResult result = transfer(options, std::move(*items), connected.connections);
  print_result(options, result);
  if (options.common.verbose) say(path_table(connected.transports));
  bool written = taps_complete("send", connected.transports);
  if (!options.common.json.empty()) {
    json report = result_report(result, warnings, connected.transports);
    report["security"] = security;
    written &= write_json(options.common.json, report);
  }
  if (!options.common.series.empty()) {
    written &= write_series(options.common.series, connected.transports);
  }
  if (signal_received() != nullptr && !result.complete) return kExitInterrupted;
  return result.complete && written ? kExitOk : kExitFailed;
}

}  // namespace metaroce::tool
