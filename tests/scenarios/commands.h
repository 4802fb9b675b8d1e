// What the words of mr_sim do; each returns the exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metaroce::scenarios {

struct SeedRange {
  uint64_t first = 0;
  uint64_t count = 0;  ///< 0: what the scenario says
};

struct CommonOptions {
  std::string json;
  unsigned jobs = 0;
  bool verbose = false;  ///< run: the network's tally and the state of each path
  uint64_t first_seed = 1;
};

int command_run(const std::vector<std::string>& files, SeedRange seeds,
                const CommonOptions& options);
int command_list();
int command_show(const std::string& file);
int command_shrink(const std::string& file, bool has_seed, uint64_t seed,
                   const std::string& directory);
int command_fuzz(int64_t seconds, uint64_t first_seed, const CommonOptions& options);
int command_bench(const std::string& name, uint64_t seeds, const CommonOptions& options);

}  // namespace metaroce::scenarios
