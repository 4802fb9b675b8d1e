#include "telemetry/stat_page.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <type_traits>

#include "base/fence.h"

namespace metaroce::telemetry {
namespace {

constexpr char kMagic[8] = {'M', 'R', 'S', 'T', 'A', 'T', '0', '1'};
constexpr Duration kInterval = milliseconds(100);
constexpr int kMostPages = 4096;  // looked at in a folder

static_assert(std::is_trivially_copyable_v<StatHead>);
static_assert(std::is_trivially_copyable_v<StatConnection>);
static_assert(std::is_trivially_copyable_v<StatPath>);

int64_t monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// State letter and start time of a process; false if there is none.
bool process_state(uint32_t pid, char& state, uint64_t& start_time) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(in, line)) return false;
  const size_t close = line.rfind(')');  // the name before may hold anything
  if (close == std::string::npos) return false;
  char* at = line.data() + close + 1;
  while (*at == ' ') ++at;
  state = *at;
  // The state is field 3, the start time field 22.
  for (int field = 3; field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (at == nullptr) return false;
    ++at;
  }
  start_time = std::strtoull(at, nullptr, 10);
  return true;
}

uint64_t pid_namespace() {
  struct stat s {};
  return ::stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 0;
}

std::string prefix() { return fmt::format("metaroce-{}-", ::geteuid()); }

}  // namespace

struct StatPage::Memory {
  char magic[8];
  uint32_t version;
  uint32_t row_sizes;  ///< of another build: not read
  uint32_t max_connections;
  uint32_t max_paths;
  StatOwner owner;
  std::atomic<uint32_t> sequence;  ///< odd while written
  std::atomic<uint32_t> sleeping;
  StatHead head;

  static constexpr uint32_t kRowSizes = static_cast<uint32_t>(
      sizeof(StatHead) * 31 * 31 + sizeof(StatConnection) * 31 + sizeof(StatPath));
  static size_t bytes(uint32_t connections, uint32_t paths) {
    return sizeof(Memory) + connections * sizeof(StatConnection) + paths * sizeof(StatPath);
  }
  StatConnection* connections() { return reinterpret_cast<StatConnection*>(this + 1); }
  StatPath* paths() { return reinterpret_cast<StatPath*>(connections() + max_connections); }
};

std::vector<std::string> stat_folders() {
  if (const char* folder = std::getenv("METAROCE_STAT_DIR")) {
    if (std::strcmp(folder, "off") == 0) return {};
    return {folder};
  }
  std::vector<std::string> folders{"/dev/shm"};
  if (const char* folder = std::getenv("XDG_RUNTIME_DIR")) folders.emplace_back(folder);
  return folders;
}

// ---- writing ------------------------------------------------------------------------------------

std::unique_ptr<StatPage> StatPage::create(const engine::EngineConfig& config, uint16_t port) {
  const auto folders = stat_folders();
  if (folders.empty()) return nullptr;
  std::vector<std::string> problems;
  read_stat_pages(problems);  // clears away what dead processes left
  std::unique_ptr<StatPage> page(new StatPage);
  page->pid_ = static_cast<uint32_t>(::getpid());
  page->port_ = port;
  page->max_connections_ = std::min(config.settings.max_connections, kStatConnections);
  const uint64_t paths = uint64_t{page->max_connections_} * config.local.size() *
                         std::max(config.settings.paths_per_plane, 4u);
  page->max_paths_ = static_cast<uint32_t>(std::min<uint64_t>(paths, kStatPaths));
  page->bytes_ = Memory::bytes(page->max_connections_, page->max_paths_);
  page->handles_.resize(page->max_connections_);
  int fd = -1;
  for (const std::string& folder : folders) {
    for (int n = 0; n < 1024 && fd < 0; ++n) {
      page->path_ = fmt::format("{}/{}{}-{}", folder, prefix(), page->pid_, n);
      fd = ::open(page->path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
      if (fd < 0 && errno != EEXIST) break;
    }
    if (fd >= 0) break;
  }
  if (fd < 0) return nullptr;
  // Reserved, not only sized: a full file system must be an error here and no signal later.
  void* memory = MAP_FAILED;
  if (::posix_fallocate(fd, 0, static_cast<off_t>(page->bytes_)) == 0) {
    memory = ::mmap(nullptr, page->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (memory == MAP_FAILED) {
    ::unlink(page->path_.c_str());
    return nullptr;
  }
  auto* m = new (memory) Memory{};
  m->version = kStatVersion;
  m->row_sizes = Memory::kRowSizes;
  m->max_connections = page->max_connections_;
  m->max_paths = page->max_paths_;
  m->owner.pid = page->pid_;
  m->owner.uid = ::geteuid();
  m->owner.pid_namespace = pid_namespace();
  char state = 0;
  process_state(page->pid_, state, m->owner.start_time);
  std::ifstream comm("/proc/self/comm");
  comm.getline(m->owner.command, sizeof m->owner.command);
  m->head.port = port;
  release_fence();
  std::memcpy(m->magic, kMagic, sizeof kMagic);
  page->memory_ = m;
  return page;
}

StatPage::~StatPage() {
  if (memory_ == nullptr) return;
  // A child made by fork has the page of its parent.
  if (pid_ == static_cast<uint32_t>(::getpid())) ::unlink(path_.c_str());
  ::munmap(memory_, bytes_);
}

void StatPage::set_sleeping(bool sleeping) {
  memory_->sleeping.store(sleeping ? 1 : 0, std::memory_order_relaxed);
}

void StatPage::publish(Time now, const engine::Engine& engine) {
  const int64_t begin = monotonic_ns();
  Memory& m = *memory_;
  const uint32_t sequence = m.sequence.load(std::memory_order_relaxed);
  m.sequence.store(sequence + 1, std::memory_order_relaxed);
  release_fence();
  StatHead& head = m.head;
  head.published = now;
  head.totals = engine.totals();
  const auto drops = engine.drops();
  std::copy_n(drops.begin(), std::min(drops.size(), kStatDrops), head.drops);
  head.connections = static_cast<uint32_t>(engine.connections(handles_));
  head.connections_shown = 0;
  head.paths = head.paths_shown = 0;
  const uint32_t shown = std::min(head.connections, max_connections_);
  for (uint32_t i = 0; i < shown; ++i) {
    StatConnection& row = m.connections()[head.connections_shown];
    if (!engine.connection_status(now, handles_[i], row.status)) continue;
    row.handle = handles_[i];
    row.first_path = head.paths_shown;
    row.paths = 0;
    ++head.connections_shown;
    engine::PathStatus list[kMaxPaths];
    const size_t n = engine.path_status(handles_[i], list);
    head.paths += static_cast<uint32_t>(n);
    for (size_t p = 0; p < n && head.paths_shown < max_paths_; ++p) {
      m.paths()[head.paths_shown++] = StatPath{handles_[i], list[p]};
      ++row.paths;
    }
  }
  m.sequence.store(sequence + 2, std::memory_order_release);
  const Duration cost = nanoseconds(monotonic_ns() - begin);
  next_ = now + std::max(kInterval, cost * 100);
}

// ---- reading ------------------------------------------------------------------------------------

struct StatReader {
  /// False: not a page, or its owner is gone (then it is removed).
  static bool read(const std::string& path, StatSnapshot& out, std::string& problem);
  static bool copy(StatPage::Memory& m, StatSnapshot& out);
};

bool StatReader::copy(StatPage::Memory& m, StatSnapshot& out) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const uint32_t before = m.sequence.load(std::memory_order_acquire);
    if ((before & 1) != 0) {
      ::usleep(20);
      continue;
    }
    std::memcpy(static_cast<void*>(&out.head), &m.head, sizeof out.head);
    const uint32_t connections = std::min(out.head.connections_shown, m.max_connections);
    const uint32_t paths = std::min(out.head.paths_shown, m.max_paths);
    out.connections.assign(m.connections(), m.connections() + connections);
    out.paths.assign(m.paths(), m.paths() + paths);
    out.sleeping = m.sleeping.load(std::memory_order_relaxed) != 0;
    acquire_fence();
    if (m.sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

bool StatReader::read(const std::string& path, StatSnapshot& out, std::string& problem) {
  using Memory = StatPage::Memory;
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat s {};
  void* memory = MAP_FAILED;
  const bool ours = ::fstat(fd, &s) == 0 && s.st_uid == ::geteuid() && S_ISREG(s.st_mode) &&
                    static_cast<size_t>(s.st_size) >= sizeof(Memory);
  const auto bytes = static_cast<size_t>(s.st_size);
  if (ours) memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return false;
  auto& m = *static_cast<Memory*>(memory);
  bool ok = std::memcmp(m.magic, kMagic, sizeof kMagic) == 0;
  if (ok) {
    out.owner = m.owner;
    out.owner.command[sizeof out.owner.command - 1] = '\0';
    char state = 0;
    uint64_t start = 0;
    const bool same_namespace = m.owner.pid_namespace == pid_namespace();
    const bool alive = process_state(m.owner.pid, state, start) && start == m.owner.start_time &&
                       state != 'Z' && state != 'X';
    out.stopped = state == 'T' || state == 't';
    ok = !same_namespace || alive;
    if (!ok) ::unlink(path.c_str());
  }
  if (ok && (m.version != kStatVersion || m.row_sizes != Memory::kRowSizes ||
             Memory::bytes(m.max_connections, m.max_paths) > bytes)) {
    problem = fmt::format("process {} ({}) shows itself in the form of another version; use the "
                          "metaroce that belongs to it",
                          out.owner.pid, out.owner.command);
    ok = false;
  }
  ok = ok && copy(m, out);
  ::munmap(memory, bytes);
  out.file = path;
  return ok;
}

std::vector<StatSnapshot> read_stat_pages(std::vector<std::string>& problems) {
  std::vector<StatSnapshot> pages;
  const std::string begin = prefix();
  for (const std::string& folder : stat_folders()) {
    DIR* dir = ::opendir(folder.c_str());
    if (dir == nullptr) continue;
    int looked_at = 0;
    while (const dirent* entry = ::readdir(dir)) {
      if (std::strncmp(entry->d_name, begin.c_str(), begin.size()) != 0) continue;
      if (++looked_at > kMostPages) break;
      StatSnapshot page;
      std::string problem;
      if (StatReader::read(folder + "/" + entry->d_name, page, problem)) {
        pages.push_back(std::move(page));
      } else if (!problem.empty()) {
        problems.push_back(problem);
      }
    }
    ::closedir(dir);
  }
  std::sort(pages.begin(), pages.end(), [](const StatSnapshot& a, const StatSnapshot& b) {
    return a.owner.pid != b.owner.pid ? a.owner.pid < b.owner.pid : a.head.port < b.head.port;
  });
  return pages;
}

}  // namespace metaroce::telemetry
