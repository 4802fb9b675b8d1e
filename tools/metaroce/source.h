// What a sender offers: files, folder trees, standard input.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "file_protocol.h"

namespace metaroce::tool {

struct SourceItem {
  std::string path;  ///< local; "-" is standard input
  Offer offer;       ///< item is set by the sender
};

/// Lists `paths` in a stable order. A folder gives itself and everything below it; its name is the
/// last component of the path. Symbolic links and special files below a folder are skipped with a
/// warning. Fails when a path given by name does not exist, is special or has no usable name.
Expected<std::vector<SourceItem>, std::string> list_sources(
    const std::vector<std::string>& paths, const std::string& stdin_name,
    const std::function<void(const std::string&)>& warn);

}  // namespace metaroce::tool
