#include "driver/common/resolve.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "driver/common/socket_address.h"

namespace metaroce::driver {
namespace {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

Error bad(std::string_view text, const std::string& cause, const std::string& remedy) {
  return {0, fmt::format("address \"{}\": {}; {}", text, cause, remedy)};
}

Expected<uint16_t, Error> parse_port(std::string_view text, std::string_view port) {
  uint32_t value = 0;
  const auto [at, error] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (error != std::errc() || at != port.data() + port.size() || value == 0 || value > 65535) {
    return unexpected(bad(text, fmt::format("port \"{}\" is not a number in 1..65535", port),
                          "write HOST:PORT or leave the port out"));
  }
  return static_cast<uint16_t>(value);
}

Expected<HostPort, Error> split(std::string_view text, uint16_t default_port) {
  std::string_view host = text;
  std::string_view port;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) {
      return unexpected(bad(text, "\"[\" without \"]\"", "write [ADDRESS]:PORT"));
    }
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') {
      return unexpected(
          bad(text, fmt::format("unexpected \"{}\" behind \"]\"", rest), "write [ADDRESS]:PORT"));
    }
    if (!rest.empty()) port = rest.substr(1);
    if (!rest.empty() && port.empty()) return unexpected(parse_port(text, port).error());
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':') + 1);
    if (port.empty()) return unexpected(parse_port(text, port).error());
  }
  if (host.empty()) return unexpected(bad(text, "the host is empty", "write HOST or HOST:PORT"));
  HostPort out{std::string(host), default_port};
  if (!port.empty()) {
    const auto value = parse_port(text, port);
    if (!value) return unexpected(value.error());
    out.port = *value;
  }
  return out;
}

bool is_link_local(const SocketAddress& a) {
  return a.family == 6 && a.bytes[0] == 0xFE && (a.bytes[1] & 0xC0) == 0x80;
}

bool fits(const SocketAddress& a, Family family) {
  return family == Family::kAny || (family == Family::kIpv4) == (a.family == 4);
}

Expected<std::vector<SocketAddress>, Error> look_up_name(std::string_view text,
                                                         const HostPort& want, Family family) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_family = family == Family::kIpv4   ? AF_INET
                    : family == Family::kIpv6 ? AF_INET6
                                              : AF_UNSPEC;
  addrinfo* list = nullptr;
  const int result = getaddrinfo(want.host.c_str(), nullptr, &hints, &list);
  if (result != 0) {
    const int code = result == EAI_SYSTEM ? errno : 0;
    const std::string cause = code != 0 ? strerror(code) : gai_strerror(result);
    return unexpected(
        Error{code, fmt::format("address \"{}\": name \"{}\" was not resolved: {}; check the "
                                "spelling and the resolver, or give a numeric address",
                                text, want.host, cause)});
  }
  std::vector<SocketAddress> out;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress a = from_sockaddr(at->ai_addr);
    a.port = want.port;
    if (a.family != 0 && std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
  }
  freeaddrinfo(list);
  if (out.empty()) {
    return unexpected(bad(text, "the name has no IPv4 or IPv6 address", "give a numeric address"));
  }
  return out;
}

}  // namespace

Expected<std::vector<SocketAddress>, Error> resolve(std::string_view text, uint16_t default_port,
                                                    Family family) {
  const auto want = split(text, default_port);
  if (!want) return unexpected(want.error());
  const SocketAddress numeric = parse_address(want->host, want->port);
  if (numeric.family != 0) {
    if (!fits(numeric, family)) {
      return unexpected(
          bad(text, "is of the other address family",
              family == Family::kIpv4 ? "give an IPv4 address" : "give an IPv6 address"));
    }
    if (is_link_local(numeric) && numeric.scope == 0) {
      return unexpected(bad(text, "a link-local address is ambiguous without its interface",
                            fmt::format("write {}%INTERFACE", want->host)));
    }
    return std::vector<SocketAddress>{numeric};
  }
  const size_t percent = want->host.find('%');
  if (percent != std::string::npos) {
    const std::string scope = want->host.substr(percent + 1);
    if (parse_address(want->host.substr(0, percent), 0).family == 6) {
      return unexpected(bad(text, fmt::format("there is no interface \"{}\"", scope),
                            "see `ip link` for their names"));
    }
  }
  if (want->host.find(':') != std::string::npos) {
    return unexpected(bad(text, "is no IPv6 address", "write [ADDRESS]:PORT for IPv6"));
  }
  return look_up_name(text, *want, family);
}

}  // namespace metaroce::driver
