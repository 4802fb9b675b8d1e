// What the tests of the UDP driver share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "driver/common/socket_address.h"
#include "driver/udp/udp_driver.h"

namespace metaroce::driver::test {

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(size_t n, uint64_t seed) {
  Rng rng(seed);
  Bytes out(n);
  for (auto& b : out) b = static_cast<std::byte>(rng.next());
  return out;
}

inline UdpOptions options_for(std::initializer_list<const char*> addresses) {
  UdpOptions o;
  for (const char* a : addresses) o.local.push_back(parse_address(a, 0));
  o.port = 0;
  return o;
}

inline std::unique_ptr<UdpDriver> open(const UdpOptions& options) {
  auto driver = UdpDriver::open(options);
  if (!driver) {
    ADD_FAILURE() << driver.error().text;
    return nullptr;
  }
  return std::move(*driver);
}

struct Shape {
  uint8_t count = 1;
  uint16_t header = 44;
  uint32_t payload = 1000;
  uint32_t last_payload = 1000;
  bool zeros = false;
};

/// A source port of this process: tests run side by side.
inline uint16_t test_port(uint8_t path) {
  return static_cast<uint16_t>(20000 + (getpid() % 700) * 16 + path % 16);
}

/// A run whose headers are random but for the path id; payload from `memory`.
inline engine::TxRun make_run(const UdpDriver& from, size_t plane, const SocketAddress& to,
                              const Shape& shape, const Bytes& memory, uint8_t path = 0) {
  engine::TxRun run;
  run.from = from.local()[plane];
  run.from.port = test_port(path);
  run.to = to;
  run.plane = static_cast<uint8_t>(plane);
  run.path = path;
  run.connection = 5;
  run.count = shape.count;
  run.is_data = true;
  Rng rng(shape.payload * 31 + path);
  size_t at = 0;
  size_t offset = 0;
  for (size_t i = 0; i < run.count; ++i) {
    run.header_length[i] = shape.header;
    run.payload_length[i] = i + 1 == run.count ? shape.last_payload : shape.payload;
    run.payload[i] = shape.zeros ? nullptr : memory.data() + offset;
    offset += run.payload_length[i];
    for (size_t k = 0; k < shape.header; ++k) {
      run.headers[at + k] = static_cast<std::byte>(rng.next());
    }
    run.headers[at + 2] = static_cast<std::byte>(path);
    at += shape.header + 4u;
  }
  return run;
}

/// What packet `i` must look like at the receiver.
inline Bytes expected_bytes(const engine::TxRun& run, size_t i) {
  size_t at = 0;
  for (size_t k = 0; k < i; ++k) at += run.header_length[k] + 4u;
  const size_t header = run.header_length[i];
  Bytes out(header + run.payload_length[i]);
  std::memcpy(out.data(), run.headers + at, header);
  if (run.payload[i] != nullptr) {
    std::memcpy(out.data() + header, run.payload[i], run.payload_length[i]);
  }
  return out;
}

struct Received {
  Bytes bytes;
  Ecn ecn = Ecn::kNotEct;
  uint8_t plane = 0;
  SocketAddress from;
};

/// Receives until `enough` says so; a test that waits for what never comes fails after 10 s.
inline std::vector<Received> receive_until(
    UdpDriver& driver, const std::function<bool(const std::vector<Received>&)>& enough) {
  std::vector<Received> out;
  const Time limit = now() + seconds(10);
  while (!enough(out)) {
    const Time t = now();
    if (t > limit) {
      ADD_FAILURE() << "only " << out.size() << " packets arrived";
      break;
    }
    const auto packets = driver.receive(t);
    for (const auto& p : packets) {
      out.push_back({{p.bytes.begin(), p.bytes.end()}, p.ecn, p.plane, p.from});
    }
    if (packets.empty()) driver.wait_until(limit + seconds(1), -1, milliseconds(20));
  }
  return out;
}

inline std::vector<Received> receive_count(UdpDriver& driver, size_t n) {
  return receive_until(driver, [n](const auto& list) { return list.size() >= n; });
}

/// Receives until the kernel has handed over `datagrams` and the injector holds nothing back.
inline std::vector<Received> receive_datagrams(UdpDriver& driver, uint64_t datagrams) {
  return receive_until(driver, [&](const auto&) {
    return driver.counters().rx_datagrams >= datagrams &&
           driver.rx_faults().next_release() == kNever;
  });
}

/// A kernel that fails on demand.
class FailingSyscalls : public Syscalls {
 public:
  /// Asked for every send: the errno to fail with, or 0 for the real call.
  std::function<int(const msghdr&, bool segmented)> on_send;
  /// Asked for every receive of data, likewise.
  std::function<int()> on_receive;
  int receive_flags = 0;  ///< added to what a successful receive reports
  bool allow_force = true;
  uint64_t sends = 0;

  static bool is_segmented(const msghdr& message) {
    for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
         c = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(c))) {
      if (c->cmsg_level == 17 /* SOL_UDP */ && c->cmsg_type == 103 /* UDP_SEGMENT */) return true;
    }
    return false;
  }

  ssize_t sendmsg(int fd, const msghdr* message, int flags) override {
    ++sends;
    const int code = on_send ? on_send(*message, is_segmented(*message)) : 0;
    if (code == 0) return Syscalls::sendmsg(fd, message, flags);
    errno = code;
    return -1;
  }
  ssize_t recvmsg(int fd, msghdr* message, int flags) override {
    const bool data = (flags & MSG_ERRQUEUE) == 0;
    const int code = data && on_receive ? on_receive() : 0;
    if (code != 0) {
      errno = code;
      return -1;
    }
    const ssize_t n = Syscalls::recvmsg(fd, message, flags);
    if (n >= 0 && data) message->msg_flags |= receive_flags;
    return n;
  }
  int setsockopt(int fd, int level, int name, const void* value, socklen_t length) override {
    const bool force = name == SO_RCVBUFFORCE || name == SO_SNDBUFFORCE;
    if (level == SOL_SOCKET && force && !allow_force) {
      errno = EPERM;
      return -1;
    }
    return Syscalls::setsockopt(fd, level, name, value, length);
  }
};

}  // namespace metaroce::driver::test
