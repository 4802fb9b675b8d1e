#include "driver/common/error.h"

#include <fmt/core.h>

#include <cstring>

namespace metaroce::driver {

Error system_error(int code, const std::string& what, const std::string& remedy) {
  const char* name = strerrorname_np(code);
  std::string text = fmt::format("{}: {}", what, strerror(code));
  if (name != nullptr) text += fmt::format(" ({})", name);
  if (!remedy.empty()) text += fmt::format("; {}", remedy);
  return {code, text};
}

}  // namespace metaroce::driver
