#include "driver/common/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace metaroce::driver {

void log_warning(const std::string& line) {
  static const auto logger = std::make_shared<spdlog::logger>(
      "metaroce", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->warn(line);
}

}  // namespace metaroce::driver
