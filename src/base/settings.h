// Every tunable, generated from settings.def.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/expected.h"
#include "base/time.h"

namespace metaroce {

struct Settings {
#define MR_SETTING(type, name, value, minimum, maximum, unit, meaning) type name = value;
#include "base/settings.def"
#undef MR_SETTING
};

struct SettingInfo {
  std::string_view name;
  std::string_view unit;
  std::string_view meaning;
  int64_t value;
  int64_t minimum;
  int64_t maximum;
};

/// All settings in the order of settings.def; `count` receives their number.
const SettingInfo* setting_table(int& count);

enum class SettingError : uint8_t { kUnknownName, kNotANumber, kOutOfRange };

/// Sets one by name; out-of-range values are refused, never clamped.
Expected<void, SettingError> set_setting(Settings& settings, std::string_view name,
                                         std::string_view value);

}  // namespace metaroce
