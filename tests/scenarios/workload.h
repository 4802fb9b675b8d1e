// Posts the work of a scenario to a Pair and keeps count.
#pragma once

#include <string>
#include <vector>

#include "tests/pair/pair.h"
#include "tests/scenarios/scenario.h"

namespace metaroce::scenarios {

class Workload {
 public:
  Workload(const Scenario& scenario, uint64_t seed);

  /// Sets the memory the work needs.
  void size_memory(pair::PairConfig& config) const;
  /// Schedules everything relative to now; sets pair.on_completion.
  void start(pair::Pair& pair);

  bool done() const { return remaining_ == 0; }
  Time last() const { return last_; }
  uint64_t bytes() const;
  uint64_t useful_packets(uint32_t payload) const;
  /// Adds what is wrong with counts and memory after all is done.
  void verify(pair::Pair& pair, std::vector<std::string>& failures) const;
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  struct State {
    Work work;
    uint32_t index = 0;
    int from = 0;
    uint16_t first_stream = 0;
    bool consumes = false;     ///< a receive of the other side
    uint64_t region_offset = 0;
    uint64_t largest = 0;
    uint64_t slots = 1;        ///< places in the region
    int64_t posted = 0;
    int64_t completed = 0;
    int64_t received = 0;
    std::vector<int64_t> stream_receives;  ///< posted on each stream
  };

  uint64_t length_of(const State& s, int64_t message) const;
  void post_sends(pair::Pair& pair, State& s);
  void post_receive(pair::Pair& pair, State& s, int64_t stream);
  void completed(pair::Pair& pair, int side, const engine::Completion& c);
  void check_message(pair::Pair& pair, State& s, const engine::Completion& c, int64_t message);

  Rng rng_;
  std::vector<State> states_;
  uint64_t region_bytes_ = 1;
  uint64_t slot_bytes_ = 0;
  uint32_t receive_streams_ = 0;
  int64_t remaining_ = 0;
  Time last_{0};
  std::vector<std::string> failures_;
};

}  // namespace metaroce::scenarios
