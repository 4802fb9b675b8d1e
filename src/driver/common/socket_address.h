// Between SocketAddress and the kernel's sockaddr.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/address.h"

namespace metaroce::driver {

/// IPv4-mapped IPv6 addresses become family 4; other families give family 0.
SocketAddress from_sockaddr(const sockaddr* address);

/// Fills `out` for a socket of `socket_family` (AF_INET or AF_INET6; an IPv4 address becomes
/// v4-mapped on the latter). Returns its length, 0 if the families cannot meet.
socklen_t to_sockaddr(const SocketAddress& address, int socket_family, sockaddr_storage& out);

/// "10.0.0.1:28672", "[fe80::1%eth0]:28672"; without a port when it is 0.
std::string to_string(const SocketAddress& address);

bool is_wildcard(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);

/// The textual numeric address without port, scope as %name or %index; family 0 when it is none.
SocketAddress parse_address(const std::string& text, uint16_t port);

}  // namespace metaroce::driver
