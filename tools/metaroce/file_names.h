// Which names a receiver accepts, and how to show a foreign name on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace metaroce::tool {

/// Empty when `name` may be created below the target folder, else the reason for refusing it.
/// Accepted: relative, components of 1 to 255 bytes, 4,095 bytes in all, neither "." nor "..",
/// no control characters.
std::string check_name(std::string_view name);

/// The name with everything that could steer a terminal written as \xNN.
std::string printable(std::string_view name);

}  // namespace metaroce::tool
