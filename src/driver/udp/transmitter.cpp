#include "driver/udp/transmitter.h"

#include <fmt/core.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "driver/common/log.h"
#include "driver/common/socket_address.h"
#include "driver/common/trailer.h"
#include "secure/random.h"

namespace metaroce::driver {
namespace {

// The largest UDP payload over IPv4; IPv6 would allow 20 bytes more.
constexpr size_t kMostBytes = 65507;
// Errors that stood in the socket before our packet was looked at; each costs one repetition.
constexpr int kMostRepeats = 4;
constexpr Duration kKeepLimit = milliseconds(20);

bool is_full(int code) {
  return code == EAGAIN || code == EWOULDBLOCK || code == ENOBUFS || code == ENOMEM;
}

// Segmentation asked for and refused; the same packets may pass one by one.
bool is_gso_error(int code) {
  return code == EIO || code == EINVAL || code == EMSGSIZE || code == EOPNOTSUPP;
}

void store_control(msghdr& m, size_t& used, int level, int type, const void* value, size_t length) {
  auto* header = reinterpret_cast<cmsghdr*>(static_cast<char*>(m.msg_control) + used);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(length);
  std::memcpy(CMSG_DATA(header), value, length);
  used += CMSG_SPACE(length);
}

}  // namespace

/// One sendmsg call being put together.
struct Transmitter::Call {
  static constexpr size_t kMostVectors = 2 * kMaxRun + 1;
  std::array<iovec, kMostVectors> vectors;
  size_t vector_count = 0;
  alignas(cmsghdr) char control[160];
  sockaddr_storage to{};
  msghdr message{};
  size_t packets = 0;
  size_t bytes = 0;
  size_t segment = 0;
  int error = 0;

  void push(const std::byte* begin, size_t length) {
    if (length == 0) return;
    vectors[vector_count++] = {const_cast<std::byte*>(begin), length};
  }

  /// Takes packets from `first` on: as many as one segmented call carries, at most `most`.
  void gather(const engine::TxRun& run, size_t first, size_t most) {
    const std::byte* header = run.headers;
    for (size_t i = 0; i < first; ++i) header += run.header_length[i] + run.trailer;
    const std::byte* pending = header;  // header bytes not yet in a vector
    segment = packet_bytes(run, first);
    for (size_t i = first; i < run.count && packets < most; ++i) {
      const size_t size = packet_bytes(run, i);
      if (size > segment || (packets != 0 && bytes + size > kMostBytes)) break;
      header += run.header_length[i];
      if (run.payload_length[i] != 0) {
        push(pending, static_cast<size_t>(header - pending));
        push(run.payload[i] != nullptr ? run.payload[i] : zero_bytes(), run.payload_length[i]);
        pending = header;
      }
      header += run.trailer;
      ++packets;
      bytes += size;
      if (size < segment) break;
    }
    push(pending, static_cast<size_t>(header - pending));
  }

  bool address(const engine::TxRun& run, const TxSocket& socket, const SocketAddress* from) {
    const socklen_t length = to_sockaddr(run.to, socket.family, to);
    if (length == 0) return false;
    message.msg_name = &to;
    message.msg_namelen = length;
    message.msg_iov = vectors.data();
    message.msg_iovlen = vector_count;
    message.msg_control = control;
    size_t used = 0;
    if (packets > 1) {
      const auto size = static_cast<uint16_t>(segment);
      store_control(message, used, SOL_UDP, UDP_SEGMENT, &size, sizeof size);
    }
    if (run.ecn != Ecn::kEct0) {
      // The sockets send ECT(0) unless told otherwise. IPV6_TCLASS does nothing for a v4 peer.
      const int value = static_cast<int>(run.ecn);
      const bool v4 = run.to.family == 4;
      store_control(message, used, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS,
                    &value, sizeof value);
    }
    if (from != nullptr) source(*from, run.to.family == 4, used);
    message.msg_controllen = used;
    if (used == 0) message.msg_control = nullptr;
    return true;
  }

  void source(const SocketAddress& from, bool v4, size_t& used) {
    if (v4 != (from.family == 4)) return;
    if (v4) {
      in_pktinfo info{};
      std::memcpy(&info.ipi_spec_dst, from.bytes.data(), 4);
      store_control(message, used, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    } else {
      in6_pktinfo info{};
      std::memcpy(&info.ipi6_addr, from.bytes.data(), 16);
      info.ipi6_ifindex = from.scope;
      store_control(message, used, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
    }
  }
};

Transmitter::Transmitter(Syscalls& calls, TxSockets& sockets, UdpCounters& counters,
                         FaultInjector& faults, GsoMode gso)
    : calls_(calls),
      sockets_(sockets),
      counters_(counters),
      faults_(faults),
      gso_(gso),
      scratch_(kZeroBytes + engine::kRunHeaderBytes),
      single_(std::make_unique<engine::TxRun>()) {}

void Transmitter::add_plane(bool wildcard, uint16_t mtu) {
  secure::SystemRandom random;
  Plane plane(random);
  plane.wildcard = wildcard;
  plane.gso = gso_ != GsoMode::kOff;
  plane.mtu = mtu;
  planes_.push_back(std::move(plane));
}

size_t Transmitter::send(Time now, std::span<engine::TxRun> runs) {
  size_t sent = keeps() ? flush(now) : 0;
  for (engine::TxRun& run : runs) {
    MR_ASSERT(run.count > 0 && run.count <= kMaxRun && run.plane < planes_.size());
    if (run.session != nullptr) [[unlikely]] {
      // The kernel copies within the call, and what is kept is copied too: one buffer will do.
      sealed_.resize(std::max(sealed_.size(), payload_bytes(run)));
      seal_run(run, sealed_);
    } else {
      const bool filled = fill_trailers(run);
      MR_ASSERT(filled);
    }
    if (faults_.enabled()) [[unlikely]] {
      sent += send_with_faults(now, run);
    } else {
      sent += send_run(now, run);
    }
  }
  if (faults_.enabled()) [[unlikely]] {
    RawPacket packet;
    while (faults_.release(now, packet)) sent += send_raw(now, packet, nullptr);
    faults_.recycle();
  }
  return sent;
}

size_t Transmitter::send_run(Time now, const engine::TxRun& run) {
  if (keeps() && keeps_for(run)) {
    keep(now, run, 0);
    return 0;
  }
  TxSocket* socket = sockets_.get(run.plane, run.from.port, now);
  if (socket->shared) planes_[run.plane].used_shared = true;
  socket->note_sender(run.to, run.connection, run.path);
  size_t first = 0;
  bool full = false;
  size_t sent = send_from(run, *socket, first, full);
  if (full) {
    ++counters_.blocked;
    sockets_.want_writable(*socket, true);
    keep(now, run, first);
  }
  return sent;
}

/// Sends from packet `first` on; stops with `full` set at a packet that was not taken.
size_t Transmitter::send_from(const engine::TxRun& run, TxSocket& socket, size_t& first,
                              bool& full) {
  size_t sent = 0;
  Plane& plane = planes_[run.plane];
  while (first < run.count && !full) {
    Call call;
    call.gather(run, first, plane.gso ? kMaxRun : 1);
    switch (call_kernel(call, socket, run)) {
      case Outcome::kSent:
        sent += call.packets;
        first += call.packets;
        break;
      case Outcome::kBlocked:
        full = true;
        break;
      case Outcome::kNoGso: {
        ++counters_.gso_fallbacks;
        size_t done = first;
        const size_t passed = send_singly(run, socket, first, first + call.packets, done, full);
        // If none passed one by one either, segmentation was not the reason.
        if (passed != 0) give_up_gso(plane, run.plane, call.error);
        sent += passed;
        first = done;
        break;
      }
      case Outcome::kTooBig:
      case Outcome::kRefused:
        report(run, call.packets, call.error);
        first += call.packets;
        break;
    }
  }
  return sent;
}

size_t Transmitter::send_singly(const engine::TxRun& run, TxSocket& socket, size_t first,
                                size_t end, size_t& done, bool& full) {
  size_t sent = 0;
  size_t refused = 0;
  int error = 0;
  for (size_t i = first; i < end; ++i) {
    Call call;
    call.gather(run, i, 1);
    const Outcome outcome = call_kernel(call, socket, run);
    if (outcome == Outcome::kBlocked) {
      full = true;
      break;
    }
    if (outcome == Outcome::kSent) {
      ++sent;
    } else {
      ++refused;
      error = call.error;
    }
    done = i + 1;
  }
  if (refused != 0) report(run, refused, error);
  return sent;
}

Transmitter::Outcome Transmitter::call_kernel(Call& call, TxSocket& socket,
                                              const engine::TxRun& run) {
  Plane& plane = planes_[run.plane];
  const SocketAddress* from = plane.wildcard ? plane.local.find(run.to) : nullptr;
  if (!call.address(run, socket, from)) {
    call.error = EAFNOSUPPORT;
    return Outcome::kRefused;
  }
  for (int attempt = 0;; ++attempt) {
    if (calls_.sendmsg(socket.fd, &call.message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
      counters_.tx_datagrams += call.packets;
      counters_.tx_bytes += call.bytes;
      ++counters_.tx_calls;
      counters_.gso_batches += call.packets > 1;
      return Outcome::kSent;
    }
    call.error = errno;
    if (call.error == EINTR) continue;
    if (is_full(call.error)) {
      queue_full_ = queue_full_ || call.error == ENOBUFS || call.error == ENOMEM;
      return Outcome::kBlocked;
    }
    if (call.packets > 1 && is_gso_error(call.error)) return Outcome::kNoGso;
    if (call.error == EMSGSIZE) return Outcome::kTooBig;
    // An ICMP error of an earlier packet comes back from the next call, which sends nothing.
    read_errors(socket);
    if (attempt == kMostRepeats) return Outcome::kRefused;
    ++counters_.retried;
  }
}

void Transmitter::report(const engine::TxRun& run, size_t packets, int code) {
  Hint hint{run.connection, run.path, engine::NetworkHint::kNotSent,
            static_cast<uint32_t>(packets)};
  if (code == EMSGSIZE) {
    counters_.too_big += packets;
    hint.hint = engine::NetworkHint::kTooBig;
    hint.value = planes_[run.plane].wildcard ? 0 : planes_[run.plane].mtu;
  } else {
    counters_.send_errors += packets;
    if (code == EHOSTUNREACH || code == ENETUNREACH || code == ENETDOWN || code == EHOSTDOWN) {
      hint.hint = engine::NetworkHint::kHostUnreachable;
    } else if (code == ECONNREFUSED) {
      hint.hint = engine::NetworkHint::kPortUnreachable;
    }
  }
  if (run.connection != 0) hints_.push_back(hint);
}

void Transmitter::give_up_gso(Plane& plane, uint8_t index, int code) {
  if (gso_ != GsoMode::kAuto || !plane.gso) return;
  plane.gso = false;
  log_warning(fmt::format(
      "plane {}: segmentation offload failed ({}); packets are sent one by one from now on", index,
      strerrorname_np(code)));
}

size_t Transmitter::send_with_faults(Time now, const engine::TxRun& run) {
  size_t sent = 0;
  const std::byte* header = run.headers;
  for (size_t i = 0; i < run.count; ++i) {
    const size_t size = flatten(run, i, header, scratch_.data());
    header += run.header_length[i] + run.trailer;
    RawPacket packet{{scratch_.data(), size}, run.ecn, run.plane, run.to, run.from};
    if (faults_.apply(now, packet) == FaultInjector::Verdict::kPass) {
      sent += send_raw(now, packet, &run);
    }
  }
  return sent;
}

size_t Transmitter::send_raw(Time now, const RawPacket& packet, const engine::TxRun* origin) {
  engine::TxRun& run = *single_;
  run.from = packet.local;
  run.to = packet.address;
  run.plane = packet.plane;
  run.path = origin != nullptr ? origin->path : 0xFF;
  run.connection = origin != nullptr ? origin->connection : 0;
  run.ecn = packet.ecn;
  run.count = 1;
  run.trailer = 0;
  run.header_length[0] = 0;
  run.payload_length[0] = static_cast<uint32_t>(packet.bytes.size());
  run.payload[0] = packet.bytes.data();
  return send_run(now, run);
}

bool Transmitter::keeps_for(const engine::TxRun& run) const {
  return std::any_of(kept_.begin(), kept_.end(), [&run](const std::unique_ptr<Kept>& k) {
    return k->run.plane == run.plane && k->run.from.port == run.from.port;
  });
}

void Transmitter::keep(Time now, const engine::TxRun& run, size_t first) {
  auto kept = std::make_unique<Kept>();
  kept->since = now;
  engine::TxRun& k = kept->run;
  k.from = run.from;
  k.to = run.to;
  k.plane = run.plane;
  k.path = run.path;
  k.connection = run.connection;
  k.ecn = run.ecn;
  k.count = static_cast<uint8_t>(run.count - first);
  k.trailer = 0;
  size_t total = 0;
  for (size_t i = first; i < run.count; ++i) total += packet_bytes(run, i);
  kept->bytes.resize(total);
  const std::byte* header = run.headers;
  std::byte* out = kept->bytes.data();
  for (size_t i = 0; i < run.count; ++i) {
    if (i >= first) {
      const size_t size = flatten(run, i, header, out);
      k.header_length[i - first] = 0;
      k.payload_length[i - first] = static_cast<uint32_t>(size);
      k.payload[i - first] = out;
      out += size;
    }
    header += run.header_length[i] + run.trailer;
  }
  kept_bytes_ += total;
  kept_.push_back(std::move(kept));
}

size_t Transmitter::flush(Time now) {
  size_t sent = 0;
  queue_full_ = false;
  auto waiting = std::move(kept_);
  kept_.clear();
  kept_bytes_ = 0;
  for (auto& kept : waiting) {
    engine::TxRun& run = kept->run;
    TxSocket* socket = sockets_.get(run.plane, run.from.port, now);
    if (!keeps_for(run)) {
      size_t first = 0;
      bool full = false;
      sent += send_from(run, *socket, first, full);
      sockets_.want_writable(*socket, full);
      if (!full) continue;
      // The bytes in front are sent; the rest moves up.
      for (size_t i = first; i < run.count; ++i) {
        run.payload[i - first] = run.payload[i];
        run.payload_length[i - first] = run.payload_length[i];
      }
      run.count = static_cast<uint8_t>(run.count - first);
    }
    if (now - kept->since > kKeepLimit) {
      // A device that takes nothing must not hold up the other planes: the engine repairs
      // elsewhere.
      report(run, run.count, ENOBUFS);
      sockets_.want_writable(*socket, false);
      continue;
    }
    for (size_t i = 0; i < run.count; ++i) kept_bytes_ += run.payload_length[i];
    kept_.push_back(std::move(kept));
  }
  return sent;
}

Time Transmitter::retry_at(Time now) const {
  const Time held = faults_.next_release();
  if (!keeps()) return held;
  return earlier(held, now + (queue_full_ ? microseconds(200) : milliseconds(5)));
}

void Transmitter::read_shared_errors() {
  for (size_t i = 0; i < planes_.size(); ++i) {
    if (planes_[i].used_shared) read_errors(*sockets_.shared(static_cast<uint8_t>(i)));
  }
}

void Transmitter::read_errors(TxSocket& socket) {
  constexpr int kMostErrors = 64;
  for (int n = 0; n < kMostErrors; ++n) {
    char control[512];
    sockaddr_storage name{};
    std::byte data[64];
    iovec vector{data, sizeof data};
    msghdr message{};
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (calls_.recvmsg(socket.fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      const bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR;
      const bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR;
      if (!v4 && !v6) continue;
      sock_extended_err error;
      std::memcpy(&error, CMSG_DATA(c), sizeof error);
      // What the local stack refused was already told by the return value of the call.
      if (error.ee_origin != SO_EE_ORIGIN_ICMP && error.ee_origin != SO_EE_ORIGIN_ICMP6) continue;
      ++counters_.icmp_errors;
      const Sender* sender =
          socket.find_sender(from_sockaddr(reinterpret_cast<const sockaddr*>(&name)));
      if (sender == nullptr) continue;
      Hint hint{sender->connection, sender->path, engine::NetworkHint::kHostUnreachable, 0};
      if (error.ee_errno == ECONNREFUSED) hint.hint = engine::NetworkHint::kPortUnreachable;
      if (error.ee_errno == EMSGSIZE) {
        hint.hint = engine::NetworkHint::kTooBig;
        hint.value = error.ee_info;
      }
      hints_.push_back(hint);
    }
  }
}

void Transmitter::read_strays(TxSocket& socket) {
  constexpr int kMostAtOnce = 16;
  constexpr size_t kMostKeptStrays = 64;
  for (int n = 0; n < kMostAtOnce; ++n) {
    sockaddr_storage name{};
    std::byte data[64];
    iovec vector{data, sizeof data};
    msghdr message{};
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    const ssize_t got = calls_.recvmsg(socket.fd, &message, MSG_DONTWAIT);
    if (got < 0) return;
    const auto body = verify_crc({data, static_cast<size_t>(got)});
    Stray stray;
    if (body.size() != stray.bytes.size() || strays_.size() >= kMostKeptStrays) continue;
    const auto type = static_cast<wire::PacketType>(std::to_integer<uint8_t>(body[0]) & 0x3F);
    if (type != wire::PacketType::kUnknownConnection) continue;
    std::copy(body.begin(), body.end(), stray.bytes.begin());
    stray.from = from_sockaddr(reinterpret_cast<const sockaddr*>(&name));
    stray.plane = socket.plane;
    strays_.push_back(stray);
  }
}

}  // namespace metaroce::driver
