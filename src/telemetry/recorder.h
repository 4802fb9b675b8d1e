// Writes every call of an engine with its time and inputs, so that the run can be repeated bit for
// bit (Replay). Payload is not kept: the engine never reads it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/flat_map.h"
#include "engine/engine.h"
#include "telemetry/bytes.h"
#include "telemetry/record_format.h"
#include "telemetry/tune.h"

namespace metaroce::telemetry {

/// Belongs to the thread of its engine. Cost of a call: its headers copied into a buffer and its
/// outputs hashed; a block is written to the file when 256 KiB are full or a second has passed.
class Recorder {
 public:
  /// Creates or truncates `path` and writes the configuration. The error says what failed.
  /// `to_wall_clock`: what to add to the engine's time to get nanoseconds since 1970 (captures).
  static Expected<std::unique_ptr<Recorder>, std::string> create(const std::string& path,
                                                                 const engine::EngineConfig& config,
                                                                 const Rng& rng,
                                                                 Duration to_wall_clock = {},
                                                                 Time begin = Time{0});
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Before the call of the engine: its inputs.
  void packets(Time now, std::span<const engine::RxPacket> packets);
  void transmit(Time now, size_t capacity);
  void deadline(Time now);
  void post(Time now, std::span<const engine::WorkRequest> requests);
  void post_receives(Time now, std::span<const engine::ReceiveRequest> requests);
  void completions(size_t capacity);
  void connect(Time now, const engine::ConnectRequest& request);
  void close(Time now, engine::ConnectionHandle connection, uint32_t code);
  void network_hint(Time now, engine::ConnectionHandle connection, uint8_t path,
                    engine::NetworkHint hint, uint32_t value);
  void plane_state(Time now, uint8_t plane, bool up);
  void change_port(Time now, engine::ConnectionHandle connection, uint8_t path, uint16_t port);
  void add_region(const void* base, uint64_t length, uint8_t rights, uint64_t remote_base);
  void remove_region(uint32_t index);
  void tune(Time now, const Tune& tune);
  /// Events that were fetched (a call that fetched none is not written).
  void events(size_t capacity);

  /// After it: the outputs go into hash(), then done() ends the call. `quiet`: nothing came out.
  RollingHash& hash() { return hash_; }
  void done(bool quiet, Time next_deadline);

  /// Ends the recording with the engine's state; the destructor does it too, without that.
  void finish(uint64_t state_hash);

  uint64_t calls() const { return calls_; }
  uint64_t bytes() const { return written_ + block_.size(); }
  /// Why recording stopped early (disk full ...), or "". The engine goes on without it.
  const std::string& error() const { return error_; }

 private:
  void segments(std::span<const engine::Segment> list);
  Recorder(int fd, std::string path);
  void begin(CallKind kind, Time now);
  void begin(CallKind kind);
  void address(const SocketAddress& address);
  void flush_block();
  void write_all(const void* data, size_t length);
  void configuration(const engine::EngineConfig& config, const Rng& rng, Duration to_wall_clock,
                     Time begin);

  int fd_ = -1;
  std::string path_;
  std::string error_;
  ByteWriter block_;
  ByteWriter call_;
  RollingHash hash_;
  CallKind kind_ = CallKind::kEnd;
  bool has_time_ = false;
  int64_t delta_ = 0;
  Time last_{0};
  Time flushed_at_{0};
  Time next_deadline_ = kNever;
  uint64_t calls_ = 0;
  uint64_t block_first_ = 0;
  uint64_t written_ = 0;
  bool finished_ = false;
  std::vector<SocketAddress> addresses_;  ///< told already; a call names them by number
};

}  // namespace metaroce::telemetry
