#include "tests/scenarios/scenario.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/scenarios/bench.h"
#include "tests/scenarios/fuzzing.h"

namespace metaroce::scenarios {
namespace {

std::string error_of(std::string_view text) {
  const auto s = parse_scenario(text, "x.toml");
  return s ? "" : s.error();
}

TEST(Scenario, UnknownKeysNameTheirLine) {
  EXPECT_EQ(error_of("[[work]]\nbytes = 1\nsize = 3\n"), "x.toml:3: unknown key 'size'");
  EXPECT_EQ(error_of("[topology]\n\nplane = 1\n[[work]]\n"), "x.toml:3: unknown key 'plane'");
  EXPECT_EQ(error_of("[nonsense]\n[[work]]\n"), "x.toml:1: unknown key 'nonsense'");
}

TEST(Scenario, ValuesOutOfRangeAreErrors) {
  EXPECT_NE(error_of("[[work]]\n[topology]\nplanes = 17\n").find("x.toml:3: 'planes'"),
            std::string::npos);
  EXPECT_NE(error_of("[[work]]\nbytes = 1.5\n").find("x.toml:2: 'bytes'"), std::string::npos);
  EXPECT_NE(error_of("[[work]]\n[[trouble]]\nkind = \"rain\"\n").find("x.toml:3: 'kind'"),
            std::string::npos);
  EXPECT_NE(error_of("[settings]\nno_such = 1\n[[work]]\n").find("x.toml:2"), std::string::npos);
  EXPECT_NE(error_of("[topology]\n").find("needs at least one"), std::string::npos);
  EXPECT_NE(error_of("[[work]]\nbytes = \n").find("x.toml:2"), std::string::npos);
}

TEST(Scenario, WritingAndReadingGivesTheSame) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = write_scenario(random_scenario(seed));
    const auto again = parse_scenario(text, "again");
    ASSERT_TRUE(again.has_value()) << again.error() << "\n" << text;
    ASSERT_EQ(write_scenario(*again), text);
  }
}

TEST(Scenario, EveryFileCanBeRead) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(MR_SOURCE_DIR) + "/tests/scenarios")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    const auto s = read_scenario(entry.path().string());
    ASSERT_TRUE(s.has_value()) << s.error();
    EXPECT_FALSE(s->about.empty()) << entry.path();
  }
  EXPECT_GT(files, 20);
}

TEST(Bench, Percentiles) {
  std::vector<double> v;
  for (int i = 100; i >= 1; --i) v.push_back(i);
  EXPECT_EQ(percentile(v, 50), 50);
  EXPECT_EQ(percentile(v, 99), 99);
  EXPECT_EQ(percentile(v, 100), 100);
  EXPECT_EQ(percentile({7}, 50), 7);
  EXPECT_EQ(mean({1, 2, 6}), 3);
}

TEST(Bench, SeedsFillTheirSlotsWhateverTheThreads) {
  std::vector<uint64_t> slots(100, 0);
  for_seeds(100, 3, [&](uint64_t i) { slots[i] += i + 1; });
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(slots[i], i + 1);
}

}  // namespace
}  // namespace metaroce::scenarios
