// What `metaroce perf` and `metaroce ping` are asked for.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli_common.h"
#include "perf_protocol.h"
#include "wire/types.h"

namespace metaroce::tool {

/// How to reach a peer: shared by perf and ping.
struct PeerOptions {
  CommonOptions common;
  std::string host;                 ///< HOST[:PORT], or one a plane with commas between
  uint16_t port = wire::kBasePort;  ///< unless it stands behind HOST
  std::vector<std::string> local;   ///< an address a plane
};

struct PerfOptions {
  PeerOptions peer;
  bool server = false;
  bool once = false;
  std::string op = "write";
  bool bw = false;
  bool lat = false;
  bool reverse = false;
  bool both = false;
  bool all = false;
  bool verify = false;
  std::string size;
  double seconds = 0;
  uint64_t count = 0;
  double interval = -1;  ///< below 0: not given
  double warmup = 0.2;
  uint32_t streams = 1;
  uint32_t depth = 0;  ///< 0: by the kind of run
  std::string memory = "1G";
};

struct PingOptions {
  PeerOptions peer;
  uint64_t count = 0;  ///< 0: until a signal
  double interval = 1;
  std::string op = "send";
  std::string size = "0";  ///< fetch-add has 8 whatever stands here
  double timeout = 2;
  bool paths = false;
};

void add_perf(CLI::App& app, PerfOptions& options);
void add_ping(CLI::App& app, PingOptions& options);
int run_perf(const PerfOptions& options);
int run_ping(const PingOptions& options);
int run_perf_server(const PerfOptions& options);
int run_perf_client(const PerfOptions& options);

/// "64", "64K", "1M", "1G" (powers of 1024). Throws UsageError.
uint64_t parse_size(const std::string& text, const std::string& option);
/// "64", or "64:1M" for 64 and its doublings up to 1 MiB. Throws UsageError.
std::vector<uint64_t> parse_sizes(const std::string& text);

/// The plane addresses on this host. Throws UsageError.
std::vector<SocketAddress> local_planes(const PeerOptions& options);
/// Lists with an address a plane, to be tried in this order. Throws UsageError.
std::vector<std::vector<SocketAddress>> remote_planes(const PeerOptions& options);

}  // namespace metaroce::tool
