// The books of an engine: equations between its counters that hold at every moment (spec/11).
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace metaroce::telemetry {

/// The equations of one path alone.
std::vector<std::string> check_path(uint32_t connection, const engine::PathStatus& path);

/// Checks every equation of spec/11 that one engine can answer, for each connection and path.
/// Returns what does not hold, each with the equation and both numbers; empty: all hold. To be
/// called between the engine's calls. Allocates only when something is wrong.
std::vector<std::string> check_conservation(const engine::Engine& engine);

}  // namespace metaroce::telemetry
