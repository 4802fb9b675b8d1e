// A program of the model test: what two sides do, over which network, with how much room. Plain
// data with a text form, so that a failing one can be made small, kept and run again.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/expected.h"

namespace metaroce::oracle {

enum class StepKind : uint8_t {
  kWrite,
  kWriteImm,
  kSend,
  kSendImm,
  kSendInv,
  kRead,
  kFetchAdd,
  kCompareSwap,
  kReceive,  ///< posts to the stream, or to the shared queue if the stream has one
  kReset,    ///< of the stream, by the side
  kDrain,
  kReopen,  ///< both sides reset the stream and use it again when both may
  kRemove,  ///< the side takes a mortal region away (and registers another one)
  kClose,   ///< the connection; this and what follows are ends of a program
  kAbort,
  kDeath,  ///< the network carries nothing any more
  kCount
};
inline constexpr int kRequestKinds = 8;  ///< the first ones are requests
constexpr bool is_request(StepKind k) { return static_cast<int>(k) < kRequestKinds; }
constexpr bool is_end(StepKind k) { return k >= StepKind::kClose; }
const char* to_string(StepKind kind);

/// What is wrong with a request from the start, or may become wrong while it is under way.
enum class Fault : uint8_t {
  kNone,
  kBadKey,  ///< a key that never was
  kBounds,
  kRight,        ///< the region does not permit it
  kMisaligned,   ///< of an atomic
  kForeign,      ///< the key belongs to another domain
  kMortal,       ///< a region that is removed at some time
  kWindow,       ///< a window that a SEND_INV may end
  kWindowRight,  ///< a window that permits less than its region
  kCount
};
const char* to_string(Fault fault);

struct Step {
  uint32_t id = 0;  ///< names its data: stays the same when others are dropped
  uint32_t side = 0;
  StepKind kind = StepKind::kWrite;
  uint32_t stream = 0;  ///< index into Program::streams
  uint32_t length = 0;
  uint32_t segments = 1;
  uint32_t copied = 0;
  uint32_t unsignalled = 0;
  uint32_t fence = 0;
  uint32_t unordered = 0;
  uint32_t solicited = 0;
  uint32_t sync = 0;     ///< first waits for what the side posted on the stream, at most 2 ms
  uint32_t wait_ns = 0;  ///< after the step of the side before it
  Fault fault = Fault::kNone;
  uint32_t variant = 0;  ///< which target, region, window, operand
  bool operator==(const Step&) const = default;
};

struct StreamPlan {
  uint32_t in_order = 0;
  std::array<uint32_t, 2> rnr{7, 7};     ///< retries of each side
  std::array<uint32_t, 2> shared{0, 0};  ///< the side receives from its shared queue
  bool operator==(const StreamPlan&) const = default;
};

struct Dark {
  int32_t plane = -1;  ///< -1: all
  int32_t path = -1;   ///< -1: all, else a path of side a
  uint32_t direction = 2;
  uint32_t begin_us = 0;
  uint32_t end_us = 0;
  bool operator==(const Dark&) const = default;
};

struct NetPlan {
  uint32_t planes = 1;
  uint32_t paths = 2;
  uint32_t mtu = 1500;
  uint32_t rate_mbps = 50'000;
  uint32_t delay_ns = 3'000;
  uint32_t spread_ns = 0;
  uint32_t loss_ppm = 0;
  uint32_t duplicate_ppm = 0;
  uint32_t reorder_ppm = 0;
  uint32_t reorder_ns = 0;
  bool operator==(const NetPlan&) const = default;
};

/// Room of both engines; the smaller, the more often something is refused.
struct Limits {
  uint32_t sends = 512;
  uint32_t receives = 512;
  uint32_t open_messages = 64;
  uint32_t pending = 16;
  uint32_t responses = 32;
  uint32_t outstanding = 16;
  uint32_t span = 64;
  uint32_t segment_lists = 128;
  uint32_t copies = 64;
  bool operator==(const Limits&) const = default;
};

struct Program {
  uint64_t seed = 1;  ///< of the network's luck and of all bytes
  /// So many requests posted by both sides are enough: what is left, but for the ends, is left out.
  /// The ends wait until then. 0: all steps are taken.
  uint32_t enough = 0;
  NetPlan net;
  Limits limits;
  std::vector<Dark> dark;
  std::vector<StreamPlan> streams;
  std::vector<Step> steps;
  bool operator==(const Program&) const = default;
};

Program random_program(uint64_t seed);
/// Many messages of several streams, and one receive at a time for all of them.
Program last_receive_program(uint64_t seed);
std::string write_program(const Program& program);
Expected<Program, std::string> parse_program(const std::string& text);
Expected<Program, std::string> read_program(const std::string& file);

}  // namespace metaroce::oracle
