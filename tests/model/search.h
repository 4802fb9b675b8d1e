// Breadth-first search over all reachable states.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/model/state.h"

namespace metaroce::model {

struct SearchLimits {
  std::uint64_t max_states = 200'000'000;
  bool progress = false;  // a line on stderr every two seconds
};

struct SearchResult {
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::array<std::uint64_t, 32> steps{};  // transitions by Step: what the search really did
  int depth = 0;
  bool exhausted = false;
  Violation violation = Violation::kNone;
  std::vector<std::uint16_t> trace;  // codes of the actions from the initial state
};

SearchResult search(const Config& cfg, const SearchLimits& limits);
// The counterexample step by step, then the state it ends in (and the fair run that got stuck).
std::string render_trace(const Config& cfg, const SearchResult& result);

}  // namespace metaroce::model
