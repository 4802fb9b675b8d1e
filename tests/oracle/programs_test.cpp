#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/covers.h"
#include "tests/oracle/adds.h"
#include "tests/oracle/command.h"

namespace metaroce::oracle {
namespace {

std::string first_of(const Outcome& out) {
  return out.differences.empty() ? "" : out.differences.front();
}

TEST(Programs, TextIsReadAsItWasWritten) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Program program = random_program(seed);
    const auto again = parse_program(write_program(program));
    ASSERT_TRUE(again.has_value()) << again.error();
    EXPECT_TRUE(*again == program) << "seed " << seed;
  }
  EXPECT_FALSE(parse_program("step side=2\nstream").has_value());
  EXPECT_FALSE(parse_program("stream\nstep kind=nothing").has_value());
}

TEST(Programs, SameSeedSameRun) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Program program = random_program(seed);
    EXPECT_EQ(run_program(program).hash, run_program(program).hash) << "seed " << seed;
  }
}

TEST(Programs, DoMoreThanTwoHundredOperations) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Program p = random_program(seed);
    const auto n = std::count_if(p.steps.begin(), p.steps.end(),
                                 [](const Step& s) { return is_request(s.kind); });
    EXPECT_GE(n, 200) << "seed " << seed;
  }
}

TEST(Programs, OnceFoundNeverAgain) {
  MR_COVERS("MR-MSG-006");
  MR_COVERS("MR-MSG-007");
  const std::filesystem::path folder =
      std::filesystem::path(MR_SOURCE_DIR) / "tests" / "oracle" / "regress";
  std::vector<std::filesystem::path> files;
  for (const auto& f : std::filesystem::directory_iterator(folder)) {
    if (f.path().extension() == ".ops") files.push_back(f.path());
  }
  std::sort(files.begin(), files.end());
  EXPECT_FALSE(files.empty());
  for (const auto& file : files) {
    const auto program = read_program(file.string());
    ASSERT_TRUE(program.has_value()) << program.error();
    EXPECT_EQ(first_of(run_program(*program)), "") << file.filename();
  }
}

TEST(Programs, NothingDiffersFromTheOracle) {
  MR_COVERS("MR-MSG-013");
  MR_COVERS("MR-MSG-014");
  MR_COVERS("MR-MSG-017");
  MR_COVERS("MR-MSG-018");
  MR_COVERS("MR-MSG-020");
  MR_COVERS("MR-MSG-040");
  MR_COVERS("MR-MSG-043");
  MR_COVERS("MR-MSG-044");
  MR_COVERS("MR-MSG-046");
  MR_COVERS("MR-MSG-049");
  MR_COVERS("MR-MEM-007");
  MR_COVERS("MR-MEM-008");
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    EXPECT_EQ(first_of(run_program(random_program(seed))), "") << "seed " << seed;
  }
}

TEST(Programs, TheLastReceiveNeverWaitsForAnother) {
  MR_COVERS("MR-MSG-027");
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    EXPECT_EQ(first_of(run_program(last_receive_program(seed))), "") << "seed " << seed;
  }
}

TEST(Programs, AdditionsAreExecutedOnce) {
  MR_COVERS("MR-MSG-046");
  const AddsOutcome out = run_adds(20'000, 1);
  EXPECT_EQ(out.wrong, "");
  EXPECT_GT(out.lost, 1'000u);
  EXPECT_GT(out.deaths, 0u);
}

}  // namespace
}  // namespace metaroce::oracle
