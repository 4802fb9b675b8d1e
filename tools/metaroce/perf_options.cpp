#include "perf_options.h"

#include <fmt/format.h>

#include <charconv>

#include "driver/common/resolve.h"
#include "wire/types.h"

namespace metaroce::tool {
namespace {

constexpr const char* kPerfExamples = R"(
Examples:
  metaroce perf --server                        serves one client after the other, and several
  metaroce perf 10.0.0.2                        Writes for 10 s, a line a second
  metaroce perf 10.0.0.2 --lat -s 64            round trips of 64-byte messages
  metaroce perf 10.0.0.2 --op send -a           every size from 2 bytes to 8 MiB
  metaroce perf 10.0.0.2 -s 4K:1M -R --json -   from the server, as JSON
  metaroce perf 10.0.1.2,10.0.2.2 --local 10.0.1.1,10.0.2.1

Gbit/s are 10^9 bits of payload; sizes K, M, G are powers of 1024; GB are 10^9 bytes.
Exit codes: 0 measured, 1 failed (also: verification), 2 wrong arguments, 3 cannot connect,
130 interrupted (the summary is printed all the same). docs/perf.md tells what is measured.)";

constexpr const char* kPingExamples = R"(
Examples:
  metaroce ping 10.0.0.2                 any MetaRoCE endpoint answers: perf --server, recv, ...
  metaroce ping 10.0.0.2 -c 10 -i 0.2 -q
  metaroce ping 10.0.0.2 --paths         the round-trip time and state of every path
  metaroce ping 10.0.0.2 -s 1000         a message there and back; needs `metaroce perf --server`

Exit codes: 0 answered, 1 not answered, 2 another error.)";

void add_peer(CLI::App& app, PeerOptions& options) {
  app.add_option("--local", options.local, "Addresses of this host, a plane each")->delimiter(',');
  app.add_option("--planes", options.common.planes,
                 "Planes on this host: 127.0.1.1, 127.0.2.1, ... (for trying things out)")
      ->check(CLI::Range(1u, kMaxPlanes));
  app.add_option("--paths-per-plane", options.common.paths_per_plane,
                 "Paths (UDP source ports) opened on each plane")
      ->check(CLI::Range(1u, 64u));
  app.add_option("--set", options.common.settings,
                 "Change a setting, NAME=VALUE; `metaroce settings` lists them")
      ->allow_extra_args(false);
  app.add_option("--fault", options.common.faults,
                 "Inject faults, for example drop=1%,reorder=1%:50us");
  app.add_option("--seed", options.common.seed,
                 "Seed of ids and ports, not with keys; 0: of the system");
  app.add_option("--json", options.common.json, "Write the figures to FILE; -: standard output")
      ->type_name("FILE");
  app.add_option("--record", options.common.record,
                 "Write every call of the engine to FILE, for `metaroce replay`")
      ->type_name("FILE");
  app.add_option("--pcap", options.common.pcap, "Write every datagram to FILE (pcapng)")
      ->type_name("FILE");
  add_security_options(app, options.common.security);
  app.add_flag("-q,--quiet", options.common.quiet, "Only the summary and errors");
  app.add_flag("-v,--verbose", options.common.verbose, "More about the connection");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == ',') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

}  // namespace

void add_perf(CLI::App& app, PerfOptions& options) {
  app.add_option("host", options.peer.host,
                 "HOST[:PORT] of the server; several with commas between: one a plane");
  app.add_flag("--server", options.server, "Serve clients until a signal comes");
  app.add_flag("--once", options.once, "Serve one client, then end");
  app.add_option("-p,--port", options.peer.port,
                 "UDP port of the server; with --server the one to serve on, 0: a free one")
      ->capture_default_str();
  app.add_option("--memory", options.memory, "Payload memory a client may ask of the server")
      ->capture_default_str();
  app.add_option("--op", options.op, "What is measured: write, write-imm, send, read or fetch-add")
      ->check(CLI::IsMember({"write", "write-imm", "send", "read", "fetch-add"}))
      ->capture_default_str();
  CLI::Option* bw = app.add_flag("--bw", options.bw, "Goodput, as much as possible (default)");
  app.add_flag("--lat", options.lat,
               "Latency: one message at a time, there and back (write: until it is accepted; "
               "read and fetch-add: until the answer is here)")
      ->excludes(bw);
  CLI::Option* size = app.add_option(
      "-s,--size", options.size,
      "Bytes of a message, or FROM:TO for its doublings (default: 64K; with --lat 64)");
  app.add_flag("-a,--all", options.all, "Sizes from 2 bytes to 8 MiB")->excludes(size);
  CLI::Option* time = app.add_option("-t,--time", options.seconds,
                                     "Seconds to measure (default: 10; 1 a size of a sweep)");
  time->check(CLI::Range(0.001, 604800.0));
  app.add_option("-n,--count", options.count, "Messages to measure, instead of a time")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 48))
      ->excludes(time);
  app.add_option("-i,--interval", options.interval,
                 "Seconds between lines (default: 1, in a sweep none); 0: none")
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--warmup", options.warmup, "Seconds before the figures begin")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  CLI::Option* reverse = app.add_flag("-R,--reverse", options.reverse, "The server sends");
  app.add_flag("--bidir", options.both, "Both send")->excludes(reverse);
  app.add_option("-P,--streams", options.streams, "Streams the messages are spread over")
      ->check(CLI::Range(1u, kMostPerfStreams))
      ->capture_default_str();
  app.add_option("-d,--depth", options.depth,
                 "Messages of a stream under way (default: 16; with --lat 1)")
      ->check(CLI::Range(1u, kMostPerfDepth));
  app.add_flag("--verify", options.verify, "Check what arrives");
  add_peer(app, options.peer);
  app.footer(kPerfExamples);
}

void add_ping(CLI::App& app, PingOptions& options) {
  app.add_option("host", options.peer.host, "HOST[:PORT]; several with commas between: one a plane")
      ->required();
  app.add_option("-p,--port", options.peer.port, "UDP port of the peer")->capture_default_str();
  app.add_option("-c,--count", options.count, "Messages to send; without it until a signal")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32));
  app.add_option("-i,--interval", options.interval, "Seconds between messages; 0: no wait")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("-s,--size", options.size,
                 "Bytes of a message; 0 is answered by the transport of any endpoint, more needs "
                 "`metaroce perf --server`")
      ->capture_default_str();
  app.add_option("--op", options.op,
                 "send: the peer's program answers; read, fetch-add: its transport does")
      ->check(CLI::IsMember({"send", "read", "fetch-add"}))
      ->capture_default_str();
  app.add_option("-W,--timeout", options.timeout,
                 "Seconds to wait for an answer to the set-up and to each message")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_flag("--paths", options.paths, "After each answer the state of every path");
  add_peer(app, options.peer);
  app.footer(kPingExamples);
}

uint64_t parse_size(const std::string& text, const std::string& option) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(static_cast<const char*>(end), text.data() + text.size());
  unsigned shift = 0;
  if (unit == "K" || unit == "k") shift = 10;
  if (unit == "M" || unit == "m") shift = 20;
  if (unit == "G" || unit == "g") shift = 30;
  if (error != std::errc() || (shift == 0 && !unit.empty()) || value > (UINT64_MAX >> shift)) {
    throw UsageError{option + " " + text + ": write a number of bytes, with K, M or G if you like"};
  }
  return value << shift;
}

std::vector<uint64_t> parse_sizes(const std::string& text) {
  const size_t colon = text.find(':');
  const uint64_t first = parse_size(text.substr(0, colon), "--size");
  const uint64_t last =
      colon == std::string::npos ? first : parse_size(text.substr(colon + 1), "--size");
  if (first < 1 || last > kMostPerfSize) {
    throw UsageError{fmt::format("--size {}: messages have 1 byte to 1G", text)};
  }
  if (last < first) throw UsageError{"--size " + text + ": FROM is larger than TO"};
  std::vector<uint64_t> sizes;
  for (uint64_t size = first; size < last; size *= 2) sizes.push_back(size);
  sizes.push_back(last);
  return sizes;
}

std::vector<SocketAddress> local_planes(const PeerOptions& options) {
  if (options.common.planes != 0 && !options.local.empty()) {
    throw UsageError{"--local and --planes exclude each other"};
  }
  if (options.common.planes != 0) return loopback_planes(options.common.planes, 0);
  std::vector<SocketAddress> planes;
  for (const std::string& text : options.local) {
    planes.push_back(resolve_or_throw(text, 0).front());
  }
  return planes;
}

std::vector<std::vector<SocketAddress>> remote_planes(const PeerOptions& options) {
  const auto hosts = split(options.host);
  const auto first = resolve_or_throw(hosts.front(), options.port);
  if (options.common.planes != 0) {
    for (const SocketAddress& address : first) {
      if (address.family != 4 || address.bytes[0] != 127) continue;
      return {loopback_planes(options.common.planes, address.port)};
    }
    throw UsageError{
        "--planes is for servers on this host (127.0.1.1); name the planes of another "
        "host as A,B and the own ones with --local"};
  }
  if (hosts.size() == 1) {
    std::vector<std::vector<SocketAddress>> out;
    for (const SocketAddress& address : first) out.push_back({address});
    return out;
  }
  if (hosts.size() != options.local.size()) {
    throw UsageError{
        fmt::format("{} addresses of the server, but {} with --local: one a plane on "
                    "both sides",
                    hosts.size(), options.local.size())};
  }
  std::vector<SocketAddress> planes;
  for (const std::string& host : hosts) {
    planes.push_back(resolve_or_throw(host, first.front().port).front());
  }
  return {planes};
}

int run_perf(const PerfOptions& options) {
  if (options.server) {
    if (!options.peer.host.empty()) {
      throw UsageError{"--server takes no host; name addresses of this host with --local"};
    }
    return run_perf_server(options);
  }
  if (options.peer.host.empty()) throw UsageError{"give the HOST of a server, or --server"};
  if (options.once) throw UsageError{"--once goes with --server"};
  return run_perf_client(options);
}

}  // namespace metaroce::tool
