// metaroce stat: connections and paths of every process of this user, like ss.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "cli_common.h"
#include "driver/common/clock.h"
#include "driver/common/socket_address.h"
#include "stat_view.h"

namespace metaroce::tool {
namespace {

constexpr unsigned kGapUs = 250'000;  // between the two looks that one table needs for its rates

bool wanted(const StatOptions& options, const telemetry::StatSnapshot& page) {
  return options.pids.empty() ||
         std::find(options.pids.begin(), options.pids.end(), page.owner.pid) != options.pids.end();
}

bool wanted(const StatOptions& options, const telemetry::StatConnection& row) {
  if (options.peers.empty()) return true;
  const std::string peer = driver::to_string(row.status.peer);
  return std::any_of(options.peers.begin(), options.peers.end(),
                     [&](const std::string& text) { return peer.find(text) != std::string::npos; });
}

/// What the user asked for; the rest is gone.
std::vector<telemetry::StatSnapshot> look(const StatOptions& options) {
  std::vector<std::string> problems;
  auto pages = telemetry::read_stat_pages(problems);
  for (const std::string& problem : problems) say("metaroce stat: " + problem);
  std::erase_if(pages, [&](const auto& page) { return !wanted(options, page); });
  for (auto& page : pages) {
    std::erase_if(page.connections, [&](const auto& row) { return !wanted(options, row); });
    std::erase_if(page.paths, [&](const telemetry::StatPath& path) {
      return std::none_of(page.connections.begin(), page.connections.end(),
                          [&](const auto& c) { return c.handle == path.connection; });
    });
  }
  if (!options.peers.empty()) {
    std::erase_if(pages, [](const auto& page) { return page.connections.empty(); });
  }
  return pages;
}

void show(const StatOptions& options, const std::vector<telemetry::StatSnapshot>& before,
          const std::vector<telemetry::StatSnapshot>& pages) {
  const StatView view(before, pages, driver::now());
  if (options.json) {
    std::printf("%s\n", view.json().dump(options.watch ? -1 : 2).c_str());
  } else {
    std::printf("%s", (options.paths ? view.path_table() : view.table()).c_str());
  }
  std::fflush(stdout);
}

}  // namespace

int run_stat(const StatOptions& options) {
  auto before = look(options);
  if (before.empty() && !options.watch) {
    show(options, before, before);
    return kExitOk;
  }
  if (!options.watch) {
    ::usleep(kGapUs);
    const auto pages = look(options);
    show(options, before, pages);
    return kExitOk;
  }
  install_signals();
  arm_signals();
  const bool terminal = ::isatty(STDOUT_FILENO) == 1 && !options.json;
  while (signal_received() == nullptr) {
    ::usleep(static_cast<unsigned>(std::max(0.1, *options.watch) * 1e6));
    auto pages = look(options);
    if (signal_received() != nullptr) break;
    if (terminal) std::printf("\x1b[H\x1b[2J");
    show(options, before, pages);
    if (!terminal && !options.json) std::printf("\n");
    before = std::move(pages);
  }
  return kExitOk;
}

}  // namespace metaroce::tool
