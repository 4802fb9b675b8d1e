// Two engines hand each other their packets in virtual time, without network and without loss:
// what one data packet costs on each side, counted in instructions by valgrind --tool=callgrind
// (bench/engine_cost.py). sender_turn and receiver_turn hold everything a driver would call.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <vector>

#include "engine/engine.h"

namespace metaroce {
namespace {

using engine::Operation;

struct Options {
  uint32_t planes = 1;
  uint32_t paths = 8;  ///< in all
  uint64_t megabytes = 64;
  uint64_t message = 16u << 20;
  uint32_t runs = 1;  ///< a turn of the sender
};

constexpr uint64_t kRemote = 0x10000000;
constexpr Duration kTurn = microseconds(2);

SocketAddress address(int side, uint32_t plane) {
  SocketAddress a;
  a.family = 4;
  a.port = wire::kBasePort;
  a.bytes = {10, 0, static_cast<uint8_t>(plane), static_cast<uint8_t>(side + 1)};
  return a;
}

/// The packets of one direction between two turns.
struct Wire {
  std::vector<std::byte> bytes = std::vector<std::byte>(8u << 20);
  std::vector<engine::RxPacket> packets;
  size_t used = 0;

  void clear() {
    packets.clear();
    used = 0;
  }
  /// Payload is not copied: its length alone matters to an engine.
  void add(const engine::TxRun& run) {
    size_t header = 0;
    for (uint32_t i = 0; i < run.count; ++i) {
      const size_t size = run.header_length[i] + run.payload_length[i];
      MR_ASSERT(used + size <= bytes.size());
      std::copy_n(run.headers + header, run.header_length[i],
                  bytes.begin() + static_cast<long>(used));
      header += run.header_length[i] + run.trailer;
      packets.push_back({std::span(bytes).subspan(used, size), run.ecn, run.plane, run.from});
      used += size;
    }
  }
};

struct Side {
  std::unique_ptr<engine::Engine> engine;
  engine::ConnectionHandle connection = 0;
  std::vector<engine::Placement> placements = std::vector<engine::Placement>(4096);
  std::vector<engine::TxRun> runs = std::vector<engine::TxRun>(64);
  std::vector<engine::Completion> completions = std::vector<engine::Completion>(64);
  size_t run_count = 0;
  uint64_t completed = 0;
};

void turn(Side& side, Time now, std::span<const engine::RxPacket> in, uint32_t runs) {
  if (!in.empty()) side.engine->on_packets(now, in, side.placements);
  if (side.engine->next_deadline() <= now) side.engine->on_deadline(now);
  side.run_count = side.engine->poll_transmit(now, std::span(side.runs).first(runs));
  side.completed += side.engine->poll_completions(side.completions);
}

__attribute__((noinline)) void sender_turn(Side& side, Time now,
                                           std::span<const engine::RxPacket> in, uint32_t runs) {
  turn(side, now, in, runs);
}

__attribute__((noinline)) void receiver_turn(Side& side, Time now,
                                             std::span<const engine::RxPacket> in) {
  turn(side, now, in, 64);
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    Rng rng(20261130);
    for (int s = 0; s < 2; ++s) {
      engine::EngineConfig config;
      config.settings.max_connections = 2;
      config.settings.paths_per_plane = options.paths / options.planes;
      config.settings.initial_rtt = 10'000;
      config.accept = s == 1;
      for (uint32_t p = 0; p < options.planes; ++p) config.local.push_back(address(s, p));
      config.plane_mtu.assign(options.planes, 9000);
      sides_[s].engine = std::make_unique<engine::Engine>(config, rng.fork("engine", s));
    }
    region_ = *sides_[1].engine->regions().add_at(nullptr, options.message,
                                                  memory::access::kRemoteWrite, kRemote);
    engine::ConnectRequest request;
    for (uint32_t p = 0; p < options.planes; ++p) request.peer.push_back(address(1, p));
    sides_[0].connection = *sides_[0].engine->connect(now_, request);
  }

  /// False when the paths did not open or the messages did not end.
  bool run() {
    while (!open_ && now_ < Time{} + seconds(2)) step(false);
    if (!open_) return false;
    // The windows grow before anything is counted.
    if (!write(std::max<uint64_t>(options_.megabytes / 2, 16) << 20, false)) return false;
    data_packets_ = 0;
    return write(options_.megabytes << 20, true);
  }
  uint64_t data_packets() const { return data_packets_; }

 private:
  bool write(uint64_t bytes, bool counted) {
    uint64_t posted = 0;
    sides_[0].completed = 0;
    const uint64_t messages = (bytes + options_.message - 1) / options_.message;
    for (uint64_t turns = 0; sides_[0].completed < messages; ++turns) {
      if (turns > 100 + bytes / 512) return false;
      while (posted < messages && posted - sides_[0].completed < 64) {
        engine::WorkRequest r;
        r.id = posted;
        r.connection = sides_[0].connection;
        r.operation = Operation::kWrite;
        r.length = options_.message;
        r.remote_key = region_.key;
        r.remote_address = kRemote;
        Status status;
        if (sides_[0].engine->post(now_, {&r, 1}, status) != 1) break;
        ++posted;
      }
      step(counted);
    }
    return true;
  }

  void step(bool counted) {
    now_ = now_ + kTurn;
    if (counted) {
      sender_turn(sides_[0], now_, back_.packets, options_.runs);
    } else {
      turn(sides_[0], now_, back_.packets, options_.runs);
    }
    hand_over(sides_[0], there_);
    for (size_t i = 0; i < sides_[0].run_count; ++i) {
      if (sides_[0].runs[i].is_data) data_packets_ += sides_[0].runs[i].count;
    }
    now_ = now_ + kTurn;
    if (counted) {
      receiver_turn(sides_[1], now_, there_.packets);
    } else {
      turn(sides_[1], now_, there_.packets, 64);
    }
    hand_over(sides_[1], back_);
    engine::ConnectionEvent event;
    while (sides_[0].engine->poll_events({&event, 1}) == 1) {
      open_ |= event.kind == engine::ConnectionEventKind::kPathsOpen;
    }
  }

  static void hand_over(Side& side, Wire& wire) {
    wire.clear();
    for (size_t i = 0; i < side.run_count; ++i) wire.add(side.runs[i]);
  }

  Options options_;
  Side sides_[2];
  Wire there_;
  Wire back_;
  memory::RegionInfo region_;
  Time now_{1'000'000};
  bool open_ = false;
  uint64_t data_packets_ = 0;
};

}  // namespace
}  // namespace metaroce

int main(int argc, char** argv) {
  metaroce::Options o;
  CLI::App app{"Engine cost: two engines in virtual time, to be run under callgrind"};
  app.add_option("--planes", o.planes, "planes")->check(CLI::Range(1, 16));
  app.add_option("--paths", o.paths, "paths in all")->check(CLI::Range(1, 256));
  app.add_option("--megabytes", o.megabytes, "MiB to write")->check(CLI::Range(1, 1 << 20));
  app.add_option("--message", o.message, "bytes a message")->check(CLI::Range(1, 1 << 30));
  app.add_option("--runs", o.runs, "runs a turn of the sender")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  metaroce::Bench bench(o);
  if (!bench.run()) {
    std::fprintf(stderr, "engine_cost: the transfer did not end\n");
    return 1;
  }
  std::printf("data_packets %llu\n", static_cast<unsigned long long>(bench.data_packets()));
  return 0;
}
