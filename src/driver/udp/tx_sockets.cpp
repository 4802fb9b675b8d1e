#include "driver/udp/tx_sockets.h"

#include <unistd.h>

#include <cerrno>

#include "base/assert.h"
#include "driver/udp/socket_setup.h"

namespace metaroce::driver {
namespace {

// A socket used within this time is not closed for another: closing and opening in turns would
// cost more than sending from the shared one.
constexpr Duration kBusy = seconds(5);
constexpr Duration kRetryOpen = milliseconds(100);

}  // namespace

void TxSocket::note_sender(const SocketAddress& to, uint32_t connection, uint8_t path) {
  const size_t last = (next_sender + senders.size() - 1) % senders.size();
  const auto same = [&](const Sender& s) {
    return s.connection == connection && s.path == path && s.to == to;
  };
  if (same(senders[last])) return;
  for (const Sender& s : senders) {
    if (same(s)) return;
  }
  senders[next_sender] = {to, connection, path};
  next_sender = static_cast<uint8_t>((next_sender + 1) % senders.size());
}

const Sender* TxSocket::find_sender(const SocketAddress& to) const {
  // The newest first: a second connection to the same peer is the one that is being set up.
  for (size_t k = 1; k <= senders.size(); ++k) {
    const Sender& s = senders[(next_sender + senders.size() - k) % senders.size()];
    if (s.to.family != 0 && s.to.same_host(to) && s.to.port == to.port) return &s;
  }
  return nullptr;
}

TxSockets::TxSockets(Syscalls& calls, Loop& loop, UdpCounters& counters, uint32_t cap,
                     uint32_t buffer)
    : calls_(calls), loop_(loop), counters_(counters), cap_(cap), buffer_(buffer) {}

TxSockets::~TxSockets() {
  for (Plane& plane : planes_) {
    for (auto& [port, socket] : plane.by_port) close(socket->fd);
  }
}

void TxSockets::enter(TxSocket* socket) {
  const auto index = static_cast<size_t>(socket->fd);
  if (by_fd_.size() <= index) by_fd_.resize(index + 64, nullptr);
  by_fd_[index] = socket;
}

void TxSockets::add_plane(const SocketAddress& local, int fd, int family) {
  Plane plane;
  plane.local = local;
  plane.shared = std::make_unique<TxSocket>();
  plane.shared->fd = fd;
  plane.shared->family = family;
  plane.shared->plane = static_cast<uint8_t>(planes_.size());
  plane.shared->shared = true;
  plane.shared->wanted_port = plane.shared->port = local.port;
  enter(plane.shared.get());
  planes_.push_back(std::move(plane));
}

TxSocket* TxSockets::by_fd(int fd) const {
  const auto index = static_cast<size_t>(fd);
  return fd >= 0 && index < by_fd_.size() ? by_fd_[index] : nullptr;
}

TxSocket* TxSockets::get(uint8_t plane_index, uint16_t port, Time now) {
  MR_ASSERT(plane_index < planes_.size());
  Plane& plane = planes_[plane_index];
  TxSocket* socket = plane.shared.get();
  if (port != plane.local.port) {
    const auto found = plane.by_port.find(port);
    socket = found != plane.by_port.end() ? found->second.get()
                                          : open_one(plane, plane_index, port, now);
    if (socket == nullptr) {
      ++counters_.shared_sends;
      socket = plane.shared.get();
    }
  }
  socket->last_used = now;
  return socket;
}

TxSocket* TxSockets::open_one(Plane& plane, uint8_t index, uint16_t port, Time now) {
  if (now < plane.no_retry_before) return nullptr;
  if (open_ >= cap_ && !make_room(now)) {
    plane.no_retry_before = now + kRetryOpen;  // looking through all of them costs too much
    return nullptr;
  }
  SocketAddress local = plane.local;
  local.port = port;
  auto made = open_transmit_socket(calls_, local, buffer_);
  if (!made && (made.error() == EADDRINUSE || made.error() == EACCES)) {
    // The number is only entropy for the network; nothing is identified by it.
    local.port = 0;
    made = open_transmit_socket(calls_, local, buffer_);
    if (made) ++counters_.ports_substituted;
  }
  if (!made) {
    plane.no_retry_before = now + kRetryOpen;
    return nullptr;
  }
  auto socket = std::make_unique<TxSocket>();
  socket->fd = made->fd;
  socket->family = made->family;
  socket->plane = index;
  socket->wanted_port = port;
  socket->port = made->port;
  socket->last_used = now;
  loop_.add(socket->fd, true, false);
  enter(socket.get());
  ++open_;
  ++counters_.tx_sockets_opened;
  return (plane.by_port[port] = std::move(socket)).get();
}

bool TxSockets::make_room(Time now) {
  TxSocket* oldest = nullptr;
  for (Plane& plane : planes_) {
    for (auto& [port, socket] : plane.by_port) {
      if (socket->writable_wanted) continue;
      if (oldest == nullptr || socket->last_used < oldest->last_used) oldest = socket.get();
    }
  }
  if (oldest == nullptr || now - oldest->last_used < kBusy) return false;
  loop_.remove(oldest->fd);
  close(oldest->fd);
  by_fd_[static_cast<size_t>(oldest->fd)] = nullptr;
  planes_[oldest->plane].by_port.erase(oldest->wanted_port);
  --open_;
  ++counters_.tx_sockets_closed;
  return true;
}

void TxSockets::want_writable(TxSocket& socket, bool wanted) {
  if (socket.writable_wanted == wanted) return;
  socket.writable_wanted = wanted;
  // The service sockets stand in the receive set; their users look again after a moment.
  if (!socket.shared) loop_.change(socket.fd, true, wanted);
}

}  // namespace metaroce::driver
