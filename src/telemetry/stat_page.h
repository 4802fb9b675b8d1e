// The page of shared memory in which a process shows its connections (`metaroce stat` reads it).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace metaroce::telemetry {

inline constexpr uint32_t kStatVersion = 1;
inline constexpr uint32_t kStatConnections = 256;  ///< shown at most; the others are counted
inline constexpr uint32_t kStatPaths = 2048;
inline constexpr size_t kStatDrops = static_cast<size_t>(wire::DropReason::kCount);

struct StatConnection {
  engine::ConnectionHandle handle = 0;
  uint32_t first_path = 0;  ///< index of its first row of paths
  uint32_t paths = 0;       ///< rows
  engine::ConnectionStatus status;
};

struct StatPath {
  engine::ConnectionHandle connection = 0;
  engine::PathStatus status;
};

/// What stands at the beginning of a page; rows of connections and of paths follow.
struct StatHead {
  uint32_t connections = 0;        ///< that there are
  uint32_t connections_shown = 0;  ///< rows
  uint32_t paths = 0;
  uint32_t paths_shown = 0;
  Time published{0};               ///< CLOCK_MONOTONIC
  uint16_t port = 0;
  engine::EngineTotals totals;
  uint64_t drops[kStatDrops] = {};
};

struct StatOwner {
  uint32_t pid = 0;
  uint32_t uid = 0;
  uint64_t start_time = 0;  ///< of the process, as /proc/PID/stat has it: pids are used again
  uint64_t pid_namespace = 0;
  char command[32] = {};
};

/// Written by one endpoint. A file of mode 0600 named metaroce-UID-PID-N in the first folder of
/// stat_folders() that takes it; removed at the end. Readers are never waited for (a seqlock).
class StatPage {
 public:
  /// Null when no folder takes it: then the process is not shown, and nothing else changes. Also
  /// removes pages of this user's dead processes.
  static std::unique_ptr<StatPage> create(const engine::EngineConfig& config, uint16_t port);
  ~StatPage();
  StatPage(const StatPage&) = delete;
  StatPage& operator=(const StatPage&) = delete;

  /// Publishes when 100 ms have passed since the last time, or 100 times what publishing costs.
  bool due(Time now) const { return now >= next_; }
  void publish(Time now, const engine::Engine& engine);
  /// The owner sleeps until something happens: an old page is no sign of a program that does not
  /// poll.
  void set_sleeping(bool sleeping);

 private:
  StatPage() = default;
  struct Memory;
  Memory* memory_ = nullptr;
  size_t bytes_ = 0;
  std::string path_;
  uint32_t pid_ = 0;
  uint32_t max_connections_ = 0;
  uint32_t max_paths_ = 0;
  uint16_t port_ = 0;
  Time next_{0};
  std::vector<engine::ConnectionHandle> handles_;

  friend struct StatReader;
};

/// One page as it was at one moment.
struct StatSnapshot {
  StatOwner owner;
  std::string file;
  bool sleeping = false;
  bool stopped = false;  ///< the process is stopped (SIGSTOP, debugger)
  StatHead head;
  std::vector<StatConnection> connections;
  std::vector<StatPath> paths;
};

/// $METAROCE_STAT_DIR alone if set ("off": none), else /dev/shm and $XDG_RUNTIME_DIR.
std::vector<std::string> stat_folders();

/// All pages of this user's living processes. Pages of dead ones are removed; pages that cannot be
/// read are named in `problems`.
std::vector<StatSnapshot> read_stat_pages(std::vector<std::string>& problems);

}  // namespace metaroce::telemetry
