// What a program asks for and what it gets back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace metaroce::message {

/// A handle of a connection: index and generation; never 0 for a real one.
using ConnectionHandle = uint32_t;

enum class Operation : uint8_t {
  kWrite,
  kWriteImm,
  kSend,
  kSendImm,
  kReceive,
  kSendInv,      ///< a Send that invalidates a key of the peer (`immediate`)
  kRead,         ///< from the peer's memory into ours
  kFetchAdd,     ///< 64 bit, returns the old value
  kCompareSwap,  ///< 64 bit, returns the old value
};

/// A piece of local memory.
struct Segment {
  std::byte* address = nullptr;
  uint64_t length = 0;
  bool operator==(const Segment&) const = default;
};
inline constexpr uint32_t kMaxSegments = 16;  ///< of one request
inline constexpr uint32_t kMaxInline = 256;   ///< bytes of a request that the engine copies

struct WorkRequest {
  uint64_t id = 0;  ///< returned in the completion
  ConnectionHandle connection = 0;
  uint16_t stream = 0;
  Operation operation = Operation::kWrite;
  bool solicited = false;
  bool fence = false;      ///< starts after the Reads and atomics of the stream before it
  bool unordered = false;  ///< the peer need not wait for the messages before it (MR-MSG-017)
  bool copied = false;     ///< the engine copies the bytes at once, at most kMaxInline
  bool signalled = true;   ///< false: a success gives no completion
  const std::byte* local = nullptr;  ///< may be null for a simulated payload
  std::byte* result = nullptr;       ///< Read: where the bytes go; atomics: the old value, or null
  uint64_t length = 0;               ///< bytes, 0 to 2^31; atomics: 8 whatever stands here
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;  ///< of kWriteImm and kSendImm; kSendInv: the key
  uint64_t operand = 0;    ///< what is added, or compared with
  uint64_t swap = 0;
  /// Not empty: stands for `local` or `result`, and `length` is the sum. Read at the call only.
  std::span<const Segment> segments;
};

struct ReceiveRequest {
  uint64_t id = 0;
  ConnectionHandle connection = 0;  ///< unused with a shared queue
  uint16_t stream = 0;
  std::byte* buffer = nullptr;  ///< may be null: payload is accepted and goes nowhere
  uint64_t length = 0;
  uint32_t shared_queue = 0;          ///< id of a shared receive queue; 0: of the stream
  std::span<const Segment> segments;  ///< as in WorkRequest
};

/// What one end may set for a stream, before anything is posted to it or received on it.
struct StreamOptions {
  /// How often a Send that finds no receive is tried again before it fails; 7: for ever.
  uint8_t rnr_retry = 7;
  /// MR-MSG-060: bytes become visible in the order in which they were sent. Costs throughput: one
  /// run of packets a round trip. Both ends must set it.
  bool in_order = false;
  uint32_t shared_queue = 0;  ///< receives come from it
};
inline constexpr uint8_t kRetryForEver = 7;

/// One per posted request, in posting order per stream and direction.
struct Completion {
  uint64_t id = 0;
  ConnectionHandle connection = 0;
  uint16_t stream = 0;
  Operation operation = Operation::kWrite;
  Status status = Status::kOk;
  bool has_immediate = false;
  bool solicited = false;    ///< of a receive: the sender asked that somebody is woken (MR-MSG-018)
  bool invalidated = false;  ///< of a receive: `immediate` is the key that is no more (MR-MEM-008)
  uint32_t immediate = 0;
  uint64_t bytes = 0;      ///< length of the message; of a receive, bytes placed
  uint64_t old_value = 0;  ///< of an atomic
};

}  // namespace metaroce::message
