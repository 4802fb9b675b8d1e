// What the two ends of `metaroce perf` say to each other on stream 0. docs/perf.md has the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/expected.h"
#include "perf_histogram.h"

namespace metaroce::tool {

inline constexpr uint16_t kPerfVersion = 4;
inline constexpr size_t kMaxPerfMessage = 32768;
inline constexpr size_t kMostPerfPaths = 256;
inline constexpr uint32_t kMostPerfStreams = 1024;
inline constexpr uint32_t kMostPerfDepth = 4096;
inline constexpr uint64_t kMostPerfSize = 1u << 30;
inline constexpr int64_t kMostPerfTime = 7ll * 24 * 3600 * 1'000'000'000;

enum class PerfOp : uint8_t { kWrite, kWriteImm, kSend, kRead, kFetchAdd };
/// Each message ends a receive at the other end, and may be answered by one.
constexpr bool takes_receives(PerfOp op) { return op == PerfOp::kWriteImm || op == PerfOp::kSend; }
/// The bytes come to who asks.
constexpr bool fetches(PerfOp op) { return op == PerfOp::kRead || op == PerfOp::kFetchAdd; }
const char* to_string(PerfOp op);

enum PerfDirection : uint8_t { kForward = 1, kReverse = 2, kBoth = 3 };

/// What a run is to be; the client's wish, checked by both ends.
struct PerfPlan {
  PerfOp op = PerfOp::kWrite;
  bool ping_pong = false;  ///< Write: one at a time; others: each message is answered by one
  bool verify = false;
  uint8_t direction = kForward;
  uint16_t streams = 1;
  uint32_t depth = 16;
  uint64_t size = 65536;
  int64_t warmup_ns = 0;
  int64_t time_ns = 0;  ///< 0: until `count` messages a direction
  uint64_t count = 0;
  uint32_t seed = 1;  ///< of the payload pattern
  bool operator==(const PerfPlan&) const = default;
};

struct PerfStart {
  uint16_t version = kPerfVersion;
  PerfPlan plan;
};
/// Memory for Writes; zero when the direction or operation has none.
struct PerfGrant {
  uint32_t key = 0;
  uint64_t address = 0;
  uint64_t slots = 0;  ///< messages of a stream that have room there side by side
  bool operator==(const PerfGrant&) const = default;
};
struct PerfReady {
  uint16_t version = kPerfVersion;
  PerfGrant grant;
};
struct PerfRefuse {
  uint16_t version = kPerfVersion;
  std::string text;
};
struct PerfGo {
  PerfGrant grant;
};
/// The sender's warm-up is over and drained: figures begin.
struct PerfMark {
  uint64_t before = 0;  ///< messages of the warm-up
};
/// The sender's last message is accepted: figures end.
struct PerfDone {
  uint64_t messages = 0;  ///< since MARK; streams overtake each other, so they are counted
};
/// The client wants its reverse direction to end now.
struct PerfStop {};

struct PerfPath {
  uint8_t id = 0;
  uint8_t plane = 0;
  uint8_t state = 0;
  uint16_t port = 0;
  uint16_t pmtu = 0;
  uint32_t window = 0;
  uint32_t srtt_ns = 0;
  uint64_t packets = 0;  ///< sequenced packets sent, like those that follow while measuring
  uint64_t data = 0;     ///< data packets sent for the first time
  uint64_t repairs = 0;
  uint64_t copies = 0;
  uint64_t probes = 0;
  uint64_t acked = 0;  ///< -spurious <= packets - acked - lost - in_flight <= probes
  uint64_t lost = 0;
  uint64_t spurious = 0;
  uint64_t marks = 0;  ///< packets received with a congestion mark
  int64_t in_flight = 0;  ///< packets whose fate is open at the end, less those at the beginning
  bool operator==(const PerfPath&) const = default;
};

/// One direction as its sender saw it, from warm-up's end to the last completion.
struct PerfSent {
  uint64_t messages = 0;
  uint64_t bytes = 0;
  int64_t ns = 0;
  int64_t gap_ns = 0;   ///< longest time without a completion
  Percentiles latency;  ///< round trip (ping-pong) or from post to completion
  bool operator==(const PerfSent&) const = default;
};
/// What one end counted.
struct PerfReport {
  PerfSent sent;
  uint64_t cpu_ns = 0;      ///< user and system, of the whole process
  int64_t cpu_span_ns = 0;  ///< the time it is of
  bool cpu_shared = false;  ///< other clients were served at the same time
  uint64_t packets_received = 0;
  uint64_t duplicates = 0;
  uint64_t messages_received = 0;
  uint64_t verified = 0;
  uint64_t verify_errors = 0;
  std::vector<PerfPath> paths;
  bool operator==(const PerfReport&) const = default;
};

using PerfMessage = std::variant<PerfStart, PerfReady, PerfRefuse, PerfGo, PerfMark, PerfDone,
                                 PerfStop, PerfReport>;

std::vector<std::byte> encode(const PerfMessage& message);

/// Any bytes give a message or one line that says what is wrong. A START, READY or REFUSE of
/// another version gives a message with that version and nothing else filled in.
Expected<PerfMessage, std::string> decode_perf(std::span<const std::byte> bytes);

/// Empty, or what makes the plan impossible.
std::string check_plan(const PerfPlan& plan);

}  // namespace metaroce::tool
