// The shortest round trip that UDP sockets give on this machine: two processes that spin on
// recvmsg, no protocol, the driver's socket options. The product's latency is measured against it.
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "driver/common/clock.h"
#include "tools/metaroce/perf_histogram.h"

namespace metaroce::bench {
namespace {

using driver::now;

struct Options {
  size_t size = 64;
  double seconds = 1;
  double warmup = 0.2;
  bool yield = true;
  bool json = false;
  std::vector<int> pin;
};

[[noreturn]] void die(const char* what) {
  fmt::print(stderr, "udp_pingpong: {}: {}\n", what, strerror(errno));
  exit(1);
}

void set(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

void pin_to(const Options& o, size_t index) {
  if (index >= o.pin.size()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(o.pin[index]), &cpus);
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) die("pinning");
}

int make_socket() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) die("socket");
  // As src/driver/udp/socket_setup.cpp has them.
  set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  set(fd, IPPROTO_IP, IP_RECVERR, 1);
  set(fd, IPPROTO_IP, IP_TOS, 2);
  set(fd, SOL_UDP, UDP_GRO, 1);
  set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  set(fd, IPPROTO_IP, IP_RECVTOS, 1);
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) die("bind");
  return fd;
}

sockaddr_in address_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return address;
}

struct Message {
  std::vector<char> bytes;
  iovec vector{};
  alignas(cmsghdr) char control[256];
  sockaddr_in peer{};
  msghdr header{};

  explicit Message(size_t size) : bytes(std::max<size_t>(size, 65536)) {}
  void receive(int fd, bool yield) {
    for (;;) {
      header = {&peer, sizeof peer, &vector, 1, control, sizeof control, 0};
      vector = {bytes.data(), bytes.size()};
      if (recvmsg(fd, &header, MSG_DONTWAIT) >= 0) return;
      if (errno != EAGAIN) die("recvmsg");
      if (yield) sched_yield();
    }
  }
  void send(int fd, const sockaddr_in& to, size_t size) {
    peer = to;
    vector = {bytes.data(), size};
    header = {&peer, sizeof peer, &vector, 1, nullptr, 0, 0};
    while (sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno != EAGAIN && errno != ENOBUFS) die("sendmsg");
    }
  }
};

[[noreturn]] void echo(const Options& o, int fd, sockaddr_in to) {
  pin_to(o, 1);
  Message message(o.size);
  for (;;) {
    message.receive(fd, o.yield);
    message.send(fd, to, o.size);
  }
}

int run(const Options& o) {
  const int near = make_socket();
  const int far = make_socket();
  const sockaddr_in near_address = address_of(near);
  const sockaddr_in far_address = address_of(far);
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) echo(o, far, near_address);
  pin_to(o, 0);
  Message message(o.size);
  tool::LatencyHistogram histogram;
  const Time begin = now() + Duration{static_cast<int64_t>(o.warmup * 1e9)};
  const Time end = begin + Duration{static_cast<int64_t>(o.seconds * 1e9)};
  for (Time t = now(); t < end;) {
    message.send(near, far_address, o.size);
    message.receive(near, o.yield);
    const Time after = now();
    if (t >= begin) histogram.add(after - t);
    t = after;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const tool::Percentiles p = histogram.percentiles();
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
  if (o.json) {
    fmt::print(
        "{{\"count\":{},\"min\":{:.2f},\"p50\":{:.2f},\"p90\":{:.2f},\"p99\":{:.2f},"
        "\"p999\":{:.2f},\"max\":{:.2f}}}\n",
        p.count, us(p.min), us(p.p50), us(p.p90), us(p.p99), us(p.p999), us(p.max));
  } else {
    fmt::print(
        "{} round trips of {} bytes: min {:.2f} p50 {:.2f} p90 {:.2f} p99 {:.2f} p99.9 "
        "{:.2f} max {:.2f} us\n",
        p.count, o.size, us(p.min), us(p.p50), us(p.p90), us(p.p99), us(p.p999), us(p.max));
  }
  return p.count > 0 ? 0 : 1;
}

}  // namespace
}  // namespace metaroce::bench

int main(int argc, char** argv) {
  metaroce::bench::Options o;
  CLI::App app{"Round trips of raw UDP datagrams between two spinning processes on loopback"};
  app.add_option("--size", o.size, "bytes of a datagram")->check(CLI::Range(1, 60000));
  app.add_option("--seconds", o.seconds)->check(CLI::Range(0.01, 3600.0));
  app.add_option("--warmup", o.warmup)->check(CLI::Range(0.0, 60.0));
  app.add_option("--pin", o.pin, "cores of the two, for example 0,1")->delimiter(',');
  app.add_flag("!--no-yield", o.yield, "spin without giving the core to others");
  app.add_flag("--json", o.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  return metaroce::bench::run(o);
}
