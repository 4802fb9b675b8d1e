#include "base/settings.h"

#include <charconv>

namespace metaroce {
namespace {

constexpr SettingInfo kTable[] = {
#define MR_SETTING(type, name, value, minimum, maximum, unit, meaning) \
  {#name, unit, meaning, value, minimum, maximum},
#include "base/settings.def"
#undef MR_SETTING
};

}  // namespace

const SettingInfo* setting_table(int& count) {
  count = static_cast<int>(std::size(kTable));
  return kTable;
}

Expected<void, SettingError> set_setting(Settings& settings, std::string_view name,
                                         std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
#define MR_SETTING(type, field, value, minimum, maximum, unit, meaning)                  \
  if (name == #field) {                                                                  \
    if (!is_number) return unexpected(SettingError::kNotANumber);                        \
    if (number < static_cast<int64_t>(minimum) || number > static_cast<int64_t>(maximum)) { \
      return unexpected(SettingError::kOutOfRange);                                      \
    }                                                                                    \
    settings.field = static_cast<type>(number);                                          \
    return {};                                                                           \
  }
#include "base/settings.def"
#undef MR_SETTING
  return unexpected(SettingError::kUnknownName);
}

}  // namespace metaroce
