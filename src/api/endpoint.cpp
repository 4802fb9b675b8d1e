#include "api/endpoint.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "driver/common/clock.h"
#include "driver/common/socket_address.h"
#include "driver/udp/udp_driver.h"
#include "engine/engine.h"
#include "secure/random.h"
#include "telemetry/recorded_engine.h"
#include "telemetry/sinks.h"
#include "telemetry/stat_page.h"
#include "wire/types.h"

namespace metaroce::api {

using telemetry::Tune;
namespace {

constexpr size_t kCompletionBatch = 256;

std::string in_seconds(Duration d) {
  const int64_t ms = d.ns / 1'000'000;
  char text[32];
  std::snprintf(text, sizeof text, ms % 1000 == 0 ? "%lld s" : "%lld.%03lld s",
                static_cast<long long>(ms / 1000), static_cast<long long>(ms % 1000));
  return text;
}

Error from_driver(const driver::Error& error) { return {Status::kInvalid, error.code, error.text}; }

int64_t wall_clock_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::string versions_text(uint32_t mask) {
  std::string text;
  for (uint32_t v = 0; v < 16; ++v) {
    if ((mask >> v & 1) != 0) text += (text.empty() ? "" : ", ") + std::to_string(v);
  }
  return text.empty() ? "none" : text;
}

std::string mismatch_text(uint32_t detail) {
  char type[8];
  std::snprintf(type, sizeof type, "0x%02x", detail >> 16 & 0xFF);
  if (static_cast<wire::SetupRefusal>(detail >> 24) == wire::SetupRefusal::kCriticalTlv) {
    return std::string("does not understand the required parameter ") + type +
           ", or asks for one that this side does not understand; update the older side";
  }
  return "speaks no common version of the protocol: this side speaks version 0, the peer " +
         versions_text(detail & 0xFFFF) + "; update the older side";
}

/// Why a set-up ended for want of trust, and what to do.
std::string distrust_text(uint32_t detail, secure::Policy policy) {
  switch (static_cast<wire::SetupRefusal>(detail >> 24)) {
    case wire::SetupRefusal::kSecurityRequired:
      return "requires a secured connection: give --psk-file or --peer-key";
    case wire::SetupRefusal::kUnknownKey:
      return "and this side do not know each other's keys: check the identity and that both sides "
             "have the other's public key, or the same pre-shared key";
    case wire::SetupRefusal::kNoSecurity:
      return policy == secure::Policy::kRequired
                 ? "offers no secured connection, and this side requires one: give the peer keys, "
                   "or do without here"
                 : "offers no secured connection";
    case wire::SetupRefusal::kNoSuite:
      return "shares no AEAD suite with this side: check --suites of both";
    case wire::SetupRefusal::kWrongProof:
      return "did not prove to have the key: the pre-shared keys of both sides differ, or somebody "
             "changes packets on the way";
    default: return "does not trust this side";
  }
}

uint64_t system_seed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) {
    seed = static_cast<uint64_t>(driver::now().ns) ^ (static_cast<uint64_t>(getpid()) << 32);
  }
  return seed;
}

/// MR-SEC-023
bool leaves_time_for_update(const Settings& s) {
  return s.key_update_packets <= s.key_limit_packets - s.key_limit_packets / 4;
}

/// Options that would give less security than whoever wrote them meant.
Expected<void, Error> check_security(const EndpointOptions& options) {
  const auto wrong = [](std::string text) {
    return unexpected(Error{Status::kInvalid, EINVAL, std::move(text)});
  };
  const bool keys = options.security.policy != secure::Policy::kPlain;
  if (keys && !options.security.has_keys()) {  // MR-SEC-021
    return wrong(
        "security needs keys: a pre-shared key, or an own X25519 key and at least one of a peer");
  }
  std::string names = secure::unusable_names(options.security, options.identity, options.peer_key);
  if (!names.empty()) return wrong(std::move(names));  // MR-SEC-020, MR-SEC-021
  const Settings& s = options.settings;
  if (!leaves_time_for_update(s)) {
    return wrong(
        "key_update_packets is " + std::to_string(s.key_update_packets) +
        " and key_limit_packets " + std::to_string(s.key_limit_packets) +
        "; the update must begin by three quarters of the limit, or connections end before "
        "the peer has the next key: lower key_update_packets or raise key_limit_packets");
  }
  if (keys && !options.record.empty()) {
    return wrong(
        "a secured endpoint cannot be recorded: the recording would have to hold its keys");
  }
  if (keys && options.seed != 0) {  // MR-SEC-022
    return wrong("the seed is " + std::to_string(options.seed) +
                 ", and there are keys: keys made from a seed can be guessed and come again; do "
                 "without the seed, or without keys");
  }
  return {};
}

}  // namespace

Endpoint::Endpoint(const EndpointOptions& options)
    : options_(options), completions_(kCompletionBatch) {}

Endpoint::~Endpoint() {
  if (recorder_ != nullptr) recorder_->finish(engine_->state_hash());
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

Expected<std::unique_ptr<Endpoint>, Error> Endpoint::open(const EndpointOptions& options) {
  if (auto sound = check_security(options); !sound) return unexpected(sound.error());
  const bool keys = options.security.policy != secure::Policy::kPlain;
  std::unique_ptr<Endpoint> endpoint(new Endpoint(options));
  driver::UdpOptions udp;
  udp.local = options.local;
  udp.port = options.port;
  udp.receive_buffer = options.receive_buffer;
  udp.send_buffer = options.send_buffer;
  udp.max_payload = options.settings.max_payload;
  udp.spin = options.spin;
  udp.hand_over_single = options.reply_first;
  udp.faults = options.faults;
  auto opened = driver::UdpDriver::open(udp);
  if (!opened) return unexpected(from_driver(opened.error()));
  endpoint->driver_ = std::move(*opened);
  endpoint->wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (endpoint->wake_fd_ < 0) {
    return unexpected(from_driver(driver::system_error(errno, "eventfd")));
  }
  engine::EngineConfig config;
  config.settings = options.settings;
  // The window follows the buffer that was granted, never the other way round.
  config.settings.inflight_packets =
      std::min(config.settings.inflight_packets, endpoint->driver_->inflight_packets());
  config.local = endpoint->driver_->local();
  config.plane_mtu = endpoint->driver_->plane_mtu();
  config.accept = options.accept;
  const uint64_t seed = options.seed != 0 ? options.seed : system_seed();
  const auto taps = endpoint->open_taps(config, seed);
  if (!taps) return unexpected(taps.error());
  config.security = options.security;
  // MR-SEC-008: only what is to be repeated, a test or a recording, may be guessed from a seed.
  const bool seeded = options.seed != 0 || !options.record.empty();
  endpoint->random_ = std::make_unique<secure::SystemRandom>();
  endpoint->engine_ = std::make_unique<engine::Engine>(
      std::move(config), seeded ? Rng(seed) : Rng(*endpoint->random_));
  if (keys) endpoint->driver_->secure_with(*endpoint->engine_);
  return endpoint;
}

Expected<void, Error> Endpoint::open_taps(engine::EngineConfig& config, uint64_t seed) {
  const Duration to_wall_clock = nanoseconds(wall_clock_ns() - driver::now().ns);
  if (!options_.record.empty()) {
    auto made = telemetry::Recorder::create(options_.record, config, Rng(seed), to_wall_clock,
                                            driver::now());
    if (!made) return unexpected(Error{Status::kInvalid, EIO, made.error()});
    recorder_ = std::move(*made);
  }
  if (!options_.pcap.empty()) {
    auto made = telemetry::PcapWriter::create(options_.pcap, config.local, to_wall_clock);
    if (!made) return unexpected(Error{Status::kInvalid, EIO, made.error()});
    pcap_ = std::move(*made);
  }
  if (!options_.trace.empty()) {
    auto made = telemetry::JsonTrace::create(options_.trace, driver::now(), to_wall_clock);
    if (!made) return unexpected(Error{Status::kInvalid, EIO, made.error()});
    trace_ = std::move(*made);
    config.events = trace_.get();
  }
  if (options_.publish) page_ = telemetry::StatPage::create(config, driver_->port());
  return {};
}

std::string Endpoint::telemetry_error() const {
  std::string text = recorder_ == nullptr ? "" : recorder_->error();
  if (pcap_ != nullptr) {
    pcap_->flush();
    if (!text.empty() && !pcap_->error().empty()) text += "; ";
    text += pcap_->error();
  }
  if (trace_ != nullptr) {
    trace_->flush();
    if (!text.empty() && !trace_->error().empty()) text += "; ";
    text += trace_->error();
  }
  return text;
}

const std::vector<SocketAddress>& Endpoint::local() const { return driver_->local(); }
uint16_t Endpoint::port() const { return driver_->port(); }

/// The engine as this file and the driver's loop see it: with the taps that were asked for and a
/// count of what passes.
struct Endpoint::CountingEngine : telemetry::RecordedEngine<engine::Engine> {
  using Base = telemetry::RecordedEngine<engine::Engine>;
  uint64_t& in;
  uint64_t& out;
  Time& last;

  CountingEngine(const Base& base, uint64_t& packets_in, uint64_t& packets_out, Time& round)
      : Base(base), in(packets_in), out(packets_out), last(round) {}

  size_t on_packets(Time now, std::span<const engine::RxPacket> packets,
                    std::span<engine::Placement> placements) {
    in += packets.size();
    return Base::on_packets(now, packets, placements);
  }
  size_t poll_transmit(Time now, std::span<engine::TxRun> runs) {
    last = now;
    const size_t n = Base::poll_transmit(now, runs);
    for (size_t i = 0; i < n; ++i) out += runs[i].count;
    return n;
  }
};

Endpoint::CountingEngine Endpoint::tapped() {
  return {{*engine_, {recorder_.get(), pcap_.get()}}, packets_in_, packets_out_, last_round_};
}

size_t Endpoint::round() {
  CountingEngine counting = tapped();
  const size_t work =
      options_.reply_first ? driver_->progress_out_in(counting) : driver_->progress(counting);
  if (page_ != nullptr && page_->due(last_round_)) page_->publish(last_round_, *engine_);
  return work;
}

bool Endpoint::collect() {
  if (completions_begin_ == completions_end_) {
    completions_begin_ = 0;
    completions_end_ = tapped().poll_completions(completions_);
  }
  ConnectionEvent batch[16];
  size_t n = 0;
  do {
    n = tapped().poll_events(batch);
    events_.insert(events_.end(), batch, batch + n);
  } while (n == std::size(batch));
  return completions_begin_ != completions_end_ || !events_.empty();
}

bool Endpoint::take_event(ConnectionHandle connection, ConnectionEventKind kind,
                          ConnectionEvent& out) {
  const auto found = std::find_if(events_.begin(), events_.end(), [&](const ConnectionEvent& e) {
    return e.kind == kind && (connection == 0 || e.connection == connection);
  });
  if (found == events_.end()) return false;
  out = *found;
  events_.erase(found);
  return true;
}

Error Endpoint::connect_error(const SocketAddress& peer, Status status, Duration timeout,
                              uint32_t detail) const {
  const auto refusal = static_cast<wire::SetupRefusal>(detail >> 24);
  const std::string who = driver::to_string(peer) + " (UDP port " + std::to_string(peer.port) + ")";
  const std::string port = std::to_string(peer.port);
  switch (status) {
    case Status::kRefused:
      if (refusal == wire::SetupRefusal::kNotListening) {
        return {status, ECONNREFUSED,
                who +
                    " refused: an endpoint runs there, but it accepts no connections; check that "
                    "the address names the receiver and not another sender"};
      }
      if (refusal == wire::SetupRefusal::kNoRoom) {
        return {status, ECONNREFUSED,
                who + " refused: all its connections are taken, for " + in_seconds(timeout) +
                    "; close some there or raise its setting max_connections"};
      }
      return {status, ECONNREFUSED,
              who + " refused: nothing listens there, or a firewall rejects UDP port " + port +
                  "; check that the receiver runs and uses this port"};
    case Status::kUnreachable:
      return {status, EHOSTUNREACH,
              who +
                  " is unreachable: the network reports no way there; check the address, the "
                  "route and the interface"};
    case Status::kNotTrusted:
      return {status, EACCES, who + " " + distrust_text(detail, options_.security.policy)};
    case Status::kMismatch:
      return {status, EPROTO, who + " " + mismatch_text(detail)};
    case Status::kFull:
      return {status, ENOMEM, who + ": no free connection (setting max_connections)"};
    case Status::kUnresponsive:
      return {status, ETIMEDOUT,
              who + " did not answer within " + in_seconds(timeout) +
                  "; check that the receiver runs, that the address is right, and that no firewall "
                  "drops UDP port " +
                  port + " in either direction"};
    default:
      return {status, ECONNABORTED, who + ": " + metaroce::to_string(status)};
  }
}

Expected<ConnectionHandle, Error> Endpoint::connect(std::span<const SocketAddress> peer,
                                                    Duration timeout) {
  if (peer.empty()) return unexpected(Error{Status::kInvalid, EINVAL, "no address to connect to"});
  const engine::ConnectRequest request = request_to(peer);
  const Time begin = driver::now();
  const auto handle = tapped().connect(begin, request);
  if (!handle) return unexpected(request_error(request, handle.error()));
  const Time end = begin + timeout;
  ConnectionEvent event;
  for (;;) {
    if (take_event(*handle, ConnectionEventKind::kConnected, event)) return *handle;
    if (take_event(*handle, ConnectionEventKind::kFailed, event) ||
        take_event(*handle, ConnectionEventKind::kLost, event) ||
        take_event(*handle, ConnectionEventKind::kClosed, event)) {
      const Status status = event.status == Status::kOk ? Status::kClosed : event.status;
      return unexpected(connect_error(peer[0], status, driver::now() - begin, event.detail));
    }
    const Time t = driver::now();
    if (t >= end) {
      tapped().close(t, *handle, 0);
      return unexpected(connect_error(peer[0], Status::kUnresponsive, timeout));
    }
    if (round() == 0) block(end - t);
    collect();
  }
}

engine::ConnectRequest Endpoint::request_to(std::span<const SocketAddress> peer,
                                            const KeyNames& keys) const {
  return {{peer.begin(), peer.end()},
          keys.identity.value_or(options_.identity),
          keys.peer_key.value_or(options_.peer_key)};
}

Error Endpoint::request_error(const engine::ConnectRequest& request, Status status) const {
  const std::string names =
      secure::unusable_names(options_.security, request.identity, request.peer_key);
  if (status != Status::kInvalid || names.empty()) {
    return connect_error(request.peer[0], status, {});
  }
  return {status, EINVAL, driver::to_string(request.peer[0]) + ": " + names};
}

Expected<ConnectionHandle, Error> Endpoint::start_connect(std::span<const SocketAddress> peer,
                                                          const KeyNames& keys) {
  if (peer.empty()) return unexpected(Error{Status::kInvalid, EINVAL, "no address to connect to"});
  const engine::ConnectRequest request = request_to(peer, keys);
  const auto handle = tapped().connect(driver::now(), request);
  if (!handle) return unexpected(request_error(request, handle.error()));
  return *handle;
}

Error Endpoint::failure(const ConnectionEvent& event) const {
  return connect_error(event.peer, event.status, nanoseconds(options_.settings.connect_timeout),
                       event.detail);
}

Expected<Peer, Error> Endpoint::accept(Duration timeout) {
  const Time end = driver::now() + timeout;
  ConnectionEvent event;
  for (;;) {
    if (take_event(0, ConnectionEventKind::kAccepted, event)) {
      return Peer{event.connection, event.peer};
    }
    const Time t = driver::now();
    if (t >= end) {
      return unexpected(Error{Status::kUnresponsive, ETIMEDOUT,
                              "nobody connected to UDP port " + std::to_string(port()) +
                                  " within " + in_seconds(timeout)});
    }
    if (round() == 0) block(end - t);
    collect();
  }
}

void Endpoint::close(ConnectionHandle connection, uint32_t code) {
  tapped().close(driver::now(), connection, code);
}

Expected<Region, Error> Endpoint::register_region(std::span<std::byte> memory, uint8_t rights) {
  const auto added = tapped().add_region(memory.data(), memory.size(), rights);
  if (!added) {
    return unexpected(Error{added.error(), added.error() == Status::kFull ? ENOMEM : EINVAL,
                            added.error() == Status::kFull
                                ? "no free memory region (setting max_regions)"
                                : "a memory region needs a length and must not wrap around"});
  }
  return Region{added->index, added->key, added->remote_base};
}

Status Endpoint::deregister_region(const Region& region) {
  return tapped().remove_region(region.index);
}

Expected<Region, Status> Endpoint::open_window(const Region& region, uint64_t offset,
                                               uint64_t length, uint8_t rights, uint32_t domain) {
  const uint64_t result = tune({.what = Tune::What::kWindow,
                                .a = region.index,
                                .b = offset,
                                .c = length,
                                .d = rights,
                                .e = domain});
  if ((result & telemetry::kTuneValue) == 0) return unexpected(telemetry::status_of(result));
  return Region{static_cast<uint32_t>(result >> 32 & 0x7FFFFFFF), static_cast<uint32_t>(result),
                region.address + offset};
}

Expected<uint32_t, Status> Endpoint::create_shared_queue() {
  const uint64_t result = tune({.what = Tune::What::kCreateQueue});
  if ((result & telemetry::kTuneValue) == 0) return unexpected(telemetry::status_of(result));
  return static_cast<uint32_t>(result >> 32 & 0x7FFFFFFF);
}

Status Endpoint::destroy_shared_queue(uint32_t queue) {
  return telemetry::status_of(tune({.what = Tune::What::kDestroyQueue, .a = queue}));
}

Status Endpoint::arm_shared_queue(uint32_t queue, uint32_t count) {
  return telemetry::status_of(tune({.what = Tune::What::kArmQueue, .a = queue, .b = count}));
}

uint32_t Endpoint::shared_queue_length(uint32_t queue) const {
  return engine_->shared_queue_length(queue);
}

Status Endpoint::set_domain(ConnectionHandle connection, uint32_t domain) {
  return telemetry::status_of(
      tune({.what = Tune::What::kDomain, .connection = connection, .a = domain}));
}

Status Endpoint::set_stream_options(ConnectionHandle connection, uint16_t stream,
                                    const engine::StreamOptions& options) {
  return telemetry::status_of(tune({.what = Tune::What::kStreamOptions,
                                    .connection = connection,
                                    .stream = stream,
                                    .a = options.rnr_retry,
                                    .b = options.in_order,
                                    .c = options.shared_queue}));
}

Status Endpoint::reset_stream(ConnectionHandle connection, uint16_t stream) {
  return telemetry::status_of(
      tune({.what = Tune::What::kResetStream, .connection = connection, .stream = stream}));
}

Status Endpoint::drain_stream(ConnectionHandle connection, uint16_t stream) {
  return telemetry::status_of(
      tune({.what = Tune::What::kDrainStream, .connection = connection, .stream = stream}));
}

uint64_t Endpoint::tune(const telemetry::Tune& what) { return tapped().tune(driver::now(), what); }

size_t Endpoint::post(std::span<const WorkRequest> requests, Status& status) {
  return tapped().post(driver::now(), requests, status);
}

size_t Endpoint::post_receive(std::span<const ReceiveRequest> requests, Status& status) {
  return tapped().post_receives(driver::now(), requests, status);
}

size_t Endpoint::poll(std::span<Completion> out) {
  // What wait() found is handed over at once: a round in between would only make it older.
  if (!options_.reply_first || completions_begin_ == completions_end_) round();
  collect();
  const size_t n = std::min(out.size(), completions_end_ - completions_begin_);
  std::copy_n(completions_.begin() + static_cast<ptrdiff_t>(completions_begin_), n, out.begin());
  completions_begin_ += n;
  return n;
}

bool Endpoint::next_event(ConnectionEvent& out) {
  if (events_.empty()) return false;
  out = events_.front();
  events_.pop_front();
  return true;
}

bool Endpoint::wait(Duration timeout) {
  const Time end = driver::now() + timeout;
  for (;;) {
    const size_t work = round();
    if (collect()) return true;
    if (take_wake()) return false;
    const Time t = driver::now();
    if (t >= end) return false;
    if (work == 0) block(end - t);
  }
}

void Endpoint::wake() {
  if (woken_.exchange(true)) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the descriptor is readable anyway.
  if (::write(wake_fd_, &one, sizeof one) < 0) return;
}

bool Endpoint::take_wake() {
  if (!woken_.load()) return false;
  uint64_t count = 0;
  // The flag goes down only once the descriptor is empty, or it would stay readable for ever.
  // A wake() in between is not lost: the caller looks at its queues after this return.
  if (::read(wake_fd_, &count, sizeof count) > 0) woken_.store(false);
  return true;
}

size_t Endpoint::poll_path_events(std::span<PathEvent> out) {
  return engine_->poll_path_events(out);
}

size_t Endpoint::step() {
  const size_t work = round();
  collect();
  return work;
}

bool Endpoint::has_news() const {
  return completions_begin_ != completions_end_ || !events_.empty();
}

int Endpoint::fd() const { return driver_->fd(); }
Time Endpoint::next_wake() const {
  return driver_->next_wake(driver::now(), engine_->next_deadline());
}
void Endpoint::look_soon() { driver_->look_soon(); }
bool Endpoint::spinning() const { return driver_->spinning(driver::now()); }
void Endpoint::block(Duration timeout) {
  if (page_ != nullptr) page_->set_sleeping(true);
  driver_->wait(*engine_, wake_fd_, timeout);
  if (page_ != nullptr) page_->set_sleeping(false);
}

bool Endpoint::connection_status(ConnectionHandle connection, ConnectionStatus& out) const {
  return engine_->connection_status(connection, out);
}

size_t Endpoint::path_status(ConnectionHandle connection, std::span<PathStatus> out) const {
  return engine_->path_status(connection, out);
}

std::span<const uint64_t> Endpoint::drops() const { return engine_->drops(); }
EngineMemory Endpoint::memory() const { return engine_->memory(); }
const driver::UdpCounters& Endpoint::udp_counters() const { return driver_->counters(); }
const driver::FaultTally& Endpoint::rx_tally() const { return driver_->rx_faults().tally(); }
const driver::FaultTally& Endpoint::tx_tally() const { return driver_->tx_faults().tally(); }

void Endpoint::set_plane_dark(uint8_t plane, bool dark) {
  driver_->rx_faults().set_plane_dark(plane, dark);
  driver_->tx_faults().set_plane_dark(plane, dark);
}

const std::string& Endpoint::buffer_warning() const { return driver_->buffer_warning(); }

std::string describe_loss(const ConnectionEvent& event, Duration death_timeout) {
  const std::string who =
      driver::to_string(event.peer) + " (UDP port " + std::to_string(event.peer.port) + ")";
  switch (event.status) {
    case Status::kOk:
    case Status::kClosed:
      return who + " closed the connection";
    case Status::kPeerFailed:
      return who + " broke off the connection with code " + std::to_string(event.detail >> 16) +
             ", application error " + std::to_string(event.detail & 0xFFFF) +
             "; its own output says why";
    case Status::kUnresponsive:
      return who + " stopped answering: no progress and no probe answered on any plane for " +
             in_seconds(death_timeout) +
             "; the process may be gone, the host down, or the network cut";
    case Status::kUnreachable:
      return who +
             " became unreachable: the network reports no way there; check the addresses, "
             "the links and the routes of both hosts";
    case Status::kPeerGone:
      return who +
             " is gone: its host answers, but the process has ended or was restarted and "
             "knows nothing of this connection; check the process there, then connect again";
    default:
      return who + ": " + metaroce::to_string(event.status);
  }
}

}  // namespace metaroce::api
