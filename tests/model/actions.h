// The nondeterministic steps of the model: what can happen next in a state.
#pragma once

#include <string>
#include <vector>

#include "tests/model/state.h"

namespace metaroce::model {

enum class Step : std::uint8_t {
  kSendNew,
  kRepair,
  kIdleCopy,
  kVoid,
  kProbe,
  kFullSpan,
  kRepeatProbe,
  kJudgeLost,
  kResolve,
  kSuspect,
  kLimit,
  kClose,
  kReopen,
  kDeliver,
  kDeliverNoBuffer,
  kAck,
  kHoldAck,
  kHeldAck,
};

inline constexpr int kSteps = 18;
const char* step_name(Step step);

struct Action {
  Step step;
  std::uint8_t a = 0;  // path, or index of the transmission or of the delayed ACK
  std::uint8_t b = 0;  // item, CPSN or slot

  std::uint16_t code() const {
    return static_cast<std::uint16_t>(static_cast<int>(step) << 11 | a << 5 | b);
  }
  static Action from(std::uint16_t code) {
    return Action{static_cast<Step>(code >> 11), static_cast<std::uint8_t>(code >> 5 & 63),
                  static_cast<std::uint8_t>(code & 31)};
  }
};

// Every step whose bounds allow it; some of them may turn out to change nothing.
void enumerate(const Config& cfg, const State& s, std::vector<Action>& out);
// Applies a step and normalises. False when the step was not possible.
bool apply(const Config& cfg, State& s, Action action);
// One line for a trace; `before` is the state the action starts from.
std::string describe(const Config& cfg, const State& before, Action action);
std::string describe(const Config& cfg, const State& s);

}  // namespace metaroce::model
