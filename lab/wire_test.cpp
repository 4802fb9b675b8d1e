// Real cables between namespaces that each test makes for itself, in a process of its own.
#include "lab/wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "lab/netlink.h"

namespace metaroce::lab {
namespace {

constexpr int kDeadlineMs = 20'000;  // when a test gives up; nothing waits so long
constexpr uint16_t kPort = 4791;

Time read_clock() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{} + seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

LinkRules rules(const char* words) { return parse_rules(words).value(); }

/// What a test found wrong in its process; googletest does not hear of that.
class Findings {
 public:
  explicit Findings(int to) : to_(to) {}
  void expect(bool ok, const std::string& what) {
    if (!ok) tell(what);
  }
  template <class A, class B>
  void equal(const A& a, const B& b, const std::string& what) {
    if (!(a == b)) tell(fmt::format("{}: {} is not {}", what, a, b));
  }
  /// Ends the process: nothing after it makes sense.
  void need(bool ok, const std::string& what) {
    if (ok) return;
    tell(what + ": " + std::strerror(errno));
    _exit(0);
  }
  void skip(const std::string& why) {
    tell("skip " + why);
    _exit(0);
  }
  void tell(const std::string& line) { (void)!write(to_, (line + "\n").data(), line.size() + 1); }

 private:
  int to_;
};

void write_file(const std::string& name, const std::string& text) {
  const int fd = open(name.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, text.data(), text.size());
  close(fd);
}

/// Namespaces of its own for this process, root or not.
void enter_sandbox(Findings& f) {
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  if (uid == 0 && unshare(CLONE_NEWNET) == 0) return;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    f.skip(fmt::format("namespaces are forbidden here: {}", std::strerror(errno)));
  }
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", fmt::format("0 {} 1", uid));
  write_file("/proc/self/gid_map", fmt::format("0 {} 1", gid));
}

/// Two hosts and between them the namespace of the wire.
class World {
 public:
  World(Findings& f, bool v6) : f_(f) {
    for (int n = 0; n < 3; ++n) {
      f.need(unshare(CLONE_NEWNET) == 0, "a network namespace");
      spaces_[n] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
      f.need(spaces_[n] >= 0, "its descriptor");
      // What the kernel says by itself would be counted.
      const bool quiet = n == kWire || !v6;
      write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", quiet ? "1" : "0");
      write_file("/proc/sys/net/ipv6/conf/default/router_solicitations", "0");
      write_file("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
    }
    for (int h = 0; h < 2; ++h) {
      auto link = open_netlink(h);
      link.add_veth({"e0", mac(h), 2}, {h == 0 ? "wa" : "wb", nullptr, uint32_t(2 + h)},
                    spaces_[kWire], 9000);
      done(link.flush());
    }
    // The wire's ends first: an interface that finds its peer up takes packets at once, one that
    // has to be told of it later drops the first ones.
    auto middle = open_netlink(kWire);
    middle.set_up(2);
    middle.set_up(3);
    done(middle.flush());
    for (int h = 0; h < 2; ++h) {
      auto link = open_netlink(h);
      link.set_up(2);
      done(link.flush());
      for (const int family : {AF_INET, AF_INET6}) {
        if (family == AF_INET6 && !v6) continue;
        link.add_address(2, net_address(address(family, h)), family == AF_INET ? 24 : 64);
        link.add_neighbour(2, net_address(address(family, 1 - h)), mac(1 - h));
      }
      done(link.flush());
    }
    auto started = Wire::start(spaces_[kWire], "wa", "wb", 9000, 7);
    if (!started) f.tell(started.error());
    f.need(started.has_value(), "the wire");
    wire = std::move(*started);
  }

  static constexpr int kWire = 2;
  std::unique_ptr<Wire> wire;

  int space(int n) const { return spaces_[n]; }
  Findings& findings() { return f_; }

  static std::string address(int family, int host) {
    return fmt::format("{}{}", family == AF_INET ? "10.9.0." : "fd09::", host + 1);
  }
  static const uint8_t* mac(int host) {
    static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
    return macs[host];
  }

  sockaddr_storage socket_address(int family, int host) {
    sockaddr_storage s{};
    const NetAddress a = net_address(address(family, host));
    s.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      auto& in = reinterpret_cast<sockaddr_in&>(s);
      in.sin_port = htons(kPort);
      std::memcpy(&in.sin_addr, a.bytes, 4);
    } else {
      auto& in = reinterpret_cast<sockaddr_in6&>(s);
      in.sin6_port = htons(kPort);
      std::memcpy(&in.sin6_addr, a.bytes, 16);
    }
    return s;
  }

  /// In the host's namespace and at its address.
  int socket_of(int family, int host, int type) {
    f_.need(setns(spaces_[host], CLONE_NEWNET) == 0, "enter a host");
    const int fd = socket(family, type | SOCK_CLOEXEC, 0);
    f_.need(fd >= 0, "a socket");
    const sockaddr_storage own = socket_address(family, host);
    f_.need(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0, "bind");
    const int on = 1;
    setsockopt(fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
               family == AF_INET ? IP_RECVTOS : IPV6_RECVTCLASS, &on, sizeof on);
    return fd;
  }
  /// UDP, with the other host's as its peer.
  int udp(int family, int host) {
    const int fd = socket_of(family, host, SOCK_DGRAM);
    const sockaddr_storage peer = socket_address(family, 1 - host);
    f_.need(connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0, "connect");
    return fd;
  }

  /// Counts are published a little after what they count.
  template <class Until>
  LinkCounts counts(bool from_a, Until until) {
    const Time end = read_clock() + milliseconds(kDeadlineMs);
    LinkCounts c = wire->counts(from_a);
    while (!until(c) && read_clock() < end) {
      sched_yield();
      c = wire->counts(from_a);
    }
    f_.expect(until(c), "counts do not come to what they should be");
    return c;
  }
  LinkCounts counts_of(bool from_a, uint64_t seen) {
    return counts(from_a, [seen](const LinkCounts& c) {
      return c.seen == seen && c.seen == c.passed + c.dark + c.lost + c.full;
    });
  }

 private:
  Netlink open_netlink(int space) {
    auto opened = Netlink::open(spaces_[space]);
    f_.need(opened.has_value(), "rtnetlink");
    return std::move(*opened);
  }
  void done(const Expected<bool, std::string>& result) {
    if (!result) f_.tell(result.error());
    f_.need(result.has_value(), "rtnetlink");
  }

  Findings& f_;
  std::array<int, 3> spaces_{-1, -1, -1};
};

void close_all(std::initializer_list<int> fds) {
  for (const int fd : fds) close(fd);
}

struct Received {
  std::string bytes;
  int traffic_class = -1;
};

/// Nothing when nothing comes for so long.
std::optional<Received> receive(int fd, int within_ms = kDeadlineMs) {
  pollfd p{fd, POLLIN, 0};
  if (poll(&p, 1, within_ms) != 1) return std::nullopt;
  std::string bytes(65536, '\0');
  alignas(cmsghdr) char control[64];
  iovec into{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(fd, &message, 0);
  if (n < 0) return std::nullopt;
  Received r;
  r.bytes = bytes.substr(0, static_cast<size_t>(n));
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) r.traffic_class = *CMSG_DATA(c);
    if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      std::memcpy(&r.traffic_class, CMSG_DATA(c), sizeof(int));
    }
  }
  return r;
}

void set_class(int fd, int family, int value) {
  setsockopt(fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
             family == AF_INET ? IP_TOS : IPV6_TCLASS, &value, sizeof value);
}

std::string noise(Rng& rng, size_t size) {
  std::string s(size, '\0');
  rng.fill(std::as_writable_bytes(std::span(s)));
  return s;
}

void run(const std::function<void(Findings&)>& body) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(ends[0]);
    Findings f(ends[1]);
    enter_sandbox(f);
    body(f);
    f.tell("end");
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (said.starts_with("skip ")) GTEST_SKIP() << said.substr(5);
  EXPECT_EQ(said, "end\n");
  EXPECT_EQ(status, 0);
}

TEST(Wire, CarriesBothWaysAndBothFamiliesUnchanged) {
  run([](Findings& f) {
    World world(f, true);
    Rng rng(11);
    for (const int family : {AF_INET, AF_INET6}) {
      const int sockets[2] = {world.udp(family, 0), world.udp(family, 1)};
      for (int i = 0; i < 400; ++i) {
        const int from = static_cast<int>(rng.below(2));
        const std::string sent = noise(rng, 1 + rng.below(8900));
        const int traffic_class = static_cast<int>(rng.below(256));
        set_class(sockets[from], family, traffic_class);
        f.need(send(sockets[from], sent.data(), sent.size(), 0) >= 0, "send");
        const auto got = receive(sockets[1 - from]);
        f.need(got.has_value(), fmt::format("datagram {} comes", i));
        f.expect(got->bytes == sent, fmt::format("datagram {} is as it was", i));
        f.equal(got->traffic_class, traffic_class, "traffic class");
      }
      // In order, when many are on their way.
      for (uint32_t i = 0; i < 200; ++i) send(sockets[0], &i, sizeof i, 0);
      for (uint32_t i = 0; i < 200; ++i) {
        const auto got = receive(sockets[1]);
        f.need(got.has_value() && got->bytes.size() == sizeof i, "datagrams of a burst");
        f.expect(std::memcmp(got->bytes.data(), &i, sizeof i) == 0, "the order of a burst");
      }
      close_all({sockets[0], sockets[1]});
    }
  });
}

TEST(Wire, WhatIsMissingIsWhatItLost) {
  run([](Findings& f) {
    World world(f, false);
    world.wire->set(true, rules("loss=10%,dup=5%"));
    const int a = world.udp(AF_INET, 0), b = world.udp(AF_INET, 1);
    constexpr uint64_t kPackets = 3000;
    uint64_t got = 0, bad = 0;
    // Each batch ends when all of it is counted, so that no buffer overflows unseen.
    for (uint64_t sent = 0; sent < kPackets;) {
      for (int i = 0; i < 50; ++i) send(a, "abcdefgh", 8, 0);
      sent += 50;
      const LinkCounts c = world.counts_of(true, sent);
      for (; got < c.passed + c.duplicated; ++got) {
        const auto r = receive(b);
        f.need(r.has_value(), "what passed comes");
        bad += r->bytes != "abcdefgh";
      }
    }
    const LinkCounts c = world.counts_of(true, kPackets);
    f.expect(!receive(b, 0).has_value(), "no more than what passed");
    f.equal(bad, 0u, "changed ones");
    f.equal(c.lost, kPackets - c.passed, "lost");
    f.expect(c.lost > 150 && c.lost < 450, fmt::format("a tenth is lost: {}", c.lost));
    f.expect(c.duplicated > 50, "some come twice");
    f.equal(world.wire->counts(false).seen, 0u, "the other direction");
    // The other way has no rules, and dark is dark from the next packet on.
    for (int i = 0; i < 20; ++i) send(b, "x", 1, 0);
    for (int i = 0; i < 20; ++i) f.expect(receive(a).has_value(), "other direction");
    for (int i = 1; i <= 20; ++i) {
      world.wire->set(false, rules(i % 2 != 0 ? "dark=on" : "none"));
      send(b, "y", 1, 0);
      if (i % 2 == 0) f.expect(receive(a).has_value(), "light");
      f.equal(world.counts_of(false, 20 + static_cast<uint64_t>(i)).dark,
              static_cast<uint64_t>(i + 1) / 2, "dark");
    }
    f.expect(!receive(a, 0).has_value(), "none of the dark ones");
  });
}

TEST(Wire, NothingComesBeforeItsDelayOrOutOfOrder) {
  run([](Findings& f) {
    World world(f, true);
    world.wire->set(true, rules("delay=5ms,jitter=3ms"));
    for (const int family : {AF_INET, AF_INET6}) {
      const int a = world.udp(family, 0), b = world.udp(family, 1);
      struct Stamp {
        Time sent;
        uint32_t number;
      };
      constexpr uint32_t kPackets = 200;
      for (uint32_t i = 0; i < kPackets; ++i) {
        const Stamp stamp{read_clock(), i};
        send(a, &stamp, sizeof stamp, 0);
      }
      for (uint32_t i = 0; i < kPackets; ++i) {
        const auto r = receive(b);
        const Time now = read_clock();
        f.need(r.has_value() && r->bytes.size() == sizeof(Stamp), "a stamp comes");
        Stamp stamp{};
        std::memcpy(&stamp, r->bytes.data(), sizeof stamp);
        f.expect(now - stamp.sent >= milliseconds(5), "not before its delay");
        f.equal(stamp.number, i, "the order under jitter");
      }
      close_all({a, b});
    }
  });
}

TEST(Wire, PingGoesThereAndBack) {
  run([](Findings& f) {
    World world(f, false);
    world.wire->set(true, rules("delay=2ms"));
    world.wire->set(false, rules("delay=3ms"));
    const int a = world.udp(AF_INET, 0), b = world.udp(AF_INET, 1);
    for (uint32_t i = 0; i < 30; ++i) {
      const Time before = read_clock();
      send(a, &i, sizeof i, 0);
      const auto there = receive(b);
      f.need(there.has_value(), "there");
      send(b, there->bytes.data(), there->bytes.size(), 0);
      const auto back = receive(a);
      f.need(back.has_value(), "and back");
      f.expect(std::memcmp(back->bytes.data(), &i, sizeof i) == 0, "the same");
      f.expect(read_clock() - before >= milliseconds(5), "both delays");
    }
  });
}

TEST(Wire, LatePacketsAreOvertaken) {
  run([](Findings& f) {
    World world(f, false);
    world.wire->set(true, rules("reorder=20%:20ms"));
    const int a = world.udp(AF_INET, 0), b = world.udp(AF_INET, 1);
    for (uint32_t i = 0; i < 200; ++i) send(a, &i, sizeof i, 0);
    std::set<uint32_t> seen;
    uint32_t highest = 0;
    uint64_t overtaken = 0;
    for (uint32_t i = 0; i < 200; ++i) {
      const auto r = receive(b);
      f.need(r.has_value(), "all come");
      uint32_t number = 0;
      std::memcpy(&number, r->bytes.data(), sizeof number);
      f.expect(seen.insert(number).second, "once");
      overtaken += number < highest;
      highest = std::max(highest, number);
    }
    const LinkCounts c = world.counts_of(true, 200);
    f.expect(c.late > 0, "some are late");
    f.expect(overtaken > 0 && overtaken <= c.late,
             fmt::format("{} overtaken of {} late", overtaken, c.late));
  });
}

/// All at once, so that the wire finds them in one batch.
void send_burst(int fd, const std::string& bytes, unsigned count) {
  iovec from{const_cast<char*>(bytes.data()), bytes.size()};
  std::vector<mmsghdr> messages(count);
  for (mmsghdr& m : messages) {
    m.msg_hdr.msg_iov = &from;
    m.msg_hdr.msg_iovlen = 1;
  }
  (void)sendmmsg(fd, messages.data(), count, 0);
}

TEST(Wire, MarksBleachesAndTrimsWhatHostsTake) {
  run([](Findings& f) {
    World world(f, true);
    for (const int family : {AF_INET, AF_INET6}) {
      const int a = world.udp(family, 0), b = world.udp(family, 1);
      set_class(a, family, 0xB8 | 2);
      const std::string sent(1400, 's');
      const auto get = [&](unsigned count) {
        std::vector<Received> all;
        for (unsigned i = 0; i < count; ++i) {
          auto r = receive(b);
          f.need(r.has_value(), fmt::format("packet {} of {}", i, count));
          all.push_back(std::move(*r));
        }
        return all;
      };
      LinkCounts before = world.wire->counts(true);
      world.wire->set(true, rules("rate=10mbit,mark=4000,queue=100k"));
      send_burst(a, sent, 20);
      uint64_t marked = 0;
      for (const Received& r : get(20)) {
        f.expect(r.bytes == sent, "marked ones are as they were");
        f.expect(r.traffic_class >> 2 == 0xB8 >> 2, "DSCP stays");
        marked += (r.traffic_class & 3) == 3;
      }
      f.equal(world.wire->counts(true).marked - before.marked, marked, "marks");
      f.expect(marked > 0, "some are marked");

      world.wire->set(true, rules("bleach=on"));
      send_burst(a, sent, 20);
      for (const Received& r : get(20)) f.equal(r.traffic_class, 0xB8, "bleached");

      before = world.wire->counts(true);
      world.wire->set(true, rules("rate=1mbit,queue=3k,trim=on"));
      send_burst(a, sent, 20);
      uint64_t cut = 0;
      for (const Received& r : get(20)) {
        if (r.bytes.size() == sent.size()) continue;
        ++cut;
        // That the host took it at all says that its checksums are right.
        f.expect(r.bytes == sent.substr(0, 64), "the beginning of it");
        f.equal(r.traffic_class, 0x2A << 2 | 2, "class of a trimmed one");
      }
      f.equal(world.wire->counts(true).trimmed - before.trimmed, cut, "trimmed");
      f.expect(cut > 0, "some are trimmed");
      world.wire->set(true, {});
      close_all({a, b});
    }
  });
}

/// Of the host that has this socket. False when its interface does not have that switch.
bool checksum_offload(int fd, bool on) {
  ethtool_value value{ETHTOOL_STXCSUM, on ? 1u : 0u};
  ifreq request{};
  std::memcpy(request.ifr_name, "e0", 3);
  request.ifr_data = reinterpret_cast<char*>(&value);
  return ioctl(fd, SIOCETHTOOL, &request) == 0;
}

TEST(Wire, TheChecksumCatchesCorruptionWhenSomebodyComputesIt) {
  run([](Findings& f) {
    World world(f, true);
    world.wire->set(true, rules("corrupt=100%"));
    for (const int family : {AF_INET, AF_INET6}) {
      const int a = world.udp(family, 0), b = world.udp(family, 1);
      const std::string sent(500, '\0');
      for (int i = 0; i < 20; ++i) {
        send(a, sent.data(), sent.size(), 0);
        const auto r = receive(b);
        f.need(r.has_value(), "a corrupted one comes");
        int bits = 0;
        for (const char c : r->bytes) bits += __builtin_popcount(static_cast<unsigned char>(c));
        f.equal(bits, 1, "different bits");
      }
      f.need(checksum_offload(a, false), "no checksum offload");
      const uint64_t corrupted = world.wire->counts(true).corrupted;
      for (int i = 0; i < 20; ++i) send(a, sent.data(), sent.size(), 0);
      world.counts(true, [&](const LinkCounts& c) { return c.corrupted == corrupted + 20; });
      world.wire->set(true, {});
      send(a, "good", 4, 0);
      const auto r = receive(b);
      f.expect(r.has_value() && r->bytes == "good", "the first that comes is a good one");
      world.wire->set(true, rules("corrupt=100%"));
      f.need(checksum_offload(a, true), "checksum offload");
      close_all({a, b});
    }
  });
}

void move_stream(World& world, int family, size_t size) {
  Findings& f = world.findings();
  const int listener = world.socket_of(family, 1, SOCK_STREAM);
  f.need(listen(listener, 1) == 0, "listen");
  const int out = world.socket_of(family, 0, SOCK_STREAM | SOCK_NONBLOCK);
  const sockaddr_storage peer = world.socket_address(family, 1);
  (void)connect(out, reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
  pollfd p{listener, POLLIN, 0};
  f.need(poll(&p, 1, kDeadlineMs) == 1, "a connection");
  const int in = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  f.need(in >= 0, "accept");
  Rng rng(5);
  const std::string sent = noise(rng, size);
  std::string got(size, '\0');
  size_t done = 0, have = 0;
  while (have < size) {
    pollfd both[2] = {{in, POLLIN, 0}, {out, static_cast<short>(done < size ? POLLOUT : 0), 0}};
    f.need(poll(both, 2, kDeadlineMs) > 0, "the stream moves");
    if ((both[1].revents & POLLOUT) != 0) {
      const ssize_t n = send(out, sent.data() + done, size - done, 0);
      if (n > 0) done += static_cast<size_t>(n);
    }
    if (both[0].revents != 0) {
      const ssize_t n = recv(in, got.data() + have, size - have, 0);
      f.need(n > 0, "the stream is read");
      have += static_cast<size_t>(n);
    }
  }
  f.expect(got == sent, "a stream is as it was");
  close_all({in, out, listener});
}

TEST(Wire, CarriesSuperPacketsAsTheyAre) {
  run([](Findings& f) {
    World world(f, true);
    for (const int family : {AF_INET, AF_INET6}) {
      move_stream(world, family, 2 << 20);
      const uint64_t before = world.wire->counts(true).seen;
      const int a = world.udp(family, 0), b = world.udp(family, 1);
      const int segment = 1000;
      f.need(setsockopt(a, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0, "UDP GSO");
      std::string sent;
      for (int i = 0; i < 10; ++i) sent += std::string(segment, static_cast<char>('a' + i));
      f.need(send(a, sent.data(), sent.size(), 0) >= 0, "send");
      for (int i = 0; i < 10; ++i) {
        const auto r = receive(b);
        f.need(r.has_value(), "a segment");
        f.expect(r->bytes == sent.substr(static_cast<size_t>(i) * segment, segment), "segments");
      }
      // The hosts' own IPv6 messages may be among them.
      f.expect(world.wire->counts(true).seen - before < 5, "they were one packet");
      close_all({a, b});
    }
  });
}

int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool ended(int pidfd) {
  pollfd p{pidfd, POLLIN, 0};
  return poll(&p, 1, kDeadlineMs) == 1;
}

int files_of(int pid) {
  DIR* folder = opendir(fmt::format("/proc/{}/fd", pid).c_str());
  if (folder == nullptr) return -1;
  int files = 0;
  for (const dirent* e = readdir(folder); e != nullptr; e = readdir(folder)) {
    files += e->d_name[0] != '.';
  }
  closedir(folder);
  return files;
}

TEST(Wire, GoesWithItsObjectAndKeepsNothingOpen) {
  run([](Findings& f) {
    int ends[2];
    f.need(pipe(ends) == 0, "a pipe");
    World world(f, false);
    const int pid = world.wire->pid();
    const int process = open_pidfd(pid);
    f.need(process >= 0, "its pidfd");
    close(ends[1]);
    char byte = 0;
    f.equal(read(ends[0], &byte, 1), 0, "the carrier does not hold a pipe of ours");
    const Time end = read_clock() + milliseconds(kDeadlineMs);
    int files = files_of(pid);  // one more while it closes the one it reported through
    while (files != 6 && read_clock() < end) files = files_of(pid);
    f.equal(files, 6, "standard streams, its owner and two ports");
    // Ctrl-C does not take it away.
    kill(pid, SIGINT);
    const int a = world.udp(AF_INET, 0), b = world.udp(AF_INET, 1);
    send(a, "x", 1, 0);
    f.expect(receive(b).has_value(), "carries on");
    world.wire.reset();
    f.expect(ended(process), "ends with its object");
    f.expect(kill(pid, 0) != 0 && errno == ESRCH, "and leaves no zombie");
  });
}

TEST(Wire, GoesWithTheProcessThatHasIt) {
  run([](Findings& f) {
    int ends[2];
    f.need(pipe2(ends, O_CLOEXEC) == 0, "a pipe");
    const pid_t owner = fork();
    if (owner == 0) {
      World world(f, false);
      const int pid = world.wire->pid();
      (void)!write(ends[1], &pid, sizeof pid);
      for (;;) pause();
    }
    int pid = -1;
    const pollfd asked{ends[0], POLLIN, 0};
    pollfd p = asked;
    f.need(poll(&p, 1, kDeadlineMs) == 1, "a wire in another process");
    f.need(read(ends[0], &pid, sizeof pid) == sizeof pid, "its number");
    const int process = open_pidfd(pid);
    f.need(process >= 0, "its pidfd");
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
    f.expect(ended(process), "ends with its owner");
  });
}

TEST(Wire, StaysWhenTheThreadThatStartedItEnds) {
  run([](Findings& f) {
    World world(f, false);
    const int space = world.space(World::kWire);
    world.wire.reset();
    struct Start {
      int space;
      std::unique_ptr<Wire> wire;
    } start{space, nullptr};
    pthread_t thread{};
    const auto body = [](void* p) -> void* {
      auto& s = *static_cast<Start*>(p);
      auto started = Wire::start(s.space, "wa", "wb", 1500, 1);
      if (started) s.wire = std::move(*started);
      return nullptr;
    };
    f.need(pthread_create(&thread, nullptr, body, &start) == 0, "a thread");
    pthread_join(thread, nullptr);
    f.need(start.wire != nullptr, "a wire of a thread");
    const int a = world.udp(AF_INET, 0), b = world.udp(AF_INET, 1);
    for (int i = 0; i < 10; ++i) {
      send(a, "x", 1, 0);
      f.expect(receive(b).has_value(), "carries on");
    }
  });
}

TEST(Wire, SaysWhyItCannotStart) {
  run([](Findings& f) {
    World world(f, false);
    const auto why = [&](int space, const char* a, const char* b, uint32_t mtu) {
      const auto started = Wire::start(space, a, b, mtu, 1);
      return started ? std::string("it starts") : started.error();
    };
    const int space = world.space(World::kWire);
    const auto says = [&](const std::string& error, const char* what) {
      f.expect(error.find(what) != std::string::npos, fmt::format("'{}' in: {}", what, error));
    };
    says(why(space, "wa", "nope", 1500), "no interface 'nope'");
    says(why(space, "wa", "nope", 1500), "No such device");
    says(why(space, "a-name-that-is-too-long", "wb", 1500), "'a-name-that-is-too-long'");
    says(why(space, "wa", "wb", 9001), "wa: its MTU is 9000, the cable carries 9001");
    says(why(-1, "wa", "wb", 1500), "cannot enter the wire's namespace");
  });
}

}  // namespace
}  // namespace metaroce::lab
