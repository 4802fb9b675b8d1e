// What this machine's UDP sockets can carry at most with segmentation and coalescing: the same
// packets, CRC and copies as the product, but no protocol. The product is measured against it.
//
//   udp_limit pair                      both ends on loopback, two processes
//   udp_limit rx / udp_limit tx --to A  one end each
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "driver/common/clock.h"
#include "driver/common/crc32c.h"
#include "driver/common/resolve.h"
#include "driver/common/socket_address.h"
#include "driver/common/trailer.h"

namespace metaroce::bench {
namespace {

using driver::now;

constexpr size_t kArea = 64u << 20;  // cold memory on both sides, as in real transfers
constexpr size_t kHeader = 60;
constexpr size_t kTrailer = 4;
constexpr size_t kAround = kHeader + kTrailer;
constexpr size_t kGroBuffer = 65536;
constexpr size_t kMostPerVisit = 64;

struct Options {
  std::string to = "127.0.0.1";
  uint16_t port = 7300;
  size_t segment = 4160;
  size_t per_visit = 15;
  size_t ports = 1;
  double seconds = 1;
  int buffers = 64 << 20;
  bool crc = false;
  bool json = false;
  bool unconnected = false;
  std::vector<int> pin;
};

struct Result {
  uint64_t bytes = 0;  ///< UDP payload
  uint64_t packets = 0;
  uint64_t bad = 0;
  double seconds = 0;
  double cpu = 0;

  double gbit() const { return seconds > 0 ? static_cast<double>(bytes) * 8e-9 / seconds : 0; }
  double cpu_per_gb() const { return bytes != 0 ? cpu * 1e9 / static_cast<double>(bytes) : 0; }
};

[[noreturn]] void die(const std::string& what) {
  fmt::print(stderr, "udp_limit: {}: {}\n", what, strerror(errno));
  exit(1);
}

double cpu_seconds() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  return static_cast<double>(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

std::byte* make_area(size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) die("mmap");
  madvise(p, size, MADV_HUGEPAGE);
  std::memset(p, 1, size);
  return static_cast<std::byte*>(p);
}

void pin_to(const Options& o, size_t index) {
  if (index >= o.pin.size()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(o.pin[index]), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("pinning");
}

void set(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

int make_socket(int family, int buffers) {
  const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  for (const auto& [force, plain] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (setsockopt(fd, SOL_SOCKET, force, &buffers, sizeof buffers) != 0) {
      set(fd, SOL_SOCKET, plain, buffers);
    }
  }
  return fd;
}

/// Where payload goes to or comes from: around the whole area, aligned like user memory.
class Cursor {
 public:
  explicit Cursor(std::byte* area) : area_(area) {}
  std::byte* take(size_t size) {
    if (at_ + size > kArea) at_ = 0;
    std::byte* p = area_ + at_;
    at_ += (size + 63) & ~size_t{63};
    return p;
  }

 private:
  std::byte* area_;
  size_t at_ = 0;
};

size_t take_packets(const Options& o, std::byte* buffer, size_t n, size_t segment, Cursor& to,
                    Result& out) {
  size_t packets = 0;
  for (size_t at = 0; at < n; at += segment, ++packets) {
    const std::span<const std::byte> packet{buffer + at, std::min(segment, n - at)};
    if (o.crc && driver::verify_crc(packet).empty()) {
      ++out.bad;
      continue;
    }
    if (packet.size() <= kAround) continue;
    const size_t payload = packet.size() - kAround;
    std::memcpy(to.take(payload), packet.data() + kHeader, payload);
  }
  return packets;
}

/// Receives until nothing came for 0.4 s. `ready` is told when the socket is bound.
Result receive(const Options& o, int ready) {
  pin_to(o, 1);
  const int fd = make_socket(AF_INET6, o.buffers);
  set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(o.port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
    die("port " + std::to_string(o.port));
  }
  set(fd, SOL_UDP, UDP_GRO, 1);
  set(fd, IPPROTO_IP, IP_RECVTOS, 1);
  Cursor to(make_area(kArea));
  std::byte* buffer = make_area(2 * kGroBuffer);
  if (ready >= 0 && write(ready, "r", 1) != 1) die("pipe");
  pollfd waiting{fd, POLLIN, 0};
  Result out;
  if (poll(&waiting, 1, 30'000) <= 0) return out;
  const timeval idle{0, 400'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof idle);
  const Time start = now();
  Time last = start;
  const double cpu_before = cpu_seconds();
  for (;;) {
    iovec vector{buffer, kGroBuffer};
    alignas(cmsghdr) char control[128];
    msghdr m{};
    m.msg_iov = &vector;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(fd, &m, 0);
    if (n < 0) break;
    int segment = static_cast<int>(n);
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
      if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
        std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
      }
    }
    out.packets += take_packets(o, buffer, static_cast<size_t>(n),
                                static_cast<size_t>(std::max(segment, 1)), to, out);
    out.bytes += static_cast<uint64_t>(n);
    last = now();
  }
  out.cpu = cpu_seconds() - cpu_before;
  out.seconds = static_cast<double>((last - start).ns) * 1e-9;
  close(fd);
  return out;
}

/// Headers and trailers of a visit in one array, payload straight from the area.
struct Visit {
  std::vector<std::byte> headers;
  std::vector<iovec> vectors;
  msghdr message{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))];

  explicit Visit(const Options& o) : headers(o.per_visit * kAround), vectors(2 * o.per_visit + 1) {
    for (size_t i = 0; i < headers.size(); ++i) headers[i] = static_cast<std::byte>(i);
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    if (o.per_visit == 1) return;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    const auto segment = static_cast<uint16_t>(o.segment);
    std::memcpy(CMSG_DATA(c), &segment, sizeof segment);
  }

  void fill(const Options& o, Cursor& from) {
    const size_t payload = o.segment - kAround;
    std::byte* header = headers.data();
    std::byte* begin = header;
    for (size_t i = 0; i < o.per_visit; ++i) {
      std::byte* data = from.take(payload);
      header += kHeader;
      vectors[2 * i] = {begin, static_cast<size_t>(header - begin)};
      vectors[2 * i + 1] = {data, payload};
      if (o.crc) {
        driver::Crc32c crc;
        crc.add(header - kHeader, kHeader);
        crc.add(data, payload);
        const uint32_t value = htonl(crc.value());
        std::memcpy(header, &value, kTrailer);
      }
      begin = header;
      header += kTrailer;
    }
    vectors.back() = {begin, kTrailer};
  }
};

Result transmit(const Options& o) {
  pin_to(o, 0);
  const auto peers = driver::resolve(o.to, o.port);
  if (!peers) {
    fmt::print(stderr, "udp_limit: {}\n", peers.error().text);
    exit(1);
  }
  const int family = peers->front().family == 6 ? AF_INET6 : AF_INET;
  sockaddr_storage peer{};
  const socklen_t length = driver::to_sockaddr(peers->front(), family, peer);
  std::vector<int> sockets;
  for (size_t i = 0; i < o.ports; ++i) {
    sockets.push_back(make_socket(family, o.buffers));
    set(sockets.back(), IPPROTO_IP, IP_TOS, 2);
    if (o.unconnected) continue;
    if (connect(sockets.back(), reinterpret_cast<const sockaddr*>(&peer), length) != 0) {
      die("connect to " + o.to);
    }
  }
  Cursor from(make_area(kArea));
  Visit visit(o);
  if (o.unconnected) {
    visit.message.msg_name = &peer;
    visit.message.msg_namelen = length;
  }
  Result out;
  const double cpu_before = cpu_seconds();
  const Time start = now();
  const Time end = start + Duration{static_cast<int64_t>(o.seconds * 1e9)};
  Time t = start;
  for (uint64_t k = 0; t < end; ++k) {
    visit.fill(o, from);
    if (sendmsg(sockets[k % sockets.size()], &visit.message, 0) > 0) {
      out.bytes += o.segment * o.per_visit;
      out.packets += o.per_visit;
    } else if (errno != ECONNREFUSED && errno != ENOBUFS) {
      die("sendmsg");
    }
    if ((k & 15) == 15) t = now();
  }
  out.cpu = cpu_seconds() - cpu_before;
  out.seconds = static_cast<double>((t - start).ns) * 1e-9;
  return out;
}

void print(const Options& o, const char* name, const Result& r) {
  const double share = static_cast<double>(o.segment - kAround) / static_cast<double>(o.segment);
  if (o.json) {
    fmt::print(
        "{{\"end\":\"{}\",\"gbps\":{:.3f},\"goodput_gbps\":{:.3f},\"cpu_s_per_gb\":{:.4f},"
        "\"packets\":{},\"bytes\":{},\"bad\":{},\"seconds\":{:.4f},\"crc\":{},\"ports\":{},"
        "\"segment\":{},\"per_visit\":{}}}\n",
        name, r.gbit(), r.gbit() * share, r.cpu_per_gb(), r.packets, r.bytes, r.bad, r.seconds,
        o.crc, o.ports, o.segment, o.per_visit);
  } else {
    fmt::print("{} {:.2f} Gb/s, goodput {:.2f} Gb/s, {:.3f} cpu-s/GB, {} packets{}\n", name,
               r.gbit(), r.gbit() * share, r.cpu_per_gb(), r.packets,
               r.bad != 0 ? fmt::format(", {} bad", r.bad) : "");
  }
}

/// Runs `work` in a child; its result comes back through a pipe.
template <class Work>
std::pair<pid_t, int> start_child(Work work) {
  int ends[2];
  if (pipe(ends) != 0) die("pipe");
  const pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    close(ends[0]);
    const Result r = work();
    _exit(write(ends[1], &r, sizeof r) == sizeof r ? 0 : 1);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

bool finish_child(std::pair<pid_t, int> child, Result& out) {
  const bool got = read(child.second, &out, sizeof out) == sizeof out;
  int status = 0;
  waitpid(child.first, &status, 0);
  close(child.second);
  return got && status == 0;
}

int run_pair(const Options& o) {
  int ready[2];
  if (pipe(ready) != 0) die("pipe");
  const auto rx = start_child([&] { return receive(o, ready[1]); });
  close(ready[1]);
  char byte = 0;
  if (read(ready[0], &byte, 1) != 1) return 1;
  const auto tx = start_child([&] { return transmit(o); });
  Result sent;
  Result got;
  const bool sent_ok = finish_child(tx, sent);
  if (!finish_child(rx, got) || !sent_ok) return 1;
  print(o, "tx", sent);
  print(o, "rx", got);
  const double lost = sent.packets != 0
                          ? 1 - static_cast<double>(got.packets) / static_cast<double>(sent.packets)
                          : 0;
  if (!o.json) {
    fmt::print("both {:.3f} cpu-s/GB, lost {:.2f} %\n", sent.cpu_per_gb() + got.cpu_per_gb(),
               lost * 100);
  }
  return got.packets != 0 && got.bad == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app{"Raw UDP limit with segmentation and coalescing, without a protocol"};
  std::string mode;
  app.add_option("mode", mode)->required()->check(CLI::IsMember({"rx", "tx", "pair"}));
  app.add_option("--to", o.to, "address of the receiver");
  app.add_option("--port", o.port, "receiver's UDP port");
  app.add_option("--segment", o.segment, "bytes of a packet, 64 of them header and trailer")
      ->check(CLI::Range(size_t{128}, size_t{65507}));
  app.add_option("--per-visit", o.per_visit, "packets of one send call")
      ->check(CLI::Range(size_t{1}, kMostPerVisit));
  app.add_option("--ports", o.ports, "source ports")->check(CLI::Range(1, 1024));
  app.add_option("--seconds", o.seconds)->check(CLI::Range(0.01, 3600.0));
  app.add_option("--buffers", o.buffers, "socket buffer bytes asked of the kernel");
  app.add_flag("--crc", o.crc, "CRC32C over header and payload at both ends");
  app.add_flag("--unconnected", o.unconnected, "address every send, as the product does");
  app.add_option("--pin", o.pin, "cores of sender and receiver, for example 1,0")->delimiter(',');
  app.add_flag("--json", o.json, "one JSON object a line");
  CLI11_PARSE(app, argc, argv);
  if (o.segment * o.per_visit > 65507) {
    fmt::print(stderr, "udp_limit: --segment {} x --per-visit {} is more than 65507 bytes\n",
               o.segment, o.per_visit);
    return 2;
  }
  if (mode == "pair") return run_pair(o);
  print(o, mode.c_str(), mode == "rx" ? receive(o, -1) : transmit(o));
  return 0;
}

}  // namespace
}  // namespace metaroce::bench

int main(int argc, char** argv) { return metaroce::bench::run(argc, argv); }
