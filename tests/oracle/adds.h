// Fetch-and-adds on one counter over a network that loses a tenth and whose paths die.
#pragma once

#include <cstdint>
#include <string>

namespace metaroce::oracle {

struct AddsOutcome {
  std::string wrong;  ///< empty: the sum is exact and each old value came once
  uint64_t packets = 0;
  uint64_t lost = 0;
  uint64_t deaths = 0;
  int64_t virtual_ns = 0;
};

AddsOutcome run_adds(uint64_t count, uint64_t seed);

}  // namespace metaroce::oracle
