// The transport on UDP sockets: one receive socket a plane, one transmit socket a path.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "driver/common/clock.h"
#include "driver/common/error.h"
#include "driver/common/fault_injector.h"
#include "driver/udp/udp_options.h"
#include "engine/api.h"
#include "engine/engine.h"

namespace metaroce::driver {

/// What the network said about something sent; goes to Engine::on_network_hint.
struct Hint {
  uint32_t connection = 0;
  uint8_t path = 0xFF;
  engine::NetworkHint hint = engine::NetworkHint::kNotSent;
  uint32_t value = 0;
};

struct PlaneEvent {
  uint8_t plane = 0;
  bool up = false;
};

/// Belongs to one thread, like its engine. Use: open(), build the EngineConfig from local(),
/// plane_mtu() and inflight_packets(), then loop over progress() and wait().
class UdpDriver {
 public:
  static Expected<std::unique_ptr<UdpDriver>, Error> open(const UdpOptions& options);
  ~UdpDriver();
  UdpDriver(const UdpDriver&) = delete;
  UdpDriver& operator=(const UdpDriver&) = delete;

  /// The planes with the service port filled in: EngineConfig::local.
  const std::vector<SocketAddress>& local() const;
  /// EngineConfig::plane_mtu.
  const std::vector<uint16_t>& plane_mtu() const;
  uint16_t port() const;
  /// Full packets that the smallest granted receive buffer holds: Settings::inflight_packets.
  uint32_t inflight_packets() const;
  /// Granted bytes of the smallest receive and send buffer, as rmem_max and wmem_max count them.
  uint32_t receive_buffer() const;
  uint32_t send_buffer() const;
  /// One line that names the sysctl and both numbers when a buffer is smaller than asked; or "".
  const std::string& buffer_warning() const;

  /// Has the engine open what is sealed: to be called once before packets move when its connections
  /// may be secured.
  void secure_with(engine::Engine& engine);

  /// One round without blocking: receive, place, deadlines, hints, transmit. Returns the packets
  /// and deadlines handled, 0 when there was nothing to do.
  template <class AnyEngine>
  size_t progress(AnyEngine& engine);
  /// The same with transmit first: what the engine owes for what came in waits for the next round,
  /// so that whoever answers in between is not held up by acknowledgements.
  template <class AnyEngine>
  size_t progress_out_in(AnyEngine& engine);
  /// Spins for a while after the last work (returns at once, call progress() again), then blocks
  /// until a packet, the engine's deadline, `extra_fd` readable (-1: none) or `timeout`.
  /// Call it when progress() returned 0.
  template <class AnyEngine>
  void wait(AnyEngine& engine, int extra_fd, Duration timeout) {
    wait_until(engine.next_deadline(), extra_fd, timeout);
  }

  // The pieces of progress(), for tests and for loops of another shape.

  /// Receives one batch from all planes; the packets are verified and stay valid until the next
  /// call of receive().
  std::span<const engine::RxPacket> receive(Time now);
  /// Carries out placements of the last batch.
  void place(std::span<const engine::RxPacket> packets, std::span<const engine::Placement> list);
  /// Sends runs; nothing is lost when the sockets are full: what does not fit is kept (as bytes)
  /// and goes out first next time. Trailers are filled in. Returns the datagrams handed over.
  size_t transmit(Time now, std::span<engine::TxRun> runs);
  /// True while kept packets wait for a socket; poll no runs then.
  bool tx_blocked() const;
  void wait_until(Time deadline, int extra_fd, Duration timeout);
  /// For loops that block elsewhere: a descriptor for epoll or poll that is readable while
  /// progress() has something from the kernel to look at; never read it.
  int fd() const;
  /// When progress() is due without the descriptor, given the engine's deadline; kNever: not.
  Time next_wake(Time now, Time deadline) const;
  /// The next progress() looks for errors and link changes; call it after fd() was readable.
  void look_soon();
  /// Not yet worth blocking: there was work a moment ago (UdpOptions::spin).
  bool spinning(Time now) const;
  /// Hints and plane changes since the last call; valid until the next call of the same.
  std::span<const Hint> take_hints(Time now);
  /// What came to the ports of paths (UNKNOWN_CONNECTION only) and take_hints() found.
  std::span<const engine::RxPacket> take_strays();
  std::span<const PlaneEvent> take_plane_events(Time now);

  const UdpCounters& counters() const;
  uint32_t tx_sockets() const;
  /// The injectors (rules from UdpOptions::faults) and their books.
  FaultInjector& rx_faults();
  FaultInjector& tx_faults();

 private:
  UdpDriver();
  class Impl;
  std::unique_ptr<Impl> impl_;
  static constexpr size_t kPlacements = 512;
  static constexpr size_t kRuns = 8;
  static constexpr size_t kTransmitBatches = 2;
  template <class AnyEngine>
  size_t round_in(AnyEngine& engine, Time& t);
  template <class AnyEngine>
  size_t round_out(AnyEngine& engine, Time t, bool answers_first);
  /// Lone data packets before everything else: an acknowledgement must not hold up an answer.
  size_t transmit_answers_first(Time now, std::span<engine::TxRun> runs);
  size_t note_progress(Time now, size_t work);
  std::unique_ptr<engine::Placement[]> placements_;
  std::unique_ptr<engine::TxRun[]> runs_;
};

template <class AnyEngine>
size_t UdpDriver::round_in(AnyEngine& engine, Time& t) {
  for (const PlaneEvent& e : take_plane_events(t)) engine.on_plane_state(t, e.plane, e.up);
  const auto packets = receive(t);
  size_t work = packets.size();
  if (work != 0) t = now();
  for (size_t at = 0; at < packets.size(); at += kPlacements) {
    const auto part = packets.subspan(at, std::min(kPlacements, packets.size() - at));
    const size_t n = engine.on_packets(t, part, {placements_.get(), kPlacements});
    place(part, {placements_.get(), n});
  }
  for (const Hint& h : take_hints(t)) {
    engine.on_network_hint(t, h.connection, h.path, h.hint, h.value);
    ++work;
  }
  if (const auto strays = take_strays(); !strays.empty()) {
    engine.on_packets(t, strays, {placements_.get(), kPlacements});
    work += strays.size();
  }
  if (engine.next_deadline() <= t) {
    engine.on_deadline(t);
    ++work;
  }
  return work;
}

template <class AnyEngine>
size_t UdpDriver::round_out(AnyEngine& engine, Time t, bool answers_first) {
  size_t work = transmit(t, {});
  // A bounded number of batches: received packets must not wait behind an endless queue.
  for (size_t batch = 0; batch < kTransmitBatches; ++batch) {
    if (tx_blocked()) break;
    const size_t n = engine.poll_transmit(t, {runs_.get(), kRuns});
    if (n == 0) break;
    const std::span<engine::TxRun> runs{runs_.get(), n};
    work += answers_first && n > 1 ? transmit_answers_first(t, runs) : transmit(t, runs);
    if (n < kRuns) break;
  }
  return work;
}

template <class AnyEngine>
size_t UdpDriver::progress(AnyEngine& engine) {
  Time t = now();
  size_t work = round_in(engine, t);
  work += round_out(engine, t, false);
  return note_progress(t, work);
}

template <class AnyEngine>
size_t UdpDriver::progress_out_in(AnyEngine& engine) {
  Time t = now();
  size_t work = round_out(engine, t, true);
  work += round_in(engine, t);
  return note_progress(t, work);
}

}  // namespace metaroce::driver
