#include "lab/netlink.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "lab/netns.h"

namespace metaroce::lab {

namespace {

constexpr size_t kLargest = 4096;        // one request, a route with 16 hops included
constexpr uint32_t kLowerUp = 1u << 16;  // IFF_LOWER_UP, which net/if.h does not have
constexpr size_t kAtOnce = 128 * 1024;   // then they are given away

mnl_socket* raw(void* socket) { return static_cast<mnl_socket*>(socket); }
nlmsghdr* header_of(void* p) { return static_cast<nlmsghdr*>(p); }

void put_address(nlmsghdr* h, uint16_t type, const NetAddress& a) {
  mnl_attr_put(h, type, a.length(), a.bytes);
}

std::string text_of(const NetAddress& a) {
  char text[INET6_ADDRSTRLEN] = "none";
  if (a.family != 0) inet_ntop(a.family, a.bytes, text, sizeof text);
  return text;
}

ifinfomsg* put_interface(nlmsghdr* h, uint32_t interface) {
  auto* info = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(h, sizeof(ifinfomsg)));
  info->ifi_index = static_cast<int>(interface);
  return info;
}

void put_root_qdisc(nlmsghdr* h, uint32_t interface) {
  auto* q = static_cast<tcmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(tcmsg)));
  q->tcm_ifindex = static_cast<int>(interface);
  q->tcm_parent = TC_H_ROOT;
}

}  // namespace

uint8_t NetAddress::length() const { return family == AF_INET ? 4 : 16; }

NetAddress net_address(const std::string& text) {
  NetAddress a;
  a.family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  const int done = inet_pton(a.family, text.c_str(), a.bytes);
  MR_ASSERT(done == 1);
  return a;
}

Expected<Netlink, std::string> Netlink::open(int netns) {
  const InNetns inside(netns);
  if (inside.error() != 0) {
    return unexpected(
        fmt::format("cannot enter a network namespace: {}", std::strerror(inside.error())));
  }
  mnl_socket* socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
  if (socket == nullptr || mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0) {
    const std::string why = std::strerror(errno);
    if (socket != nullptr) mnl_socket_close(socket);
    return unexpected(fmt::format("cannot speak rtnetlink: {}", why));
  }
  // Errors come without the whole request, so that those of a batch fit into the socket.
  int on = 1;
  (void)mnl_socket_setsockopt(socket, NETLINK_CAP_ACK, &on, sizeof on);
  return Netlink(socket);
}

Netlink::Netlink(Netlink&& other) noexcept
    : socket_(other.socket_),
      batch_(std::move(other.batch_)),
      what_(std::move(other.what_)),
      sequence_(other.sequence_) {
  other.socket_ = nullptr;
}

Netlink::~Netlink() {
  if (socket_ != nullptr) mnl_socket_close(raw(socket_));
}

void* Netlink::begin(uint16_t type, uint16_t flags, std::string what) {
  const size_t at = batch_.size();
  batch_.resize(at + kLargest);
  nlmsghdr* h = mnl_nlmsg_put_header(batch_.data() + at);
  h->nlmsg_type = type;
  h->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  h->nlmsg_seq = sequence_ + static_cast<uint32_t>(what_.size());
  what_.push_back(std::move(what));
  return h;
}

void Netlink::end(const void* header) {
  const auto* h = static_cast<const nlmsghdr*>(header);
  MR_ASSERT(h->nlmsg_len <= kLargest);
  batch_.resize(batch_.size() - kLargest + MNL_ALIGN(h->nlmsg_len));
}

void Netlink::add_veth(const VethEnd& here, const VethEnd& there, int peer_netns, uint32_t mtu) {
  nlmsghdr* h = header_of(begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL,
                                fmt::format("veth {} to {}", here.name, there.name)));
  const auto body = [&](const VethEnd& end) {
    put_interface(h, end.index);
    mnl_attr_put_strz(h, IFLA_IFNAME, end.name.c_str());
    mnl_attr_put_u32(h, IFLA_MTU, mtu);
    if (end.mac != nullptr) mnl_attr_put(h, IFLA_ADDRESS, 6, end.mac);
    if (end.one_segment) mnl_attr_put_u32(h, IFLA_GSO_MAX_SEGS, 1);
  };
  body(here);
  nlattr* kind = mnl_attr_nest_start(h, IFLA_LINKINFO);
  mnl_attr_put_strz(h, IFLA_INFO_KIND, "veth");
  nlattr* data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
  nlattr* peer = mnl_attr_nest_start(h, VETH_INFO_PEER);
  body(there);
  mnl_attr_put_u32(h, IFLA_NET_NS_FD, static_cast<uint32_t>(peer_netns));
  mnl_attr_nest_end(h, peer);
  mnl_attr_nest_end(h, data);
  mnl_attr_nest_end(h, kind);
  end(h);
}

void Netlink::set_up(uint32_t interface, bool up) {
  nlmsghdr* h = header_of(
      begin(RTM_NEWLINK, 0, fmt::format("interface {} {}", interface, up ? "up" : "down")));
  ifinfomsg* info = put_interface(h, interface);
  info->ifi_change = IFF_UP;
  info->ifi_flags = up ? IFF_UP : 0;
  end(h);
}

void Netlink::remove(uint32_t interface) {
  nlmsghdr* h = header_of(begin(RTM_DELLINK, 0, fmt::format("interface {} away", interface)));
  put_interface(h, interface);
  end(h);
}

void Netlink::add_address(uint32_t interface, const NetAddress& address, uint8_t prefix) {
  nlmsghdr* h = header_of(begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE,
                                fmt::format("address {}/{}", text_of(address), prefix)));
  auto* a = static_cast<ifaddrmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(ifaddrmsg)));
  a->ifa_family = address.family;
  a->ifa_prefixlen = prefix;
  a->ifa_index = interface;
  a->ifa_flags = address.family == AF_INET6 ? IFA_F_NODAD : 0;  // usable at once
  put_address(h, IFA_LOCAL, address);
  put_address(h, IFA_ADDRESS, address);
  end(h);
}

void Netlink::add_route(const NetAddress& to, uint8_t prefix, const std::vector<NextHop>& hops,
                        const NetAddress& source) {
  nlmsghdr* h = header_of(begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE,
                                fmt::format("route to {}/{}", text_of(to), prefix)));
  auto* r = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(rtmsg)));
  r->rtm_family = to.family;
  r->rtm_dst_len = prefix;
  r->rtm_table = RT_TABLE_MAIN;
  r->rtm_protocol = RTPROT_STATIC;
  r->rtm_scope = RT_SCOPE_UNIVERSE;
  r->rtm_type = RTN_UNICAST;
  put_address(h, RTA_DST, to);
  if (source.family != 0) put_address(h, RTA_PREFSRC, source);
  if (hops.size() == 1) {
    put_address(h, RTA_GATEWAY, hops[0].gateway);
    mnl_attr_put_u32(h, RTA_OIF, hops[0].interface);
  } else {
    nlattr* list = mnl_attr_nest_start(h, RTA_MULTIPATH);
    for (const NextHop& hop : hops) {
      auto* n = static_cast<rtnexthop*>(mnl_nlmsg_put_extra_header(h, sizeof(rtnexthop)));
      n->rtnh_ifindex = static_cast<int>(hop.interface);
      put_address(h, RTA_GATEWAY, hop.gateway);
      n->rtnh_len = static_cast<uint16_t>(reinterpret_cast<char*>(mnl_nlmsg_get_payload_tail(h)) -
                                          reinterpret_cast<char*>(n));
    }
    mnl_attr_nest_end(h, list);
  }
  end(h);
}

void Netlink::add_local_route(uint32_t interface, const NetAddress& address) {
  nlmsghdr* h = header_of(begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE,
                                fmt::format("local route to {}", text_of(address))));
  auto* r = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(rtmsg)));
  r->rtm_family = address.family;
  r->rtm_dst_len = static_cast<uint8_t>(8 * address.length());
  r->rtm_table = RT_TABLE_LOCAL;
  r->rtm_protocol = RTPROT_STATIC;
  r->rtm_scope = address.family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  r->rtm_type = RTN_LOCAL;
  put_address(h, RTA_DST, address);
  mnl_attr_put_u32(h, RTA_OIF, interface);
  end(h);
}

void Netlink::set_tbf(uint32_t interface, uint64_t rate_bps, uint32_t queue_bytes,
                      uint32_t burst_bytes) {
  nlmsghdr* h = header_of(begin(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE,
                                fmt::format("queue of {} bit/s", rate_bps)));
  put_root_qdisc(h, interface);
  mnl_attr_put_strz(h, TCA_KIND, "tbf");
  nlattr* options = mnl_attr_nest_start(h, TCA_OPTIONS);
  tc_tbf_qopt parms{};
  const uint64_t bytes_per_second = rate_bps / 8;
  parms.rate.rate = static_cast<uint32_t>(std::min<uint64_t>(bytes_per_second, UINT32_MAX));
  parms.rate.linklayer = TC_LINKLAYER_ETHERNET;  // no rate table
  parms.limit = queue_bytes;
  mnl_attr_put(h, TCA_TBF_PARMS, sizeof parms, &parms);
  mnl_attr_put_u32(h, TCA_TBF_BURST, burst_bytes);
  if (bytes_per_second > UINT32_MAX) {
    mnl_attr_put(h, TCA_TBF_RATE64, sizeof bytes_per_second, &bytes_per_second);
  }
  mnl_attr_nest_end(h, options);
  end(h);
}

void Netlink::remove_qdisc(uint32_t interface) {
  nlmsghdr* h =
      header_of(begin(RTM_DELQDISC, 0, fmt::format("queue of interface {} away", interface)));
  put_root_qdisc(h, interface);
  end(h);
}

void Netlink::add_neighbour(uint32_t interface, const NetAddress& address, const uint8_t* mac) {
  nlmsghdr* h = header_of(begin(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE,
                                fmt::format("neighbour {}", text_of(address))));
  auto* n = static_cast<ndmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(ndmsg)));
  n->ndm_family = address.family;
  n->ndm_ifindex = static_cast<int>(interface);
  n->ndm_state = NUD_PERMANENT;
  put_address(h, NDA_DST, address);
  mnl_attr_put(h, NDA_LLADDR, 6, mac);
  end(h);
}

Expected<bool, std::string> Netlink::flush() {
  if (what_.empty()) return true;
  // Only errors are answered, and the last request, which says that all were looked at. A batch is
  // small enough that the answers of a wholly refused one fit into the socket.
  std::vector<nlmsghdr*> parts;
  for (size_t at = 0; at < batch_.size();) {
    auto* h = reinterpret_cast<nlmsghdr*>(batch_.data() + at);
    parts.push_back(h);
    at += MNL_ALIGN(h->nlmsg_len);
  }
  std::string error;
  std::vector<char> answer(size_t{64} * 1024);
  for (size_t first = 0; first < parts.size() && error.empty();) {
    size_t last = first;
    const auto* begin = reinterpret_cast<const char*>(parts[first]);
    const auto bytes = [&](size_t i) {
      return static_cast<size_t>(reinterpret_cast<const char*>(parts[i]) - begin) +
             MNL_ALIGN(parts[i]->nlmsg_len);
    };
    while (last + 1 < parts.size() && bytes(last + 1) <= kAtOnce && last - first < 255) ++last;
    parts[last]->nlmsg_flags |= NLM_F_ACK;
    if (mnl_socket_sendto(raw(socket_), begin, bytes(last)) < 0) {
      error = fmt::format("{}: {}", what_[first], std::strerror(errno));
      break;
    }
    for (bool over = false; !over;) {
      const ssize_t n = mnl_socket_recvfrom(raw(socket_), answer.data(), answer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        error = fmt::format("{}: no answer: {}", what_[first], std::strerror(errno));
        break;
      }
      int left = static_cast<int>(n);
      for (auto* h = reinterpret_cast<const nlmsghdr*>(answer.data()); mnl_nlmsg_ok(h, left);
           h = mnl_nlmsg_next(h, &left)) {
        if (h->nlmsg_type != NLMSG_ERROR) continue;
        const auto* e = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(h));
        const size_t which = h->nlmsg_seq - sequence_;
        if (e->error != 0 && error.empty() && which < what_.size()) {
          error = fmt::format("{}: {}", what_[which], std::strerror(-e->error));
        }
        over = over || which == last;
      }
    }
    first = last + 1;
  }
  sequence_ += static_cast<uint32_t>(what_.size()) + 1;
  what_.clear();
  batch_.clear();
  if (!error.empty()) return unexpected(error);
  return true;
}

Expected<std::vector<Netlink::Interface>, std::string> Netlink::interfaces() {
  ++sequence_;  // what is left of a list that was broken off has another number
  std::vector<char> buffer(size_t{64} * 1024);
  nlmsghdr* h = mnl_nlmsg_put_header(buffer.data());
  h->nlmsg_type = RTM_GETLINK;
  h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  h->nlmsg_seq = sequence_;
  static_cast<rtgenmsg*>(mnl_nlmsg_put_extra_header(h, sizeof(rtgenmsg)))->rtgen_family = AF_PACKET;
  if (mnl_socket_sendto(raw(socket_), h, h->nlmsg_len) < 0) {
    return unexpected(fmt::format("interfaces: {}", std::strerror(errno)));
  }
  std::vector<Interface> out;
  const auto take = [](const nlmsghdr* message, void* data) {
    auto& all = *static_cast<std::vector<Interface>*>(data);
    const auto* info = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message));
    Interface& i = all.emplace_back();
    i.index = static_cast<uint32_t>(info->ifi_index);
    i.up = (info->ifi_flags & IFF_UP) != 0;
    i.carrier = (info->ifi_flags & kLowerUp) != 0;
    i.running = (info->ifi_flags & IFF_RUNNING) != 0;
    const auto* end = static_cast<const char*>(mnl_nlmsg_get_payload_tail(message));
    for (const auto* a =
             static_cast<const nlattr*>(mnl_nlmsg_get_payload_offset(message, sizeof(ifinfomsg)));
         mnl_attr_ok(a, static_cast<int>(end - reinterpret_cast<const char*>(a)));
         a = mnl_attr_next(a)) {
      if (mnl_attr_get_type(a) == IFLA_IFNAME) i.name = mnl_attr_get_str(a);
      if (mnl_attr_get_type(a) != IFLA_STATS64) continue;
      rtnl_link_stats64 s{};
      std::memcpy(&s, mnl_attr_get_payload(a),
                  std::min<size_t>(sizeof s, mnl_attr_get_payload_len(a)));
      i.counters = {s.rx_packets, s.rx_bytes, s.tx_packets, s.tx_bytes};
    }
    return MNL_CB_OK;
  };
  for (int more = MNL_CB_OK; more > MNL_CB_STOP;) {
    const ssize_t n = mnl_socket_recvfrom(raw(socket_), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    more = n < 0 ? -1
                 : mnl_cb_run(buffer.data(), static_cast<size_t>(n), sequence_,
                              mnl_socket_get_portid(raw(socket_)), take, &out);
    if (more < 0 && errno == EINTR) return interfaces();  // it changed while it was listed
    if (more < 0) return unexpected(fmt::format("interfaces: {}", std::strerror(errno)));
  }
  return out;
}

}  // namespace metaroce::lab
