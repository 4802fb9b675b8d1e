// The cable of test_cable.h, and a test of it.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/assert.h"
#include "lab/netns.h"
#include "lab/test_cable.h"

namespace metaroce::lab {

namespace {

constexpr uint8_t kNearMac[6] = {2, 0, 0, 0, 0, 1}, kFarMac[6] = {2, 0, 0, 0, 0, 2};
constexpr int kPatience = 20000;  // ms, for what has to come

/// struct virtio_net_hdr, whose header is not C++.
struct AboutFrame {
  uint8_t flags, gso_type;
  uint16_t header_size, gso_size, sum_start, sum_offset;
};
constexpr uint8_t kNeedsChecksum = 1;

Expected<bool, std::string> failed(const char* what) {
  return unexpected(fmt::format("{}: {}", what, std::strerror(errno)));
}

/// A namespace in which IPv6 says nothing of its own accord.
int make_netns() {
  const int back = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (unshare(CLONE_NEWNET) != 0) {
    close(back);
    return -1;
  }
  const int made = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  for (const auto& [key, value] :
       {std::pair{"addr_gen_mode", "1"}, {"router_solicitations", "0"}, {"accept_dad", "0"}}) {
    const std::string file = fmt::format("/proc/sys/net/ipv6/conf/default/{}", key);
    const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, value, 1) == 1;
    MR_ASSERT(written);
    close(fd);
  }
  const bool returned = setns(back, CLONE_NEWNET) == 0;
  MR_ASSERT(returned);
  close(back);
  return made;
}

template <class T>
bool set_option(int fd, int level, int name, T value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Hosts are 1 (near) and 2.
std::string text_address(int family, int host) {
  return family == AF_INET ? fmt::format("10.0.0.{}", host) : fmt::format("fd00::{}", host);
}

Address address_of(int family, int host) {
  Address out;
  const std::string text = text_address(family, host);
  if (family == AF_INET) {
    auto* a = reinterpret_cast<sockaddr_in*>(&out.storage);
    a->sin_family = AF_INET;
    a->sin_port = htons(TestCable::kPort);
    inet_pton(AF_INET, text.c_str(), &a->sin_addr);
    out.length = sizeof *a;
  } else {
    auto* a = reinterpret_cast<sockaddr_in6*>(&out.storage);
    a->sin6_family = AF_INET6;
    a->sin6_port = htons(TestCable::kPort);
    inet_pton(AF_INET6, text.c_str(), &a->sin6_addr);
    out.length = sizeof *a;
  }
  return out;
}

/// Whether there is something to read, waiting for it if `count` have not come yet.
bool readable(int fd, bool wait) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, wait ? kPatience : 0) == 1;
}

int packet_socket(int netns, uint32_t interface, uint16_t protocol) {
  const InNetns inside(netns);
  if (inside.error() != 0) return -1;
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  sockaddr_ll where{};
  where.sll_family = AF_PACKET;
  where.sll_protocol = htons(protocol);
  where.sll_ifindex = static_cast<int>(interface);
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

TestCable::~TestCable() {
  for (const int fd : {near_, far_, sender_, receiver_, tap_, packets_}) {
    if (fd >= 0) close(fd);
  }
}

Expected<bool, std::string> TestCable::build(int family) {
  family_ = family;
  near_ = make_netns();
  if (near_ < 0) return failed("no network namespace");
  far_ = make_netns();
  if (far_ < 0) return failed("no network namespace");
  const auto done = add_interfaces();
  return done ? open_sockets() : done;
}

Expected<bool, std::string> TestCable::add_interfaces() {
  auto near = Netlink::open(near_);
  auto far = Netlink::open(far_);
  if (!near || !far) return unexpected(near ? far.error() : near.error());
  near->add_veth({"near", kNearMac, kNear, true}, {"far", kFarMac, kFar, true}, far_, 9000);
  auto done = near->flush();
  if (!done) return done;
  struct Side {
    Netlink& link;
    uint32_t interface;
    int host;
    const uint8_t* other_mac;
  };
  // The far end first: the one that comes up last finds its carrier there and is ready at once; the
  // other one, which is only received on, is told of it in a work queue.
  for (const Side& s : {Side{*far, kFar, 2, kNearMac}, Side{*near, kNear, 1, kFarMac}}) {
    const NetAddress own = net_address(text_address(family_, s.host));
    const NetAddress other = net_address(text_address(family_, 3 - s.host));
    s.link.set_up(1);
    s.link.set_up(s.interface);
    if (family_ == AF_INET) {
      s.link.add_address(s.interface, own, 24);
      s.link.add_neighbour(s.interface, other, s.other_mac);
    } else {
      // On the loopback: for an address of the cable the kernel would send reports of MLD.
      const NetAddress gateway = net_address("fe80::1");
      s.link.add_address(1, own, 128);
      s.link.add_local_route(1, own);
      s.link.add_neighbour(s.interface, gateway, s.other_mac);
      s.link.add_route(other, 128, {{gateway, s.interface}}, own);
    }
    done = s.link.flush();
    if (!done) return done;
  }
  netlink_.emplace(std::move(*near));
  return true;
}

Expected<bool, std::string> TestCable::open_sockets() {
  const auto udp = [&](int netns) {
    const InNetns inside(netns);
    return inside.error() != 0 ? -1 : socket(family_, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  };
  sender_ = udp(near_);
  receiver_ = udp(far_);
  packets_ = packet_socket(near_, kNear, 0);
  if (sender_ < 0 || receiver_ < 0 || packets_ < 0) return failed("no socket");
  const Address near = address_of(family_, 1), far = address_of(family_, 2);
  const bool v4 = family_ == AF_INET;
  if (bind(sender_, near.get(), near.length) != 0 || bind(receiver_, far.get(), far.length) != 0 ||
      connect(sender_, far.get(), far.length) != 0 ||
      !set_option(receiver_, SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20) ||
      !set_option(receiver_, v4 ? int{IPPROTO_IP} : int{IPPROTO_IPV6},
                  v4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1)) {
    return failed("a socket is not as it should be");
  }
  return true;
}

uint32_t TestCable::frame_bytes(size_t payload) const {
  return static_cast<uint32_t>(ETH_HLEN + (family_ == AF_INET ? 20 : 40) + 8 + payload);
}

void TestCable::set_checksum_offload(bool on) {
  ethtool_value value{ETHTOOL_STXCSUM, on};
  ifreq request{};
  std::strcpy(request.ifr_name, "near");
  request.ifr_data = reinterpret_cast<char*>(&value);
  ASSERT_EQ(ioctl(sender_, SIOCETHTOOL, &request), 0) << std::strerror(errno);
}

void TestCable::set_checksum_sent(bool on) {
  ASSERT_TRUE(set_option(sender_, SOL_SOCKET, SO_NO_CHECK, int{!on})) << std::strerror(errno);
}

void TestCable::set_class(uint8_t traffic_class) {
  const int value = traffic_class;
  const bool set = family_ == AF_INET ? set_option(sender_, IPPROTO_IP, IP_TOS, value)
                                      : set_option(sender_, IPPROTO_IPV6, IPV6_TCLASS, value);
  ASSERT_TRUE(set) << std::strerror(errno);
}

void TestCable::send(const std::vector<uint8_t>& payload) const {
  ASSERT_EQ(::send(sender_, payload.data(), payload.size(), 0),
            static_cast<ssize_t>(payload.size()))
      << std::strerror(errno);
}

void TestCable::send_numbered(uint32_t count, size_t bytes) const {
  std::vector<uint8_t> payload(bytes, 0x5a);
  for (uint32_t i = 0; i < count; ++i) {
    std::memcpy(payload.data(), &i, sizeof i);
    ASSERT_NO_FATAL_FAILURE(send(payload));
  }
}

void TestCable::send_super(uint32_t count, uint16_t bytes) const {
  std::vector<uint8_t> payload(size_t{count} * bytes, 0x5a);
  ASSERT_TRUE(set_option(sender_, IPPROTO_UDP, UDP_SEGMENT, int{bytes})) << std::strerror(errno);
  ASSERT_NO_FATAL_FAILURE(send(payload));
  ASSERT_TRUE(set_option(sender_, IPPROTO_UDP, UDP_SEGMENT, 0)) << std::strerror(errno);
}

void TestCable::send_foreign() const {
  uint8_t frame[60] = {};
  std::memcpy(frame, kFarMac, 6);
  std::memcpy(frame + 6, kNearMac, 6);
  frame[12] = 0x88;
  frame[13] = 0xb5;  // for experiments
  ASSERT_EQ(::send(packets_, frame, sizeof frame, 0), static_cast<ssize_t>(sizeof frame))
      << std::strerror(errno);
}

std::vector<Datagram> TestCable::receive(size_t count) const {
  std::vector<Datagram> out;
  std::vector<uint8_t> room(16384);
  alignas(cmsghdr) char control[128];
  while (readable(receiver_, out.size() < count)) {
    iovec part{room.data(), room.size()};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(receiver_, &m, 0);
    if (n < 0) break;
    Datagram& d = out.emplace_back();
    d.data.assign(room.begin(), room.begin() + n);
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
      int value = 0;
      if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
        std::memcpy(&value, CMSG_DATA(c), sizeof value);
      } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
        value = *CMSG_DATA(c);
      }
      d.traffic_class = static_cast<uint8_t>(value);
    }
  }
  return out;
}

void TestCable::tap() {
  tap_ = packet_socket(far_, kFar, ETH_P_ALL);
  ASSERT_GE(tap_, 0) << std::strerror(errno);
  ASSERT_TRUE(set_option(tap_, SOL_PACKET, PACKET_VNET_HDR, 1) &&
              set_option(tap_, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) &&
              set_option(tap_, SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20));
}

std::vector<Frame> TestCable::tapped(size_t count) const {
  std::vector<Frame> out;
  std::vector<uint8_t> room(16384);
  while (readable(tap_, out.size() < count)) {
    const ssize_t n = recv(tap_, room.data(), room.size(), 0);
    AboutFrame about{};
    if (n < static_cast<ssize_t>(sizeof about)) break;
    std::memcpy(&about, room.data(), sizeof about);
    Frame& f = out.emplace_back();
    f.bytes.assign(room.begin() + sizeof about, room.begin() + n);
    f.completed = (about.flags & kNeedsChecksum) != 0;
    if (!f.completed) continue;
    // What stands in the field, the sum of the pseudo-header, is summed up with the rest.
    const uint16_t sum = static_cast<uint16_t>(
        ~checksum_of(f.bytes.data() + about.sum_start, f.bytes.size() - about.sum_start));
    uint8_t* field = f.bytes.data() + about.sum_start + about.sum_offset;
    field[0] = static_cast<uint8_t>(sum >> 8);
    field[1] = static_cast<uint8_t>(sum);
  }
  return out;
}

uint32_t number_of(const Datagram& d) {
  uint32_t n = UINT32_MAX;
  if (d.data.size() >= sizeof n) std::memcpy(&n, d.data.data(), sizeof n);
  return n;
}

uint16_t checksum_of(const uint8_t* bytes, size_t size, uint32_t sum) {
  for (size_t i = 0; i < size; ++i) sum += i % 2 == 0 ? uint32_t{bytes[i]} << 8 : bytes[i];
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

namespace {

TEST(TestCable, CarriesWhatIsSentAndNothingElse) {
  if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  for (const int family : {AF_INET, AF_INET6}) {
    TestCable cable;
    const auto built = cable.build(family);
    ASSERT_TRUE(built) << built.error();
    cable.tap();
    cable.set_class(0xb9);
    cable.send_numbered(100, 200);
    const auto got = cable.receive(100);
    ASSERT_EQ(got.size(), 100u);
    EXPECT_EQ(number_of(got[99]), 99u);
    EXPECT_EQ(got[99].traffic_class, 0xb9);
    const auto frames = cable.tapped(100);
    ASSERT_EQ(frames.size(), 100u);
    EXPECT_EQ(frames[0].bytes.size(), cable.frame_bytes(200));
    const auto counters = cable.netlink().interfaces();
    ASSERT_TRUE(counters) << counters.error();
    for (const auto& i : *counters) {
      EXPECT_EQ(i.counters.tx_packets, i.name == "near" ? 100u : 0u) << i.name;
      EXPECT_EQ(i.counters.rx_packets, 0u) << i.name;
    }
  }
}

}  // namespace

}  // namespace metaroce::lab
