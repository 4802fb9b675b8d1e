#include "lab/capture.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace metaroce::lab {

namespace {

// The classic format with times in ns: a header of the file, then one of each packet.
struct FileHeader {
  uint32_t magic = 0xA1B23C4D;
  uint16_t major = 2, minor = 4;
  int32_t zone = 0;
  uint32_t accuracy = 0;
  uint32_t snap = 0;
  uint32_t link_type = 1;  // Ethernet
};
struct PacketHeader {
  uint32_t seconds, nanoseconds, kept, length;
};

volatile sig_atomic_t g_stop = 0;
void stop(int) { g_stop = 1; }

std::string reason() { return std::strerror(errno); }

Expected<int, std::string> packet_socket(const std::string& interface) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) return unexpected(fmt::format("interface {}: {}", interface, reason()));
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);  // of no interface yet
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const std::string why = reason();
    if (fd >= 0) close(fd);
    return unexpected(fmt::format("interface {}: {}", interface, why));
  }
  const int on = 1, room = 16 << 20;
  (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0) {
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  }
  return fd;
}

timespec stamp_of(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec t;
    std::memcpy(&t, CMSG_DATA(c), sizeof t);
    return t;
  }
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

/// One that is gone may have become the end of a wire, with the same name.
bool follow(const std::string& interface, int& fd) {
  close(fd);
  for (fd = -1; fd < 0 && g_stop == 0;) {
    const auto again = packet_socket(interface);
    if (again) {
      fd = *again;
    } else {
      ::usleep(10'000);
    }
  }
  return fd >= 0;
}

uint64_t missed_by(int fd) {
  tpacket_stats stats{};
  socklen_t size = sizeof stats;
  return getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0 ? stats.tp_drops : 0;
}

bool write_packet(std::FILE* out, uint32_t snap, const timespec& t, const char* bytes,
                  uint32_t length, size_t held) {
  const uint32_t kept = std::min({length, snap, static_cast<uint32_t>(held)});
  const PacketHeader h{static_cast<uint32_t>(t.tv_sec), static_cast<uint32_t>(t.tv_nsec), kept,
                       length};
  // A reader at the other end of a pipe wants to see it now.
  return std::fwrite(&h, sizeof h, 1, out) == 1 && std::fwrite(bytes, kept, 1, out) == 1 &&
         std::fflush(out) == 0;
}

}  // namespace

Expected<Captured, std::string> capture(const CaptureOptions& options) {
  const auto opened = packet_socket(options.interface);
  if (!opened) return unexpected(opened.error());
  int fd = *opened;
  // Signals come while it waits and at no other time: none is between the look and the wait.
  sigset_t ours, before;
  sigemptyset(&ours);
  struct sigaction action {};
  action.sa_handler = stop;
  for (const int s : {SIGINT, SIGTERM}) {
    sigaddset(&ours, s);
    sigaction(s, &action, nullptr);
  }
  sigprocmask(SIG_BLOCK, &ours, &before);
  FileHeader header;
  header.snap = options.snap == 0 ? 262'144 : options.snap;
  bool good =
      std::fwrite(&header, sizeof header, 1, options.out) == 1 && std::fflush(options.out) == 0;
  std::vector<char> packet(size_t{256} * 1024);
  alignas(cmsghdr) char control[256];
  Captured got;
  while (good && g_stop == 0 && (options.packets == 0 || got.packets < options.packets)) {
    pollfd wait{fd, POLLIN, 0};
    if (ppoll(&wait, 1, nullptr, &before) < 0) continue;
    iovec part{packet.data(), packet.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(fd, &message, MSG_TRUNC | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) {
      sigprocmask(SIG_SETMASK, &before, nullptr);
      const bool there = follow(options.interface, fd);
      sigprocmask(SIG_BLOCK, &ours, nullptr);
      if (!there) break;
      continue;
    }
    good = write_packet(options.out, header.snap, stamp_of(message), packet.data(),
                        static_cast<uint32_t>(n), packet.size());
    ++got.packets;
  }
  const std::string why = reason();
  if (fd >= 0) {
    got.missed = missed_by(fd);
    close(fd);
  }
  if (!good) return unexpected(fmt::format("cannot write: {}", why));
  return got;
}

}  // namespace metaroce::lab
