// Runs to sendmsg calls. Internal to driver/udp.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "driver/common/fault_injector.h"
#include "driver/common/trailer.h"
#include "driver/udp/local_addresses.h"
#include "driver/udp/tx_sockets.h"
#include "driver/udp/udp_driver.h"

namespace metaroce::driver {

/// An UNKNOWN_CONNECTION without its trailer.
struct Stray {
  std::array<std::byte, 12> bytes{};
  SocketAddress from;
  uint8_t plane = 0;
};

class Transmitter {
 public:
  Transmitter(Syscalls& calls, TxSockets& sockets, UdpCounters& counters, FaultInjector& faults,
              GsoMode gso);

  void add_plane(bool wildcard, uint16_t mtu);
  /// What EMSGSIZE reports from now on.
  void set_mtu(size_t plane, uint16_t mtu) { planes_[plane].mtu = mtu; }
  /// Room for runs that will be sealed, of packets of this payload.
  void expect_sealed(size_t payload) {
    sealed_.resize(std::max(kMaxRun * payload, kZeroBytes));
  }
  size_t send(Time now, std::span<engine::TxRun> runs);
  bool blocked() const { return kept_bytes_ >= kMostKept; }
  bool keeps() const { return !kept_.empty(); }
  /// Until when a loop may sleep although packets are kept; kNever when none are.
  Time retry_at(Time now) const;
  /// Reads the error queue of a socket into hints.
  void read_errors(TxSocket& socket);
  /// Reads the error queues of the service sockets that were sent from.
  void read_shared_errors();
  void read_service_errors(uint8_t plane) { read_errors(*sockets_.shared(plane)); }
  LocalAddresses& local_addresses(uint8_t plane) { return planes_[plane].local; }
  std::vector<Hint>& hints() { return hints_; }
  /// What came to the port of a path instead of the service port. Only UNKNOWN_CONNECTION does: who
  /// sends it knows nothing of us but where the packet came from. All else is thrown away.
  void read_strays(TxSocket& socket);
  std::vector<Stray>& strays() { return strays_; }

 private:
  static constexpr size_t kMostKept = 512 * 1024;
  enum class Outcome : uint8_t { kSent, kBlocked, kTooBig, kNoGso, kRefused };
  struct Plane {
    explicit Plane(RandomSource& random) : local(random) {}
    bool wildcard = false;
    bool gso = true;
    bool used_shared = false;
    uint16_t mtu = 0;
    LocalAddresses local;
  };
  /// Packets that met a full socket, as the bytes that go on the wire: by the time they leave, the
  /// user's memory may be gone.
  struct Kept {
    engine::TxRun run;
    std::vector<std::byte> bytes;
    Time since;
  };
  struct Call;

  size_t send_run(Time now, const engine::TxRun& run);
  size_t send_from(const engine::TxRun& run, TxSocket& socket, size_t& first, bool& full);
  size_t send_singly(const engine::TxRun& run, TxSocket& socket, size_t first, size_t end,
                     size_t& done, bool& full);
  size_t send_with_faults(Time now, const engine::TxRun& run);
  size_t send_raw(Time now, const RawPacket& packet, const engine::TxRun* origin);
  Outcome call_kernel(Call& call, TxSocket& socket, const engine::TxRun& run);
  void report(const engine::TxRun& run, size_t packets, int code);
  void give_up_gso(Plane& plane, uint8_t index, int code);
  void keep(Time now, const engine::TxRun& run, size_t first);
  size_t flush(Time now);
  bool keeps_for(const engine::TxRun& run) const;

  Syscalls& calls_;
  TxSockets& sockets_;
  UdpCounters& counters_;
  FaultInjector& faults_;
  GsoMode gso_;
  std::vector<Plane> planes_;
  std::deque<std::unique_ptr<Kept>> kept_;
  size_t kept_bytes_ = 0;
  bool queue_full_ = false;  // the device's queue, not a socket: no event tells when it drains
  std::vector<Hint> hints_;
  std::vector<Stray> strays_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<engine::TxRun> single_;
  std::vector<std::byte> sealed_;  // payload of a run of a secured connection, encrypted
};

}  // namespace metaroce::driver
