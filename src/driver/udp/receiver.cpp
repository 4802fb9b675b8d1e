#include "driver/udp/receiver.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "driver/common/socket_address.h"
#include "driver/common/trailer.h"
#include "engine/placement.h"

namespace metaroce::driver {
namespace {

constexpr int kMostErrors = 8;

Ecn ecn_of(int traffic_class) { return static_cast<Ecn>(traffic_class & 3); }

SocketAddress local_of(const in_pktinfo& info) {
  SocketAddress a;
  std::memcpy(a.bytes.data(), &info.ipi_addr, 4);
  a.family = 4;
  return a;
}

SocketAddress local_of(const in6_pktinfo& info) {
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_addr = info.ipi6_addr;
  // Only a link-local source needs its interface named; routing must stay free for the others.
  if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) in.sin6_scope_id = info.ipi6_ifindex;
  return from_sockaddr(reinterpret_cast<const sockaddr*>(&in));
}

template <class T>
T load(const cmsghdr* c) {
  T value;
  std::memcpy(&value, CMSG_DATA(c), sizeof value);
  return value;
}

}  // namespace

Receiver::Receiver(Syscalls& calls, UdpCounters& counters, FaultInjector& faults,
                   bool hand_over_single)
    : calls_(calls), counters_(counters), faults_(faults), hand_over_single_(hand_over_single) {
  arena_ = std::make_unique<std::byte[]>(kArenaBytes);
  packets_.reserve(1024);
}

void Receiver::add_plane(int fd, bool wildcard) { planes_.push_back({fd, wildcard, 0}); }

std::span<const engine::RxPacket> Receiver::receive(Time now, Loop& loop,
                                                    Transmitter& transmitter) {
  packets_.clear();
  filled_ = calls_made_ = 0;
  if (faults_.enabled()) [[unlikely]] {
    faults_.recycle();
  }
  std::array<int, 32> ready{};
  size_t count = planes_.size();
  if (count > kReadDirectly) count = static_cast<size_t>(loop.ready(ready));
  // A plane is read until it is empty or the arena is used up; the next call starts with the
  // next plane, so that none waits for ever.
  for (size_t i = 0; i < count && has_space(); ++i) {
    size_t index = (next_plane_ + i) % planes_.size();
    if (planes_.size() > kReadDirectly) {
      const int fd = ready[(next_plane_ + i) % count];
      index = static_cast<size_t>(
          std::find_if(planes_.begin(), planes_.end(), [fd](auto& p) { return p.fd == fd; }) -
          planes_.begin());
      if (index == planes_.size()) continue;
    }
    while (has_space() && read_plane(now, static_cast<uint8_t>(index), transmitter)) {
      if (hand_over_single_ && packets_.size() == 1) break;
    }
  }
  ++next_plane_;
  if (faults_.enabled()) [[unlikely]] {
    RawPacket packet;
    while (faults_.release(now, packet)) admit(now, packet);
  }
  return packets_;
}

bool Receiver::read_plane(Time now, uint8_t index, Transmitter& transmitter) {
  Plane& plane = planes_[index];
  std::byte* buffer = arena_.get() + filled_;
  Arrival arrival;
  if (!call_kernel(plane, buffer, arrival, transmitter, index)) return false;
  ++calls_made_;
  filled_ += (arrival.bytes + 63) / 64 * 64;
  const size_t before = packets_.size();
  split(now, arrival, buffer, index);
  // Not from what nobody answers; a fault that is injected may keep a good packet for later.
  const bool any_good = packets_.size() != before || faults_.enabled();
  if (plane.wildcard && arrival.to.family != 0 && any_good) {
    transmitter.local_addresses(index).learn(arrival.from, arrival.to);
  }
  return true;
}

bool Receiver::call_kernel(Plane& plane, std::byte* buffer, Arrival& arrival,
                           Transmitter& transmitter, uint8_t index) {
  sockaddr_storage from;
  alignas(cmsghdr) char control[256];
  for (int errors = 0; errors < kMostErrors;) {
    iovec vector{buffer, kBufferBytes};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = calls_.recvmsg(plane.fd, &message, MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (errno != EINTR) {
        // An ICMP error of something sent from here; what was received waits behind it.
        transmitter.read_service_errors(index);
        ++errors;
      }
      continue;
    }
    arrival.bytes = static_cast<size_t>(n);
    arrival.segment = arrival.bytes;
    arrival.from = from_sockaddr(reinterpret_cast<const sockaddr*>(&from));
    read_controls(message, plane, arrival);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) ++counters_.truncated;
    ++counters_.rx_calls;
    counters_.rx_bytes += arrival.bytes;
    counters_.gro_batches += arrival.segment < arrival.bytes;
    return true;
  }
  return false;
}

void Receiver::read_controls(msghdr& message, Plane& plane, Arrival& arrival) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
      const int segment = load<int>(c);
      if (segment > 0) arrival.segment = static_cast<size_t>(segment);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
      arrival.ecn = ecn_of(load<uint8_t>(c));
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      arrival.ecn = ecn_of(load<int>(c));
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      arrival.to = local_of(load<in_pktinfo>(c));
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      arrival.to = local_of(load<in6_pktinfo>(c));
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
      const auto total = load<uint32_t>(c);
      counters_.rx_overflow += total - plane.overflow;
      plane.overflow = total;
    }
  }
}

void Receiver::split(Time now, const Arrival& arrival, std::byte* buffer, uint8_t index) {
  RawPacket packet;
  packet.ecn = arrival.ecn;
  packet.plane = index;
  packet.address = arrival.from;
  const bool faulty = faults_.enabled();
  for (size_t at = 0; at < arrival.bytes; at += arrival.segment) {
    packet.bytes = {buffer + at, std::min(arrival.segment, arrival.bytes - at)};
    ++counters_.rx_datagrams;
    if (faulty) [[unlikely]] {
      packet.ecn = arrival.ecn;
      if (faults_.apply(now, packet) == FaultInjector::Verdict::kGone) continue;
    }
    admit(now, packet);
  }
}

bool Receiver::admit_sealed(Time now, const RawPacket& packet) {
  size_t body = 0;
  switch (opener_->open(now, packet.bytes, packet.address, packet.plane, body)) {
    case engine::Opening::kPlain:
      return false;
    case engine::Opening::kOpened:
      counters_.rx_ce += packet.ecn == Ecn::kCe;
      packets_.push_back(
          {packet.bytes.first(body), packet.ecn, packet.plane, packet.address, true});
      return true;
    case engine::Opening::kDropped:
      ++counters_.tag_errors;  // MR-SEC-003
      return true;
  }
  return false;
}

void Receiver::admit(Time now, const RawPacket& packet) {
  if (opener_ != nullptr && admit_sealed(now, packet)) return;
  const auto body = verify_crc(packet.bytes);
  if (body.empty()) {
    ++counters_.crc_errors;  // MR-WIRE-008
    return;
  }
  counters_.rx_ce += packet.ecn == Ecn::kCe;
  packets_.push_back({body, packet.ecn, packet.plane, packet.address});
}

void Receiver::place(std::span<const engine::RxPacket> packets,
                     std::span<const engine::Placement> list) {
  for (const engine::Placement& p : list) {
    MR_ASSERT(p.packet < packets.size());
    const auto bytes = packets[p.packet].bytes;
    MR_ASSERT(size_t{p.payload_begin} + p.length <= bytes.size());
    counters_.placed_bytes += p.length;
    engine::carry_out(bytes, p);
  }
}

}  // namespace metaroce::driver
