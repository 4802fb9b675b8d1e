// What a run of the model test has seen: operation x fault x status.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "tests/oracle/program.h"

namespace metaroce::oracle {

/// Why a request ended as it did.
enum class Cause : uint8_t {
  kNone,
  kBadKey,
  kBounds,
  kRight,
  kMisaligned,
  kForeign,
  kMortal,
  kWindow,
  kWindowRight,
  kTooShort,   ///< the receive
  kNoReceive,  ///< retries used up
  kOwnReset,
  kPeerReset,
  kDrain,
  kOwnClose,
  kPeerClose,
  kPeerAbort,
  kDeath,  ///< no path works
  kCount
};
const char* to_string(Cause cause);
Cause cause_of(Fault fault);

/// Rows: the requests, and receives.
inline constexpr int kRows = kRequestKinds + 1;
inline constexpr int kCauses = static_cast<int>(Cause::kCount);
inline constexpr int kStatuses = static_cast<int>(Status::kCount);

struct Table {
  uint64_t cell[kRows][kCauses][kStatuses] = {};

  void add(int row, Cause cause, Status status) {
    ++cell[row][static_cast<int>(cause)][static_cast<int>(status)];
  }
  void add(const Table& other);
};

/// Can this happen at all? The only place that knows; each "no" has its reason there.
bool possible(int row, Cause cause, Status status);

std::string print_table(const Table& table);
/// The cells that are possible and empty, and those that are not possible and were seen.
std::string wrong_cells(const Table& table);

}  // namespace metaroce::oracle
