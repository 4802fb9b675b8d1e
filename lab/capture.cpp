#include "lab/capture.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
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
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
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

}  // namespace

Expected<uint64_t, std::string> capture(const CaptureOptions& options) {
  const auto fd = packet_socket(options.interface);
  if (!fd) return unexpected(fd.error());
  std::FILE* out = options.file == "-" ? stdout : std::fopen(options.file.c_str(), "wb");
  if (out == nullptr) {
    const std::string why = reason();
    close(*fd);
    return unexpected(fmt::format("{}: {}", options.file, why));
  }
  // Without SA_RESTART: recvmsg() returns, and what is buffered gets into the file.
  struct sigaction action {};
  action.sa_handler = stop;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  FileHeader header;
  header.snap = options.snap == 0 ? 262'144 : options.snap;
  bool good = std::fwrite(&header, sizeof header, 1, out) == 1 && std::fflush(out) == 0;
  std::vector<char> packet(size_t{256} * 1024);
  alignas(cmsghdr) char control[256];
  uint64_t count = 0;
  while (good && g_stop == 0 && (options.packets == 0 || count < options.packets)) {
    iovec part{packet.data(), packet.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(*fd, &message, MSG_TRUNC);
    if (n < 0 && (errno == EINTR || errno == ENETDOWN)) continue;  // it may come up again
    if (n < 0) break;
    const timespec t = stamp_of(message);
    const auto length = static_cast<uint32_t>(n);
    const uint32_t kept = std::min({length, header.snap, static_cast<uint32_t>(packet.size())});
    const PacketHeader h{static_cast<uint32_t>(t.tv_sec), static_cast<uint32_t>(t.tv_nsec), kept,
                         length};
    // A reader at the other end of a pipe wants to see it now.
    good = std::fwrite(&h, sizeof h, 1, out) == 1 &&
           std::fwrite(packet.data(), kept, 1, out) == 1 && std::fflush(out) == 0;
    ++count;
  }
  const std::string why = reason();
  close(*fd);
  if (out != stdout && std::fclose(out) != 0) good = false;
  if (!good) return unexpected(fmt::format("{}: {}", options.file, why));
  return count;
}

}  // namespace metaroce::lab
