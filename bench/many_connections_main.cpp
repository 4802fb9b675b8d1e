// Thousands of connections between two processes over UDP: all open before the first byte, then a
// Write on each, digests compared, memory told. Descriptors stay within RLIMIT_NOFILE 1,024.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "api/endpoint.h"
#include "driver/common/clock.h"
#include "driver/common/crc32c.h"
#include "driver/common/socket_address.h"
#include "tools/metaroce/perf_pattern.h"

namespace metaroce::bench {
namespace {

using driver::now;

struct Options {
  uint32_t connections = 4000;
  uint64_t bytes = 1u << 20;
  uint32_t at_once = 0;  ///< Writes under way; 0: all
  uint32_t files = 1024;
  uint32_t areas = 64;  ///< sources; connection i sends area i modulo this
  uint32_t buffers = 64u << 20;
  double limit = 300;
  bool json = false;
  bool rest = false;  ///< let the connections rest before memory is told and before each round
  uint32_t rounds = 1;
  std::vector<std::string> set;
};

struct Grant {
  uint32_t key = 0;
  uint64_t base = 0;
  uint16_t port = 0;
};

struct Memory {
  uint64_t rss = 0;
  uint64_t anonymous = 0;
};

[[noreturn]] void die(const std::string& what) {
  fmt::print(stderr, "many_connections: {}\n", what);
  exit(1);
}

Memory memory_now() {
  std::ifstream in("/proc/self/status");
  Memory m;
  for (std::string line; std::getline(in, line);) {
    uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %lu kB", &kib) == 1) m.rss = kib * 1024;
    if (std::sscanf(line.c_str(), "RssAnon: %lu kB", &kib) == 1) m.anonymous = kib * 1024;
  }
  return m;
}

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

std::byte* map(uint64_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) die(fmt::format("no memory for {} bytes", size));
  return static_cast<std::byte*>(p);
}

std::unique_ptr<api::Endpoint> open_endpoint(const Options& o, bool accept) {
  api::EndpointOptions e;
  e.local = {driver::parse_address("127.0.0.1", 0)};
  e.accept = accept;
  e.receive_buffer = o.buffers;
  e.send_buffer = 4u << 20;
  // Room for every connection with one path each way.
  e.settings.max_connections = o.connections + 8;
  e.settings.paths_per_plane = 1;
  e.settings.max_active_paths = o.connections + 8;
  e.settings.max_streams = 2 * o.connections + 8;
  e.settings.max_sends = std::max(e.settings.max_sends, o.connections);
  e.settings.max_open_messages = std::max(e.settings.max_open_messages, o.connections);
  e.settings.death_timeout = 20'000'000'000;
  e.settings.connect_timeout = 20'000'000'000;
  for (const std::string& s : o.set) {
    const size_t eq = s.find('=');
    if (!set_setting(e.settings, s.substr(0, eq), eq == s.npos ? "" : s.substr(eq + 1))) {
      die("bad setting " + s);
    }
  }
  auto opened = api::Endpoint::open(e);
  if (!opened) die(opened.error().text);
  return std::move(*opened);
}

/// Waits until all connections of this end rest, but for those that keep-alive wakes just now.
void let_rest(api::Endpoint& endpoint, uint32_t connections) {
  const Time limit = now() + seconds(20);
  api::Completion done[64];
  while (endpoint.memory().resting * 10 < connections * 8) {
    if (now() > limit) {
      die(fmt::format("{} of {} connections rest after 20 s; do the settings let them?",
                      endpoint.memory().resting, connections));
    }
    endpoint.wait(milliseconds(5));
    endpoint.poll(done);
  }
}

struct ReceiverReport {
  api::EngineMemory held;
  uint32_t accepted = 0;
  uint32_t equal = 0;
  uint32_t lost = 0;
  Memory before, open, after;
  double cpu = 0;
  uint64_t overflow = 0;
};

std::vector<uint32_t> digests(const Options& o, const std::byte* area, uint32_t count) {
  std::vector<uint32_t> out(count);
  for (uint32_t i = 0; i < count; ++i) {
    driver::Crc32c crc;
    crc.add(area + i * o.bytes, o.bytes);
    out[i] = crc.value();
  }
  return out;
}

void fill(const Options& o, std::byte* area) {
  for (uint32_t i = 0; i < o.areas; ++i) {
    tool::PerfPattern(1, 1, i).fill({area + i * o.bytes, o.bytes});
  }
}

int run_receiver(const Options& o, const Grant& target, int to_sender, int from_sender,
                 int to_parent) {
  // The target is mapped in the parent, so that its pages are no part of what is told.
  auto endpoint = open_endpoint(o, true);
  auto* memory = reinterpret_cast<std::byte*>(target.base);
  const auto region =
      endpoint->register_region({memory, o.bytes * o.connections}, memory::access::kRemoteWrite);
  if (!region) die(region.error().text);
  const Grant grant{region->key, region->address, endpoint->port()};
  ReceiverReport report;
  report.before = memory_now();
  if (write(to_sender, &grant, sizeof grant) != sizeof grant) return 1;
  api::Completion done[64];
  api::ConnectionEvent event;
  char word = 0;
  while (word != 'q') {
    endpoint->wait(milliseconds(2));
    endpoint->poll(done);
    while (endpoint->next_event(event)) {
      report.accepted += event.kind == api::ConnectionEventKind::kAccepted;
      report.lost += event.kind == api::ConnectionEventKind::kLost;
    }
    if (read(from_sender, &word, 1) == 1 && word == 'o') {
      if (o.rest) let_rest(*endpoint, o.connections);
      report.open = memory_now();
      report.held = endpoint->memory();
    }
  }
  report.after = memory_now();
  report.cpu = cpu_seconds();
  report.overflow = endpoint->udp_counters().rx_overflow;
  std::vector<std::byte> source(o.areas * o.bytes);
  fill(o, source.data());
  const auto expected = digests(o, source.data(), o.areas);
  const auto got = digests(o, memory, o.connections);
  for (uint32_t i = 0; i < o.connections; ++i) report.equal += got[i] == expected[i % o.areas];
  return write(to_parent, &report, sizeof report) == sizeof report ? 0 : 1;
}

struct SenderReport {
  api::EngineMemory held;
  double connect_seconds = 0;
  double send_seconds = 0;
  uint32_t open = 0;
  uint32_t completed = 0;
  uint64_t repairs = 0;
  uint64_t lost = 0;
  uint64_t data = 0;
  uint64_t shared_sends = 0;
  uint64_t sockets_opened = 0;
  Memory before, opened, after;
};

class Sender {
 public:
  Sender(const Options& o, const Grant& grant) : o_(o), grant_(grant) {}

  SenderReport run(int to_receiver) {
    endpoint_ = open_endpoint(o_, false);
    source_.resize(o_.areas * o_.bytes);
    fill(o_, source_.data());
    report_.before = memory_now();
    const Time begin = now();
    connect_all(begin);
    report_.connect_seconds = since(begin);
    if (o_.rest) let_rest(*endpoint_, o_.connections);
    report_.opened = memory_now();
    report_.held = endpoint_->memory();
    if (write(to_receiver, "o", 1) != 1) die("pipe");
    for (uint32_t round = 0; round < o_.rounds; ++round) send_round(round);
    report_.after = memory_now();
    count();
    return report_;
  }

 private:
  static double since(Time t) { return static_cast<double>((now() - t).ns) / 1e9; }
  bool over(Time begin) const { return since(begin) > o_.limit; }

  void connect_all(Time begin) {
    SocketAddress peer = driver::parse_address("127.0.0.1", grant_.port);
    for (uint32_t i = 0; i < o_.connections && !over(begin); ++i) {
      const auto handle = endpoint_->connect({&peer, 1}, seconds(20));
      if (!handle) die(fmt::format("connection {}: {}", i, handle.error().text));
      handles_.push_back(*handle);
    }
    settle(milliseconds(200));  // paths of the last ones may still be on their way
    report_.open = static_cast<uint32_t>(handles_.size());
  }

  void note(const api::ConnectionEvent& event) {
    if (event.kind == api::ConnectionEventKind::kLost ||
        event.kind == api::ConnectionEventKind::kClosed) {
      die("a connection ended: " + api::describe_loss(event, seconds(20)));
    }
  }

  void send_round(uint32_t round) {
    if (round > 0) {
      settle(milliseconds(400));  // the other end rests, too, if it may
      if (o_.rest) let_rest(*endpoint_, o_.connections);
    }
    const uint64_t repairs = total_repairs();
    report_.completed = 0;
    const Time first = now();
    send_all(first);
    report_.send_seconds = since(first);
    if (o_.rounds == 1 || o_.json) return;
    fmt::print("round {}: {} Writes in {:.3f} s, {} packets sent again\n", round + 1,
               report_.completed, report_.send_seconds, total_repairs() - repairs);
  }

  uint64_t total_repairs() const {
    std::vector<api::PathStatus> paths(256);
    uint64_t sum = 0;
    for (const auto handle : handles_) {
      const size_t n = endpoint_->path_status(handle, paths);
      for (size_t i = 0; i < n; ++i) sum += paths[i].counters.tx_repair;
    }
    return sum;
  }

  void settle(Duration duration) {
    api::ConnectionEvent event;
    api::Completion done[64];
    const Time end = now() + duration;
    while (now() < end) {
      endpoint_->wait(milliseconds(10));
      endpoint_->poll(done);
      while (endpoint_->next_event(event)) note(event);
    }
  }

  void send_all(Time begin) {
    const uint32_t most = o_.at_once == 0 ? o_.connections : o_.at_once;
    uint32_t posted = 0;
    api::Completion done[64];
    api::ConnectionEvent event;
    while (report_.completed < handles_.size() && !over(begin)) {
      while (posted < handles_.size() && posted - report_.completed < most) {
        if (!post(posted)) break;
        ++posted;
      }
      endpoint_->wait(milliseconds(10));
      const size_t n = endpoint_->poll(done);
      for (size_t i = 0; i < n; ++i) {
        if (done[i].status != Status::kOk) die(to_string(done[i].status));
        ++report_.completed;
      }
      while (endpoint_->next_event(event)) note(event);
    }
  }

  bool post(uint32_t i) {
    api::WorkRequest w;
    w.connection = handles_[i];
    w.local = source_.data() + (i % o_.areas) * o_.bytes;
    w.length = o_.bytes;
    w.remote_address = grant_.base + i * o_.bytes;
    w.remote_key = grant_.key;
    Status status = Status::kOk;
    if (endpoint_->post({&w, 1}, status) == 1) return true;
    if (status != Status::kFull) die(fmt::format("post: {}", to_string(status)));
    return false;
  }

  void count() {
    std::vector<api::PathStatus> paths(256);
    for (const auto handle : handles_) {
      const size_t n = endpoint_->path_status(handle, paths);
      for (size_t i = 0; i < n; ++i) {
        report_.data += paths[i].counters.tx_new;
        report_.lost += paths[i].counters.lost;
      }
    }
    report_.repairs = total_repairs();
    report_.shared_sends = endpoint_->udp_counters().shared_sends;
    report_.sockets_opened = endpoint_->udp_counters().tx_sockets_opened;
  }

  const Options& o_;
  const Grant grant_;
  std::unique_ptr<api::Endpoint> endpoint_;
  std::vector<std::byte> source_;
  std::vector<api::ConnectionHandle> handles_;
  SenderReport report_;
};

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void print_held(const char* end, const api::EngineMemory& m) {
  const uint32_t n = std::max(m.connections, 1u);
  fmt::print("{}: fixed state {} bytes a connection, counters of its paths {}; {} of {} rest\n",
             end, m.state_bytes / n, m.counter_bytes / n, m.resting, m.connections);
  fmt::print("{}: slabs add {} bytes a path awake ({} now, {} at most at once)\n", end,
             m.path_bytes, m.awake_paths, m.awake_paths_most);
}

void print(const Options& o, const SenderReport& s, const ReceiverReport& r) {
  const auto each = [&](const Memory& before, const Memory& open) {
    return (static_cast<double>(open.anonymous) - static_cast<double>(before.anonymous)) /
           o.connections;
  };
  const double rate = static_cast<double>(s.completed * o.bytes) * 8e-9 / s.send_seconds;
  if (o.json) {
    fmt::print(
        "{{\"connections\":{},\"open\":{},\"accepted\":{},\"completed\":{},"
        "\"digests_equal\":{},\"connect_seconds\":{:.3f},\"send_seconds\":{:.3f},"
        "\"goodput_gbps\":{:.3f},\"repairs\":{},\"lost\":{},\"data\":{},"
        "\"sender_rss\":{},\"receiver_rss\":{},\"sender_bytes_each\":{:.0f},"
        "\"receiver_bytes_each\":{:.0f},\"overflow\":{},\"state_bytes\":{},"
        "\"counter_bytes\":{},\"path_bytes\":{}}}\n",
        o.connections, s.open, r.accepted, s.completed, r.equal, s.connect_seconds, s.send_seconds,
        rate, s.repairs, s.lost, s.data, s.after.rss, r.after.rss, each(s.before, s.opened),
        each(r.before, r.open), r.overflow, s.held.state_bytes / o.connections,
        s.held.counter_bytes / o.connections, s.held.path_bytes);
    return;
  }
  fmt::print("{} connections open in {:.2f} s ({} accepted), RLIMIT_NOFILE {}\n", s.open,
             s.connect_seconds, r.accepted, o.files);
  fmt::print("{} Writes of {} bytes in {:.2f} s, {:.2f} Gbit/s; {} of {} digests equal\n",
             s.completed, o.bytes, s.send_seconds, rate, r.equal, o.connections);
  fmt::print(
      "packets {} data, {} sent again, {} lost, {} dropped by the receiving socket; {} "
      "sockets, {} runs from the shared one\n",
      s.data, s.repairs, s.lost, r.overflow, s.sockets_opened, s.shared_sends);
  fmt::print(
      "RSS sender {:.1f} MiB (tables {:.1f}), receiver {:.1f} MiB (tables {:.1f}, pages of "
      "the payload included)\n",
      mib(s.after.rss), mib(s.before.anonymous), mib(r.after.rss), mib(r.before.anonymous));
  fmt::print("each connection added {:.0f} bytes at the sender, {:.0f} at the receiver\n",
             each(s.before, s.opened), each(r.before, r.open));
  print_held("sender", s.held);
  print_held("receiver", r.held);
}

int run(const Options& o) {
  const rlimit files{o.files, o.files};
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) die("RLIMIT_NOFILE");
  int grant_pipe[2], words[2], report_pipe[2];
  if (pipe(grant_pipe) != 0 || pipe2(words, O_NONBLOCK) != 0 || pipe(report_pipe) != 0) die("pipe");
  Grant target;
  target.base = reinterpret_cast<uint64_t>(map(o.bytes * o.connections));
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a sender that gives up leaves no receiver behind
    _exit(run_receiver(o, target, grant_pipe[1], words[0], report_pipe[1]));
  }
  for (const int end : {grant_pipe[1], words[0], report_pipe[1]}) close(end);
  Grant grant;
  if (read(grant_pipe[0], &grant, sizeof grant) != sizeof grant) return 1;
  const SenderReport sent = Sender(o, grant).run(words[1]);
  if (write(words[1], "q", 1) != 1) die("pipe");
  ReceiverReport received;
  if (read(report_pipe[0], &received, sizeof received) != sizeof received) return 1;
  waitpid(child, nullptr, 0);
  print(o, sent, received);
  return sent.open == o.connections && received.equal == o.connections ? 0 : 1;
}

}  // namespace
}  // namespace metaroce::bench

int main(int argc, char** argv) {
  metaroce::bench::Options o;
  CLI::App app{"Thousands of connections between two processes: set-up, a Write each, memory"};
  app.add_option("--connections", o.connections)
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app.add_option("--bytes", o.bytes, "of the Write on each")->capture_default_str();
  app.add_option("--at-once", o.at_once, "Writes under way; 0: all")->capture_default_str();
  app.add_option("--files", o.files, "RLIMIT_NOFILE of both")->capture_default_str();
  app.add_option("--buffers", o.buffers, "receive buffer bytes")->capture_default_str();
  app.add_option("--limit", o.limit, "seconds for each part")->capture_default_str();
  app.add_option("--set", o.set, "NAME=VALUE, a setting of the engine");
  app.add_flag("--rest", o.rest,
               "let the paths be folded (MR-CONN-040) before memory is told and before each round");
  app.add_option("--rounds", o.rounds, "Writes on each connection, a round at once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--json", o.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  return metaroce::bench::run(o);
}
