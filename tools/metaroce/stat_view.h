// What `metaroce stat` makes of the pages: tables and JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "telemetry/stat_page.h"

namespace metaroce::tool {

class StatView {
 public:
  /// `before` gives the rates; a connection that is not in it has none. `now`: CLOCK_MONOTONIC.
  StatView(const std::vector<telemetry::StatSnapshot>& before,
           const std::vector<telemetry::StatSnapshot>& pages, Time now)
      : before_(before), pages_(pages), now_(now) {}

  /// One row a connection.
  std::string table() const;
  /// One row a path, the worst first (see worse()).
  std::string path_table() const;
  nlohmann::json json() const;

 private:
  struct Rates {
    bool known = false;
    double sent = 0;      ///< Gbit/s of payload
    double received = 0;
  };
  Rates rates(const telemetry::StatSnapshot& page, const telemetry::StatConnection& row) const;
  /// What the connection waits for; also what only an outsider sees: a program that does not poll,
  /// a stopped process.
  std::string waits_for(const telemetry::StatSnapshot& page,
                        const telemetry::StatConnection& row) const;
  Duration oldest(const telemetry::StatSnapshot& page,
                  const telemetry::StatConnection& row) const;
  std::string left_out() const;

  const std::vector<telemetry::StatSnapshot>& before_;
  const std::vector<telemetry::StatSnapshot>& pages_;
  Time now_;
};

/// a before b: dead, suspect, not open yet, good; then loss, marks, round-trip time above its
/// smallest.
bool worse(const telemetry::StatPath& a, const telemetry::StatPath& b);

}  // namespace metaroce::tool
