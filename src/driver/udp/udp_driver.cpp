#include "driver/udp/udp_driver.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "base/assert.h"
#include "driver/common/crc32c.h"
#include "driver/common/interfaces.h"
#include "driver/common/loop.h"
#include "driver/common/socket_address.h"
#include "driver/udp/receiver.h"
#include "driver/udp/socket_setup.h"
#include "driver/udp/transmitter.h"
#include "driver/udp/tx_sockets.h"

namespace metaroce::driver {
namespace {

// Errors and link changes wake a blocked loop at once; a busy one looks for them this often.
constexpr Duration kLookInterval = milliseconds(1);
// Where the system gives no link events.
constexpr Duration kLinkInterval = seconds(1);

std::string describe_buffer(const char* sysctl, const char* what, uint32_t wanted,
                            uint32_t granted) {
  return fmt::format(
      "{} buffer: wanted {} bytes, the system allows {}; raise it with "
      "`sysctl -w {}={}`",
      what, wanted, granted, sysctl, wanted);
}

}  // namespace

class UdpDriver::Impl {
 public:
  explicit Impl(const UdpOptions& options)
      : options_(options),
        calls_(options.syscalls != nullptr ? *options.syscalls : Syscalls::real()),
        loop_(options.spin),
        rx_loop_({}),
        rx_faults_(options.faults, Direction::kReceive, now()),
        tx_faults_(options.faults, Direction::kTransmit, now()),
        sockets_(calls_, loop_, counters_, options.max_tx_sockets, options.send_buffer),
        transmitter_(calls_, sockets_, counters_, tx_faults_, options.gso),
        receiver_(calls_, counters_, rx_faults_, options.hand_over_single) {}

  ~Impl() {
    for (const int fd : service_) close(fd);
    if (monitor_ >= 0) close(monitor_);
  }

  Expected<void, Error> open();
  void wait_until(Time deadline, int extra_fd, Duration timeout);
  Time next_wake(Time now, Time deadline) const;
  void look(Time now);
  void look_at_links(bool first);

  UdpOptions options_;
  Syscalls& calls_;
  UdpCounters counters_;
  Loop loop_;
  Loop rx_loop_;
  FaultInjector rx_faults_;
  FaultInjector tx_faults_;
  TxSockets sockets_;
  Transmitter transmitter_;
  Receiver receiver_;
  std::vector<SocketAddress> local_;
  std::vector<uint16_t> mtu_;
  std::vector<int> service_;
  std::vector<bool> up_;
  std::vector<PlaneEvent> events_, given_events_;
  std::vector<Hint> given_hints_;
  std::vector<Stray> given_strays_;
  std::vector<engine::RxPacket> stray_packets_;
  std::string warning_;
  uint32_t receive_buffer_ = UINT32_MAX;
  uint32_t send_buffer_ = UINT32_MAX;
  uint16_t port_ = 0;
  int monitor_ = -1;
  int extra_fd_ = -1;
  Time next_look_{};
  Time next_link_look_{};
  bool slack_set_ = false;

 private:
  Expected<void, Error> open_planes(uint16_t port);
  void close_planes();
  void check_buffers();
};

Expected<void, Error> UdpDriver::Impl::open_planes(uint16_t port) {
  for (const SocketAddress& wanted : options_.local) {
    SocketAddress local = wanted;
    local.port = port;
    if (local.family != 4 && local.family != 6) {
      return unexpected(Error{EINVAL, "a plane has no address; give an IPv4 or IPv6 address"});
    }
    const auto made =
        open_service_socket(calls_, local, {options_.receive_buffer, options_.send_buffer});
    if (!made) return unexpected(made.error());
    service_.push_back(made->fd);
    local.port = port = made->port;
    local_.push_back(local);
    receive_buffer_ = std::min(receive_buffer_, made->receive_buffer);
    send_buffer_ = std::min(send_buffer_, made->send_buffer);
  }
  port_ = port;
  return {};
}

void UdpDriver::Impl::close_planes() {
  for (const int fd : service_) close(fd);
  service_.clear();
  local_.clear();
}

void UdpDriver::Impl::check_buffers() {
  if (receive_buffer_ < options_.receive_buffer) {
    warning_ =
        describe_buffer("net.core.rmem_max", "receive", options_.receive_buffer, receive_buffer_);
  }
  if (send_buffer_ < options_.send_buffer) {
    if (!warning_.empty()) warning_ += "; ";
    warning_ += describe_buffer("net.core.wmem_max", "send", options_.send_buffer, send_buffer_);
  }
}

Expected<void, Error> UdpDriver::Impl::open() {
  if (!crc32c_self_check()) {
    return unexpected(Error{0,
                            "CRC32C of this machine's library gives wrong results; reinstall "
                            "libisal"});
  }
  if (!loop_.valid() || !rx_loop_.valid()) {
    return unexpected(system_error(errno, "epoll_create1", "raise `ulimit -n`"));
  }
  if (options_.local.empty()) {
    options_.local.emplace_back();
    options_.local.back().family = 6;
  }
  if (options_.local.size() > kMaxPlanes) {
    return unexpected(Error{EINVAL, fmt::format("{} planes were given; at most {} are possible",
                                                options_.local.size(), kMaxPlanes)});
  }
  // A port that is free on the first address may be taken on another one.
  constexpr int kMostTries = 16;
  Expected<void, Error> opened;
  for (int i = 0; i < (options_.port == 0 ? kMostTries : 1); ++i) {
    close_planes();
    opened = open_planes(options_.port);
    if (opened || opened.error().code != EADDRINUSE) break;
  }
  if (!opened) return opened;
  check_buffers();
  up_.assign(local_.size(), true);
  const auto states = look_up_interfaces(local_);
  for (size_t i = 0; i < local_.size(); ++i) {
    const bool wildcard = is_wildcard(local_[i]);
    mtu_.push_back(states[i].mtu);
    sockets_.add_plane(local_[i], service_[i], local_[i].family == 6 ? AF_INET6 : AF_INET);
    transmitter_.add_plane(wildcard, states[i].mtu);
    receiver_.add_plane(service_[i], wildcard);
    if (!rx_loop_.add(service_[i], true, false)) {
      return unexpected(system_error(errno, "epoll_ctl"));
    }
  }
  if (!loop_.add(rx_loop_.fd(), true, false)) return unexpected(system_error(errno, "epoll_ctl"));
  monitor_ = open_link_monitor();
  if (monitor_ >= 0) loop_.add(monitor_, true, false);
  look_at_links(true);
  return {};
}

void UdpDriver::Impl::look_at_links(bool first) {
  const auto states = look_up_interfaces(local_);
  for (size_t i = 0; i < local_.size(); ++i) {
    const bool up = states[i].found && states[i].up;
    if (up) transmitter_.set_mtu(i, states[i].mtu);
    if (up == up_[i]) continue;
    up_[i] = up;
    events_.push_back({static_cast<uint8_t>(i), up});
    counters_.link_changes += !first;
  }
}

void UdpDriver::Impl::look(Time now) {
  if (now < next_look_) return;
  next_look_ = now + kLookInterval;
  int fds[32];
  const int n = loop_.ready(fds);
  for (int i = 0; i < n; ++i) {
    TxSocket* socket = sockets_.by_fd(fds[i]);
    if (socket != nullptr && !socket->shared) {
      transmitter_.read_errors(*socket);
      transmitter_.read_strays(*socket);
    }
    if (fds[i] == monitor_ && drain_link_monitor(monitor_)) look_at_links(false);
  }
  transmitter_.read_shared_errors();
  if (monitor_ < 0 && now >= next_link_look_) {
    next_link_look_ = now + kLinkInterval;
    look_at_links(false);
  }
}

Time UdpDriver::Impl::next_wake(Time now, Time deadline) const {
  Time until = earlier(deadline, rx_faults_.next_release());
  until = earlier(until, transmitter_.retry_at(now));
  if (monitor_ < 0) until = earlier(until, now + kLinkInterval);
  return until;
}

void UdpDriver::Impl::wait_until(Time deadline, int extra_fd, Duration timeout) {
  const Time start = now();
  if (extra_fd != extra_fd_) {
    if (extra_fd_ >= 0) loop_.remove(extra_fd_);
    if (extra_fd >= 0) loop_.add(extra_fd, true, false);
    extra_fd_ = extra_fd;
  }
  Time until = next_wake(start, deadline);
  if (timeout.ns < kNever.ns - start.ns) until = earlier(until, start + timeout);
  if (until <= start) return;
  if (loop_.spinning(start)) {
    // Whoever shares the core gets it now, not after our time slice (P06).
    sched_yield();
    return;
  }
  if (!slack_set_) {
    // The default slack of 50 us would come on top of every deadline.
    prctl(PR_SET_TIMERSLACK, 1000UL);
    slack_set_ = true;
  }
  if (loop_.block(start, until)) next_look_ = {};
}

UdpDriver::UdpDriver() = default;
UdpDriver::~UdpDriver() = default;

Expected<std::unique_ptr<UdpDriver>, Error> UdpDriver::open(const UdpOptions& options) {
  std::unique_ptr<UdpDriver> driver(new UdpDriver);
  driver->impl_ = std::make_unique<Impl>(options);
  driver->placements_ = std::make_unique<engine::Placement[]>(kPlacements);
  driver->runs_ = std::make_unique<engine::TxRun[]>(kRuns);
  const auto opened = driver->impl_->open();
  if (!opened) return unexpected(opened.error());
  return driver;
}

const std::vector<SocketAddress>& UdpDriver::local() const { return impl_->local_; }
const std::vector<uint16_t>& UdpDriver::plane_mtu() const { return impl_->mtu_; }
uint16_t UdpDriver::port() const { return impl_->port_; }
uint32_t UdpDriver::receive_buffer() const { return impl_->receive_buffer_; }
uint32_t UdpDriver::send_buffer() const { return impl_->send_buffer_; }
const std::string& UdpDriver::buffer_warning() const { return impl_->warning_; }
const UdpCounters& UdpDriver::counters() const { return impl_->counters_; }
uint32_t UdpDriver::tx_sockets() const { return impl_->sockets_.open(); }
FaultInjector& UdpDriver::rx_faults() { return impl_->rx_faults_; }
FaultInjector& UdpDriver::tx_faults() { return impl_->tx_faults_; }
bool UdpDriver::tx_blocked() const { return impl_->transmitter_.blocked(); }

uint32_t UdpDriver::inflight_packets() const {
  return datagrams_that_fit(impl_->receive_buffer_, impl_->options_.max_payload);
}

std::span<const engine::RxPacket> UdpDriver::receive(Time now) {
  return impl_->receiver_.receive(now, impl_->rx_loop_, impl_->transmitter_);
}

void UdpDriver::place(std::span<const engine::RxPacket> packets,
                      std::span<const engine::Placement> list) {
  impl_->receiver_.place(packets, list);
}

void UdpDriver::secure_with(engine::Engine& engine) {
  impl_->receiver_.set_opener(&engine);
  impl_->transmitter_.expect_sealed(impl_->options_.max_payload);
}

size_t UdpDriver::transmit(Time now, std::span<engine::TxRun> runs) {
  return impl_->transmitter_.send(now, runs);
}

void UdpDriver::wait_until(Time deadline, int extra_fd, Duration timeout) {
  impl_->wait_until(deadline, extra_fd, timeout);
}

int UdpDriver::fd() const { return impl_->loop_.fd(); }
Time UdpDriver::next_wake(Time now, Time deadline) const { return impl_->next_wake(now, deadline); }
void UdpDriver::look_soon() { impl_->next_look_ = {}; }
bool UdpDriver::spinning(Time now) const { return impl_->loop_.spinning(now); }

std::span<const Hint> UdpDriver::take_hints(Time now) {
  impl_->look(now);
  impl_->given_hints_.clear();
  impl_->given_hints_.swap(impl_->transmitter_.hints());
  return impl_->given_hints_;
}

std::span<const engine::RxPacket> UdpDriver::take_strays() {
  impl_->given_strays_.clear();
  impl_->given_strays_.swap(impl_->transmitter_.strays());
  impl_->stray_packets_.clear();
  for (const Stray& s : impl_->given_strays_) {
    impl_->stray_packets_.push_back({s.bytes, Ecn::kNotEct, s.plane, s.from});
  }
  return impl_->stray_packets_;
}

std::span<const PlaneEvent> UdpDriver::take_plane_events(Time now) {
  impl_->look(now);
  impl_->given_events_.clear();
  impl_->given_events_.swap(impl_->events_);
  return impl_->given_events_;
}

size_t UdpDriver::transmit_answers_first(Time now, std::span<engine::TxRun> runs) {
  const auto is_answer = [](const engine::TxRun& r) { return r.is_data && r.count == 1; };
  size_t sent = 0;
  for (engine::TxRun& run : runs) {
    if (is_answer(run)) sent += transmit(now, {&run, 1});
  }
  for (engine::TxRun& run : runs) {
    if (!is_answer(run)) sent += transmit(now, {&run, 1});
  }
  return sent;
}

size_t UdpDriver::note_progress(Time now, size_t work) {
  if (work != 0) impl_->loop_.note_work(now);
  return work;
}

}  // namespace metaroce::driver
