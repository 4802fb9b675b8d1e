// What a program asks for and what it gets back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace metaroce::message {

/// A handle of a connection: index and generation; never 0 for a real one.
using ConnectionHandle = uint32_t;

enum class Operation : uint8_t { kWrite, kWriteImm, kSend, kSendImm, kReceive };

struct WorkRequest {
  uint64_t id = 0;  ///< returned in the completion
  ConnectionHandle connection = 0;
  uint16_t stream = 0;
  Operation operation = Operation::kWrite;
  bool solicited = false;
  const std::byte* local = nullptr;  ///< may be null for a simulated payload
  uint64_t length = 0;               ///< bytes, 0 to 2^31
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;
};

struct ReceiveRequest {
  uint64_t id = 0;
  ConnectionHandle connection = 0;
  uint16_t stream = 0;
  std::byte* buffer = nullptr;  ///< may be null: payload is accepted and goes nowhere
  uint64_t length = 0;
};

/// One per posted request, in posting order per stream and direction.
struct Completion {
  uint64_t id = 0;
  ConnectionHandle connection = 0;
  uint16_t stream = 0;
  Operation operation = Operation::kWrite;
  Status status = Status::kOk;
  bool has_immediate = false;
  bool solicited = false;  ///< of a receive: the sender asked that somebody is woken (MR-MSG-018)
  uint32_t immediate = 0;
  uint64_t bytes = 0;  ///< length of the message; of a receive, bytes placed
};

}  // namespace metaroce::message
