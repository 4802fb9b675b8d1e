// The few lines a driver has to say; they go to standard error, never to standard output.
#pragma once

#include <string>

namespace metaroce::driver {

void log_warning(const std::string& line);

}  // namespace metaroce::driver
