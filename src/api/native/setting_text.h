// Settings as people write them: "name=value" and METAROCE_<NAME> in the environment.
#pragma once

#include <string>
#include <string_view>

#include "base/expected.h"
#include "base/settings.h"

namespace metaroce::api::native {

/// "name=value"; `where` begins the error text, which names the legal range.
Expected<void, std::string> apply_setting(Settings& settings, std::string_view text,
                                          const std::string& where);

/// Every METAROCE_<NAME> that is set; ignored in programs with raised privileges.
Expected<void, std::string> apply_environment(Settings& settings);

}  // namespace metaroce::api::native
