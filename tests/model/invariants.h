// What has to hold in every reachable state.
#pragma once

#include <string>
#include <vector>

#include "tests/model/state.h"

namespace metaroce::model {

// Checks of one state that need no run; the rules themselves report the others in State::bad.
Violation check_state(const Config& cfg, const State& s);

// Drops everything under way, then lets the sender go on by its own rules while the network
// loses nothing more. kNone when every item is accepted and every CPSN decided in the end. With
// `log`, each step is written there.
Violation check_fair_run(const Config& cfg, const State& s, std::vector<std::string>* log);

}  // namespace metaroce::model
