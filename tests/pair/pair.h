// Pair: two engines joined by a simulated network in virtual time. A run is a seed: the same seed
// and configuration give the same events, packets and hash with every compiler.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "telemetry/conservation.h"
#include "telemetry/recorded_engine.h"
#include "tests/pair/network.h"
#include "tests/pair/pattern.h"

namespace metaroce::pair {

/// Settings for virtual time at an RTT of some 10 us: no timer granularity to speak of, small
/// tables so that a Pair is cheap to make.
Settings pair_settings();

struct PairConfig {
  uint64_t seed = 1;
  NetworkConfig network;
  Settings settings = pair_settings();
  bool real_memory = true;              ///< false: payload bytes do not exist
  uint64_t region_bytes = 1 << 20;      ///< remotely writable memory of each side
  uint32_t receive_streams = 0;         ///< receive memory: streams x slots x slot_bytes
  uint32_t receive_slots = 0;
  uint64_t receive_slot_bytes = 0;
  uint64_t longest_message = 1 << 20;
  std::array<secure::Config, 2> security{};
  std::string identity;                 ///< of A, see engine::ConnectRequest
  std::string peer_key;
  std::array<EventSink*, 2> events{};   ///< hears the events of a side
  std::array<std::string, 2> record;    ///< file that receives the calls of a side; "": none
};

/// What a side has seen, counted outside the engine.
struct SideCounts {
  uint64_t completions = 0;         ///< of sends and writes
  uint64_t failed = 0;              ///< completions with another status than kOk, receives too
  uint64_t received = 0;            ///< completions of receives and immediates
  uint64_t placed_bytes = 0;
  uint64_t wrong_bytes = 0;         ///< bytes placed where others belong
  uint64_t stray_placements = 0;    ///< placements outside the memory given
  Time last_completion{0};
  Time last_received{0};
};

class Pair {
 public:
  explicit Pair(const PairConfig& config);
  /// Ends the recordings and checks the books once more; what take_wrong_books() did not take is
  /// printed and ends the program.
  ~Pair();

  Time now() const { return now_; }
  engine::Engine& engine(int side) { return *sides_[side].engine; }
  Network& network() { return network_; }
  const PairConfig& config() const { return config_; }
  const SideCounts& counts(int side) const { return sides_[side].counts; }
  engine::ConnectionHandle connection(int side) const { return sides_[side].connection; }
  /// True once the connection of this side is lost, failed or closed.
  bool lost(int side) const { return sides_[side].lost; }
  Status loss_status(int side) const { return sides_[side].loss_status; }

  /// Connects A to B and runs until every path of A is open (and of B, with `both`). False when
  /// that does not happen within `limit`.
  bool connect(Duration limit = milliseconds(100), bool both = true);

  /// Runs events until `done` holds, checked after each event, or `limit` passes; returns done().
  bool run_until(const std::function<bool()>& done, Duration limit);
  void run_for(Duration duration);
  /// Sends and polls what a side has now: after a call to its engine that bypassed Pair.
  void poll(int side) { pump(side); }
  /// Calls `action` at that time, during a run.
  void at(Time time, std::function<void()> action);

  /// Writes `length` bytes from `side` to the other side's region at `offset`.
  Status write(int side, uint16_t stream, uint64_t id, uint64_t offset, uint64_t length);
  Status write_imm(int side, uint16_t stream, uint64_t id, uint64_t offset, uint64_t length,
                   uint32_t immediate);
  /// Sends the `number`-th message (from 0) of the stream; it lands in the `number`-th receive.
  Status send(int side, uint16_t stream, uint64_t id, uint64_t number, uint64_t length,
              bool with_immediate = false);
  /// Posts the `number`-th receive of the stream, of a whole slot.
  Status receive(int side, uint16_t stream, uint64_t id, uint64_t number);
  /// Posts any request as it stands (for refusals and errors).
  Status post(int side, const engine::WorkRequest& request);

  /// Bytes of the side's region in [offset, offset + length) that are not what belongs there; 0
  /// without memory.
  uint64_t wrong_in_region(int side, uint64_t offset, uint64_t length);
  uint64_t wrong_in_receive(int side, uint16_t stream, uint64_t number, uint64_t length);
  bool guards_intact() const;

  /// Gives a path of A a new source port; false when the engine would not.
  bool change_port(uint8_t path, uint16_t port);
  std::vector<engine::PathStatus> paths(int side) const;

  /// Called for each completion, after counting it.
  std::function<void(int side, const engine::Completion&)> on_completion;
  /// For tests with memory of their own. Carries out a placement instead of the check against the
  /// pattern; sees a packet before the engine has it; sees a run before it is sent; is called after
  /// the completions of a side were given.
  std::function<void(int side, const engine::RxPacket&, const engine::Placement&)> on_place;
  std::function<void(int side, const engine::RxPacket&)> on_packet;
  std::function<void(int side, const engine::TxRun&)> on_run;
  std::function<void(int side)> on_pump;

  /// A hash over all packets, arrivals, events and completions so far.
  uint64_t hash() const { return network_.hash(); }
  /// Arrivals and sends so far: the "packet events" of speed figures.
  uint64_t packet_events() const { return packet_events_; }
  /// Equations of spec/11 that did not hold, now or at one of the looks during the run.
  std::vector<std::string> take_wrong_books();
  /// True when an engine asked for deadlines without end at one instant.
  bool stuck() const { return stuck_; }

 private:
  struct Side {
    std::unique_ptr<engine::Engine> engine;
    std::unique_ptr<telemetry::Recorder> recorder;
    std::unique_ptr<Arena> region;
    std::unique_ptr<Arena> receives;
    memory::RegionInfo info;
    engine::ConnectionHandle connection = 0;
    SideCounts counts;
    Time armed = kNever;
    bool paths_open = false;
    bool lost = false;
    Status loss_status = Status::kOk;
  };

  /// The engine of a side with what listens at its boundary.
  telemetry::RecordedEngine<engine::Engine> tapped(int side) {
    return {*sides_[side].engine, {sides_[side].recorder.get(), nullptr}};
  }
  void check_books();
  void make_side(int side, Rng& rng);
  void step();
  void arrivals(const Event& first);
  void deadline(int side);
  void place(int side, const engine::RxPacket& packet, const engine::Placement& placement);
  void pump(int side);
  void drain_completions(int side);
  void drain_events(int side);
  uint64_t slot_offset(uint16_t stream, uint64_t number) const;

  PairConfig config_;
  EventQueue events_;
  Network network_;
  std::shared_ptr<const Pattern> pattern_;
  std::array<Side, 2> sides_;
  std::vector<std::function<void()>> actions_;
  std::vector<engine::TxRun> runs_;
  std::vector<std::byte> sealed_;
  Time now_{0};
  uint64_t packet_events_ = 0;
  uint32_t same_instant_ = 0;
  bool stuck_ = false;
  uint32_t pumps_ = 0;
  std::vector<std::string> wrong_books_;
};

}  // namespace metaroce::pair
