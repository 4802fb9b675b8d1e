// Reads a recording block by block. Damage is found and told, never trusted.
#pragma once

#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/expected.h"
#include "engine/engine.h"
#include "telemetry/bytes.h"
#include "telemetry/record_format.h"
#include "telemetry/tune.h"

namespace metaroce::telemetry {

/// Inputs of one call, as the recorder saw them.
struct RecordedCall {
  CallKind kind = CallKind::kEnd;
  bool has_hash = false;
  uint32_t hash = 0;
  Time now{0};          ///< of the last call that had a time
  size_t capacity = 0;  ///< of the span that a poll_* was given
  std::vector<engine::RxPacket> packets;
  std::vector<uint32_t> known;  ///< of each packet: bytes that were kept
  std::vector<engine::WorkRequest> work;
  std::vector<engine::ReceiveRequest> receives;
  engine::ConnectRequest connect;
  engine::ConnectionHandle connection = 0;
  uint32_t value = 0;  ///< code, hint value, port, region index
  uint8_t path = 0;    ///< path or plane
  engine::NetworkHint hint = engine::NetworkHint::kNotSent;
  bool up = false;
  std::byte* base = nullptr;
  uint64_t length = 0;
  uint64_t remote_base = 0;
  uint8_t rights = 0;
  Tune tune;
  std::deque<std::vector<engine::Segment>> segments;  ///< what the requests point to
  // kEnd
  uint64_t total_calls = 0;
  uint64_t state_hash = 0;
  uint64_t output_hash = 0;
};

class Recording {
 public:
  /// Opens the file and reads its configuration.
  static Expected<std::unique_ptr<Recording>, std::string> open(const std::string& path);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  const engine::EngineConfig& config() const { return config_; }
  const Rng& rng() const { return rng_; }
  /// Time at which the recorder was made, on the engine's clock.
  Time begin() const { return begin_; }
  Duration to_wall_clock() const { return to_wall_clock_; }

  enum class Next {
    kCall,
    kEnd,      ///< the end mark: `call` holds the totals
    kCut,      ///< the file ends between blocks without an end mark (the process was killed)
    kDamaged,  ///< see error()
  };
  Next next(RecordedCall& call);
  const std::string& error() const { return error_; }
  uint64_t calls() const { return calls_; }

 private:
  Recording(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
  bool read_block(bool& end_of_file);
  bool read_configuration();
  bool read_settings(ByteReader& in);
  bool read_call(RecordedCall& call);
  bool read_packets(RecordedCall& call);
  void read_work(RecordedCall& call);
  void read_receives(RecordedCall& call);
  void read_rest(RecordedCall& call);
  std::span<const engine::Segment> read_segments(RecordedCall& call);
  SocketAddress address();
  bool damaged(const std::string& what);

  std::FILE* file_;
  std::string path_;
  std::string error_;
  engine::EngineConfig config_;
  Rng rng_;
  Duration to_wall_clock_{};
  Time begin_{0};
  std::vector<std::byte> block_;
  std::vector<std::byte> packet_bytes_;
  ByteReader in_;
  uint64_t offset_ = 0;  ///< of the current block in the file
  uint64_t next_offset_ = 0;
  uint64_t calls_ = 0;
  Time now_{0};
  std::vector<SocketAddress> addresses_;
};

}  // namespace metaroce::telemetry
