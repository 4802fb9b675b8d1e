// The transmit sockets: one a plane and source port, made when first needed. Internal.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "driver/common/loop.h"
#include "driver/common/syscalls.h"
#include "driver/udp/udp_options.h"

namespace metaroce::driver {

/// Who used a socket lately: names the path when an ICMP error names only the destination.
struct Sender {
  SocketAddress to;
  uint32_t connection = 0;
  uint8_t path = 0;
};

struct TxSocket {
  int fd = -1;
  int family = 0;
  uint8_t plane = 0;
  bool shared = false;  ///< the plane's service socket
  bool writable_wanted = false;
  uint16_t wanted_port = 0;
  uint16_t port = 0;
  Time last_used{};
  std::array<Sender, 8> senders{};
  uint8_t next_sender = 0;

  void note_sender(const SocketAddress& to, uint32_t connection, uint8_t path);
  const Sender* find_sender(const SocketAddress& to) const;
};

class TxSockets {
 public:
  TxSockets(Syscalls& calls, Loop& loop, UdpCounters& counters, uint32_t cap, uint32_t buffer);
  ~TxSockets();

  /// The service socket of the next plane; sends without an own socket leave from it.
  void add_plane(const SocketAddress& local, int fd, int family);
  /// Never null. The socket for this source port, or the plane's shared one.
  TxSocket* get(uint8_t plane, uint16_t port, Time now);
  /// The transmit socket with this descriptor; null for another descriptor.
  TxSocket* by_fd(int fd) const;
  TxSocket* shared(uint8_t plane) { return planes_[plane].shared.get(); }
  void want_writable(TxSocket& socket, bool wanted);
  uint32_t open() const { return open_; }
  size_t planes() const { return planes_.size(); }

 private:
  struct Plane {
    SocketAddress local;
    std::unique_ptr<TxSocket> shared;
    std::unordered_map<uint16_t, std::unique_ptr<TxSocket>> by_port;
    Time no_retry_before{};  // after a failure, for a while, everything goes out shared
  };
  TxSocket* open_one(Plane& plane, uint8_t index, uint16_t port, Time now);
  bool make_room(Time now);
  void enter(TxSocket* socket);

  Syscalls& calls_;
  Loop& loop_;
  UdpCounters& counters_;
  uint32_t cap_;
  uint32_t buffer_;
  uint32_t open_ = 0;
  std::vector<Plane> planes_;
  std::vector<TxSocket*> by_fd_;
};

}  // namespace metaroce::driver
