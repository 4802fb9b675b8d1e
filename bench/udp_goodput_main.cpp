// Reliable Writes from memory to memory over UDP sockets, two processes on loopback: the product's
// side of the comparison with udp_limit. Both ends are pinned; payload is cold on both sides.
#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/settings.h"
#include "driver/common/resolve.h"
#include "driver/udp/udp_driver.h"
#include "engine/engine.h"

namespace metaroce::bench {
namespace {

constexpr uint64_t kArea = 64u << 20;

struct Options {
  std::string address = "127.0.0.1";
  uint16_t port = 28800;
  uint32_t paths = 1;
  uint64_t message = 1u << 20;
  uint32_t depth = 16;
  double seconds = 1;
  uint32_t buffers = 64u << 20;
  bool json = false;
  bool detail = false;
  std::vector<int> pin{0, 1};
  std::vector<std::string> set;
  std::string suite;  ///< of a secured connection; "": plain
};

struct Grant {  // what the receiver tells the sender through a pipe
  uint32_t key = 0;
  uint64_t base = 0;
  uint16_t port = 0;
};

struct Side {
  std::unique_ptr<driver::UdpDriver> driver;
  std::unique_ptr<engine::Engine> engine;
};

std::byte* cold_area() {
  void* p = mmap(nullptr, kArea, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error("no memory for 64 MiB");
  madvise(p, kArea, MADV_HUGEPAGE);
  std::fill_n(static_cast<unsigned char*>(p), kArea, 0x5A);
  return static_cast<std::byte*>(p);
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

Side open_side(const Options& o, uint16_t port, bool accept) {
  Side side;
  driver::UdpOptions udp;
  const auto local = driver::resolve(o.address, port);
  if (!local) throw std::runtime_error(local.error().text);
  udp.local = {local->front()};
  udp.port = port;
  udp.receive_buffer = o.buffers;
  udp.send_buffer = o.buffers;
  auto opened = driver::UdpDriver::open(udp);
  if (!opened) throw std::runtime_error(opened.error().text);
  side.driver = std::move(*opened);
  engine::EngineConfig config;
  config.settings.paths_per_plane = o.paths;
  for (const std::string& s : o.set) {
    const size_t eq = s.find('=');
    if (!set_setting(config.settings, s.substr(0, eq), eq == s.npos ? "" : s.substr(eq + 1))) {
      throw std::runtime_error("bad setting " + s);
    }
  }
  if (!o.suite.empty()) {
    // Both processes make the same key: what is measured is what a key costs, not who has it.
    config.security.policy = secure::Policy::kRequired;
    config.security.suites = {secure::suite_of(o.suite)};
    config.security.psks.push_back({"bench", {}});
  }
  const bool secured = !o.suite.empty();
  config.settings.inflight_packets =
      std::min(config.settings.inflight_packets, side.driver->inflight_packets());
  config.local = side.driver->local();
  config.plane_mtu = side.driver->plane_mtu();
  config.accept = accept;
  side.engine = std::make_unique<engine::Engine>(std::move(config), Rng(accept ? 1 : 2));
  if (secured) side.driver->secure_with(*side.engine);
  return side;
}

void receive_until_lost(Side& side, double& cpu) {
  engine::ConnectionEvent events[8];
  double begin = -1;
  for (bool over = false; !over;) {
    if (side.driver->progress(*side.engine) == 0) {
      side.driver->wait(*side.engine, -1, seconds(1));
    }
    const size_t n = side.engine->poll_events(events);
    for (size_t i = 0; i < n; ++i) {
      if (events[i].kind == engine::ConnectionEventKind::kAccepted) begin = cpu_seconds();
      over |= events[i].kind == engine::ConnectionEventKind::kClosed ||
              events[i].kind == engine::ConnectionEventKind::kLost;
    }
  }
  cpu = cpu_seconds() - begin;
}

int run_receiver(const Options& o, int to_sender, int to_parent) {
  pin(o.pin[0]);
  Side side = open_side(o, 0, true);
  std::byte* area = cold_area();
  const auto region = side.engine->regions().add(area, kArea, memory::access::kRemoteWrite);
  const Grant grant{region->key, region->remote_base, side.driver->port()};
  if (write(to_sender, &grant, sizeof grant) != sizeof grant) return 1;
  double cpu = 0;
  receive_until_lost(side, cpu);
  return write(to_parent, &cpu, sizeof cpu) == sizeof cpu ? 0 : 1;
}

engine::ConnectionHandle connect(Side& side, const Options& o, uint16_t port) {
  const auto peer = driver::resolve(o.address, port);
  const auto handle = side.engine->connect(driver::now(), {{peer->front()}});
  if (!handle) throw std::runtime_error("connect: no table space");
  engine::ConnectionEvent events[8];
  for (;;) {
    if (side.driver->progress(*side.engine) == 0) {
      side.driver->wait(*side.engine, -1, seconds(1));
    }
    const size_t n = side.engine->poll_events(events);
    for (size_t i = 0; i < n; ++i) {
      if (events[i].kind == engine::ConnectionEventKind::kPathsOpen) return *handle;
      if (events[i].kind == engine::ConnectionEventKind::kFailed) {
        throw std::runtime_error(std::string("connect: ") + to_string(events[i].status));
      }
    }
  }
}

struct Outcome {
  uint64_t bytes = 0;
  double seconds = 0;
  double cpu = 0;
};

Outcome send_for(Side& side, const Options& o, const Grant& grant,
                 engine::ConnectionHandle handle) {
  std::byte* area = cold_area();
  engine::Completion done[64];
  uint64_t offset = 0;
  uint32_t open = 0;
  Outcome out;
  const Time begin = driver::now();
  const double cpu = cpu_seconds();
  const Time end = begin + nanoseconds(static_cast<int64_t>(o.seconds * 1e9));
  Time last = begin;
  while (last < end || open > 0) {
    while (open < o.depth && last < end) {
      engine::WorkRequest w;
      w.connection = handle;
      w.local = area + offset;
      w.length = o.message;
      w.remote_address = grant.base + offset;
      w.remote_key = grant.key;
      offset = offset + 2 * o.message <= kArea ? offset + o.message : 0;
      Status status = Status::kOk;
      if (side.engine->post(last, {&w, 1}, status) != 1) break;
      ++open;
    }
    const size_t work = side.driver->progress(*side.engine);
    last = driver::now();
    const size_t n = side.engine->poll_completions(done);
    for (size_t i = 0; i < n; ++i) {
      if (done[i].status != Status::kOk) throw std::runtime_error(to_string(done[i].status));
      out.bytes += done[i].bytes;
    }
    open -= static_cast<uint32_t>(n);
    if (work == 0 && n == 0) side.driver->wait(*side.engine, -1, milliseconds(100));
  }
  out.seconds = static_cast<double>((driver::now() - begin).ns) * 1e-9;
  out.cpu = cpu_seconds() - cpu;
  return out;
}

void print_detail(Side& side, engine::ConnectionHandle handle) {
  const driver::UdpCounters& c = side.driver->counters();
  fmt::print("  {} datagrams in {} calls, {} received in {} calls\n", c.tx_datagrams, c.tx_calls,
             c.rx_datagrams, c.rx_calls);
  std::vector<engine::PathStatus> paths(256);
  paths.resize(side.engine->path_status(handle, paths));
  for (const auto& p : paths) {
    fmt::print("  path {} sent {} repairs {} lost {} spurious {} suspects {} probes {} acks {} "
               "srtt {:.1f} us window {}\n",
               p.id, p.counters.tx_new, p.counters.tx_repair, p.counters.lost,
               p.counters.spurious, p.counters.suspects, p.counters.tx_probes,
               p.counters.rx_acks, static_cast<double>(p.srtt.ns) / 1e3, p.window);
  }
}

Outcome run_sender(const Options& o, const Grant& grant) {
  pin(o.pin[1]);
  Side side = open_side(o, 0, false);
  const engine::ConnectionHandle handle = connect(side, o, grant.port);
  const Outcome out = send_for(side, o, grant, handle);
  if (o.detail) print_detail(side, handle);
  side.engine->close(driver::now(), handle, 0);
  engine::ConnectionEvent events[8];
  for (size_t n = 0; n == 0;) {
    if (side.driver->progress(*side.engine) == 0) {
      side.driver->wait(*side.engine, -1, seconds(1));
    }
    n = side.engine->poll_events(events);
  }
  return out;
}

int run(const Options& o) {
  int grant_pipe[2];
  int cpu_pipe[2];
  if (pipe(grant_pipe) != 0 || pipe(cpu_pipe) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child == 0) _exit(run_receiver(o, grant_pipe[1], cpu_pipe[1]));
  Grant grant;
  if (read(grant_pipe[0], &grant, sizeof grant) != sizeof grant) return 1;
  const Outcome out = run_sender(o, grant);
  double receiver_cpu = 0;
  if (read(cpu_pipe[0], &receiver_cpu, sizeof receiver_cpu) != sizeof receiver_cpu) return 1;
  int status = 0;
  waitpid(child, &status, 0);
  const double gb = static_cast<double>(out.bytes) * 1e-9;
  const double gbps = gb * 8 / out.seconds;
  if (o.json) {
    fmt::print("{{\"gbps\":{:.3f},\"paths\":{},\"tx_cpu_s_per_gb\":{:.3f},"
               "\"rx_cpu_s_per_gb\":{:.3f}}}\n",
               gbps, o.paths, out.cpu / gb, receiver_cpu / gb);
  } else {
    fmt::print("{} path(s): {:.2f} Gbit/s goodput, CPU s/GB tx {:.3f} rx {:.3f}\n", o.paths, gbps,
               out.cpu / gb, receiver_cpu / gb);
  }
  return 0;
}

}  // namespace
}  // namespace metaroce::bench

int main(int argc, char** argv) {
  metaroce::bench::Options o;
  CLI::App app{"Goodput of reliable Writes over UDP, memory to memory, two pinned processes"};
  app.add_option("--address", o.address, "loopback address of both ends")->capture_default_str();
  app.add_option("--paths", o.paths, "paths")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--message", o.message, "bytes of a Write")->capture_default_str();
  app.add_option("--depth", o.depth, "Writes under way")->capture_default_str();
  app.add_option("--seconds", o.seconds, "length of the run")->capture_default_str();
  app.add_option("--buffers", o.buffers, "socket buffer bytes")->capture_default_str();
  app.add_option("--pin", o.pin, "processors of receiver and sender")->expected(2);
  app.add_option("--set", o.set, "NAME=VALUE, a setting of the engine");
  app.add_option("--suite", o.suite, "AEAD suite of a secured connection; plain without")
      ->check(CLI::IsMember({"AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305"}));
  app.add_flag("--json", o.json, "one JSON object");
  app.add_flag("--detail", o.detail, "system calls and paths");
  CLI11_PARSE(app, argc, argv);
  try {
    return metaroce::bench::run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "udp_goodput: {}\n", e.what());
    return 1;
  }
}
