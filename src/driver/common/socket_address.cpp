#include "driver/common/socket_address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace metaroce::driver {
namespace {

bool is_mapped(const uint8_t* b) {
  return std::all_of(b, b + 10, [](uint8_t x) { return x == 0; }) && b[10] == 0xFF && b[11] == 0xFF;
}

uint32_t scope_of(const std::string& text) {
  uint32_t index = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, index);
  if (error == std::errc() && at == end) return index;
  return if_nametoindex(text.c_str());
}

}  // namespace

SocketAddress from_sockaddr(const sockaddr* address) {
  SocketAddress a;
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    std::memcpy(a.bytes.data(), &in.sin_addr, 4);
    a.port = ntohs(in.sin_port);
    a.family = 4;
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, address, sizeof in);
    a.port = ntohs(in.sin6_port);
    if (is_mapped(in.sin6_addr.s6_addr)) {
      std::memcpy(a.bytes.data(), in.sin6_addr.s6_addr + 12, 4);
      a.family = 4;
    } else {
      std::memcpy(a.bytes.data(), &in.sin6_addr, 16);
      a.scope = in.sin6_scope_id;
      a.family = 6;
    }
  }
  return a;
}

socklen_t to_sockaddr(const SocketAddress& address, int socket_family, sockaddr_storage& out) {
  if (socket_family == AF_INET && address.family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.bytes.data(), 4);
    std::memcpy(&out, &in, sizeof in);
    return sizeof in;
  }
  if (socket_family != AF_INET6 || (address.family != 4 && address.family != 6)) return 0;
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(address.port);
  if (address.family == 6) {
    std::memcpy(&in.sin6_addr, address.bytes.data(), 16);
    in.sin6_scope_id = address.scope;
  } else {
    in.sin6_addr.s6_addr[10] = in.sin6_addr.s6_addr[11] = 0xFF;
    std::memcpy(in.sin6_addr.s6_addr + 12, address.bytes.data(), 4);
  }
  std::memcpy(&out, &in, sizeof in);
  return sizeof in;
}

std::string to_string(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "none";
  if (address.family == 4) inet_ntop(AF_INET, address.bytes.data(), text, sizeof text);
  if (address.family == 6) inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  std::string out = text;
  if (address.scope != 0) {
    char name[IF_NAMESIZE];
    const bool known = if_indextoname(address.scope, name) != nullptr;
    out += known ? fmt::format("%{}", name) : fmt::format("%{}", address.scope);
  }
  if (address.port == 0) return out;
  if (address.family == 6) return fmt::format("[{}]:{}", out, address.port);
  return fmt::format("{}:{}", out, address.port);
}

bool is_wildcard(const SocketAddress& address) {
  return std::all_of(address.bytes.begin(), address.bytes.end(), [](uint8_t b) { return b == 0; });
}

bool is_loopback(const SocketAddress& address) {
  if (address.family == 4) return address.bytes[0] == 127;
  if (address.family != 6) return false;
  return std::all_of(address.bytes.begin(), address.bytes.end() - 1,
                     [](uint8_t b) { return b == 0; }) &&
         address.bytes[15] == 1;
}

SocketAddress parse_address(const std::string& text, uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  if (inet_pton(AF_INET, text.c_str(), &in.sin_addr) == 1) {
    return from_sockaddr(reinterpret_cast<const sockaddr*>(&in));
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  const size_t percent = text.find('%');
  const std::string host = text.substr(0, percent);
  if (inet_pton(AF_INET6, host.c_str(), &in6.sin6_addr) != 1) return {};
  if (percent != std::string::npos) {
    in6.sin6_scope_id = scope_of(text.substr(percent + 1));
    if (in6.sin6_scope_id == 0) return {};
  }
  return from_sockaddr(reinterpret_cast<const sockaddr*>(&in6));
}

}  // namespace metaroce::driver
