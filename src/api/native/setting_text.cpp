#include "api/native/setting_text.h"

#include <fmt/core.h>

#include <cctype>
#include <cstdlib>

#include "api/native/versioned.h"
#include "metaroce/metaroce.h"

namespace metaroce::api::native {
namespace {

Expected<void, std::string> set(Settings& settings, std::string_view name, std::string_view value,
                                const std::string& where) {
  const auto done = set_setting(settings, name, value);
  if (done) return {};
  int count = 0;
  const SettingInfo* table = setting_table(count);
  for (int i = 0; i < count; ++i) {
    if (table[i].name != name) continue;
    return unexpected(fmt::format("{}: {} is \"{}\"; it must be a whole number from {} to {} {}",
                                  where, name, value, table[i].minimum, table[i].maximum,
                                  table[i].unit));
  }
  return unexpected(
      fmt::format("{}: there is no setting \"{}\" (`metaroce settings` lists them)", where, name));
}

}  // namespace

Expected<void, std::string> apply_setting(Settings& settings, std::string_view text,
                                          const std::string& where) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return unexpected(fmt::format("{}: \"{}\" is not NAME=VALUE", where, text));
  }
  return set(settings, text.substr(0, equals), text.substr(equals + 1), where);
}

Expected<void, std::string> apply_environment(Settings& settings) {
  int count = 0;
  const SettingInfo* table = setting_table(count);
  for (int i = 0; i < count; ++i) {
    std::string variable = "METAROCE_" + std::string(table[i].name);
    for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const char* value = ::secure_getenv(variable.c_str());
    if (value == nullptr) continue;
    const auto done = set(settings, table[i].name, value, "environment " + variable);
    if (!done) return done;
  }
  return {};
}

}  // namespace metaroce::api::native

extern "C" mr_status mr_setting_get(size_t index, mr_setting_info* info) {
  using namespace metaroce;
  // The table's names are literals, so they end in 0.
  int count = 0;
  const SettingInfo* table = setting_table(count);
  if (info == nullptr || info->size < sizeof info->size) return MR_INVALID;
  if (index >= static_cast<size_t>(count)) return MR_EMPTY;
  const SettingInfo& row = table[index];
  mr_setting_info out{};
  out.name = row.name.data();
  out.unit = row.unit.data();
  out.meaning = row.meaning.data();
  out.value = row.value;
  out.minimum = row.minimum;
  out.maximum = row.maximum;
  api::native::give_sized(out, info);
  return MR_OK;
}
