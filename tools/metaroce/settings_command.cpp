// metaroce settings: the table of src/base/settings.def.
#include <fmt/format.h>

#include <cstdio>

#include "cli_common.h"

namespace metaroce::tool {
namespace {

constexpr const char* kMarkdownHead =
    "# Settings\n\n"
    "Written by `metaroce settings --markdown` from `src/base/settings.def`; a test compares the\n"
    "two. Set one with `--set name=value` or the environment variable `METAROCE_<NAME>` (upper\n"
    "case); the command line wins. A value outside its range is refused, never clamped.\n\n"
    "| Name | Default | Range | Unit | Meaning |\n"
    "| --- | ---: | --- | --- | --- |\n";

}  // namespace

int run_settings(const SettingsOptions& options) {
  int count = 0;
  const SettingInfo* table = setting_table(count);
  std::string out;
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (int i = 0; i < count; ++i) {
      list.push_back({{"name", table[i].name},
                      {"default", table[i].value},
                      {"minimum", table[i].minimum},
                      {"maximum", table[i].maximum},
                      {"unit", table[i].unit},
                      {"meaning", table[i].meaning}});
    }
    out = list.dump(2) + "\n";
  } else if (options.markdown) {
    out = kMarkdownHead;
    for (int i = 0; i < count; ++i) {
      out += fmt::format("| `{}` | {} | {} to {} | {} | {} |\n", table[i].name, table[i].value,
                         table[i].minimum, table[i].maximum, table[i].unit, table[i].meaning);
    }
  } else {
    for (int i = 0; i < count; ++i) {
      out += fmt::format("{:<22} {:>12} {:<12} {}\n{:<22} {:>12} to {}\n", table[i].name,
                         table[i].value, table[i].unit, table[i].meaning, "", table[i].minimum,
                         table[i].maximum);
    }
  }
  std::fputs(out.c_str(), stdout);
  return kExitOk;
}

}  // namespace metaroce::tool
