// Figures of a perf run as lines, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "perf_client.h"

namespace metaroce::tool {

/// "write, 65536 bytes x 16 under way, 1 stream, client to server".
std::string describe_plan(const PerfPlan& plan);
std::string interval_line(const PerfPlan& plan, Time begin, const PerfMoment& from,
                          const PerfMoment& to);
std::string summary(const PerfResult& result);
/// One line a size; the heading that goes with it.
std::string sweep_heading(bool latency);
std::string sweep_line(const PerfResult& result);
nlohmann::json perf_json(const PerfResult& result);

}  // namespace metaroce::tool
