// `mr_sim ops`: random programs against the oracle.
#pragma once

#include <cstdint>
#include <string>

#include "tests/oracle/runner.h"

namespace metaroce::oracle {

struct OpsOptions {
  uint64_t first = 1;
  uint64_t count = 300;
  unsigned jobs = 0;          ///< processes; 0: one for each core
  bool table = false;         ///< print it, and fail when a cell is empty
  bool last_receive = false;  ///< last_receive_program instead of random_program
  bool keep = true;           ///< make failing programs small and write them down
  uint64_t adds = 0;          ///< not 0: so many fetch-and-adds at 10 % loss and dying paths
  bool verbose = false;       ///< what was posted and what ended, of one seed or file
  std::string json;
  std::string program;                             ///< a file to run
  std::string directory = "tests/oracle/regress";  ///< where small programs go
};

/// 0: no difference; 1: some; 2: a file cannot be read.
int command_ops(const OpsOptions& options);

/// How a run in a process of its own ended.
struct ChildOutcome {
  bool failed = false;
  std::string what;
};
ChildOutcome run_in_child(const Program& program);

/// The smallest program found that still fails.
Program shrink(const Program& program, int most_runs);

}  // namespace metaroce::oracle
