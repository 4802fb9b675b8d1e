// metaroce lab: fabrics of network namespaces on this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace metaroce::tool {

struct LabOptions;

/// Adds the words of `metaroce lab`; keep what comes back until run_lab().
std::shared_ptr<LabOptions> add_lab(CLI::App& app);
/// Takes what stands behind "--" of `metaroce lab run` and `exec` away, to be run as it is; returns
/// the number of arguments that are left.
int take_command(int argc, char** argv, LabOptions& options);
/// Exit codes: 0 done, 1 it did not work, 2 wrong arguments; of run, exec and shell that of the
/// command (126, 127: it could not be run).
int run_lab(CLI::App& app, const LabOptions& options);

}  // namespace metaroce::tool
