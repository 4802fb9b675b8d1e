// Registered memory: cost, locking, deregistration while work is posted.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "api/native/test_support.h"
#include "driver/common/clock.h"

namespace metaroce::api::native {
namespace {

/// Pages of the process in memory.
size_t resident_pages() {
  std::ifstream in("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  in >> total >> resident;
  return resident;
}

/// Locked memory of the process in KiB.
size_t locked_kib() {
  std::ifstream in("/proc/self/status");
  std::string word;
  size_t value = 0;
  while (in >> word) {
    if (word == "VmLck:") in >> value;
  }
  return value;
}

void* reserve(size_t length) {
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// P17, S12
TEST(NativeRegion, FourGibibytesTouchNoPageAndLockNoMemory) {
  constexpr size_t kLength = size_t{4} << 30;
  char* memory = static_cast<char*>(reserve(kLength));
  ASSERT_NE(memory, nullptr);
  mr_context* context = open_context(0);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  add_region(context, memory, page);  // first use of code and tables
  const size_t before = resident_pages();
  const auto region = add_region(context, memory, kLength);
  EXPECT_EQ(mr_region_deregister(context, region.region), MR_OK);
  const size_t after = resident_pages();
  EXPECT_LT(after, before + 256);  // 4 GiB would be a million
  EXPECT_EQ(locked_kib(), 0u);
  std::vector<unsigned char> in_core(kLength / page);
  ASSERT_EQ(mincore(memory, kLength, in_core.data()), 0);
  size_t touched = 0;
  for (const unsigned char c : in_core) touched += c & 1;
  EXPECT_EQ(touched, 0u);
  mr_context_close(context);
  munmap(memory, kLength);
}

// P17: memory that cannot even be read is registered, so no length can cost more than another.
TEST(NativeRegion, RegisteringNeverLooksAtTheMemory) {
  constexpr size_t kLength = size_t{1} << 30;
  void* memory =
      mmap(nullptr, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  mr_context* context = open_context(0);
  const auto region = add_region(context, memory, kLength);
  EXPECT_EQ(region.length, kLength);
  EXPECT_EQ(mr_region_deregister(context, region.region), MR_OK);
  mr_context_close(context);
  munmap(memory, kLength);
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// P17: a thousand rounds of 4 GiB fault in no more pages than a thousand rounds of 4 KiB.
TEST(NativeRegion, LargeRegionsFaultInNoMorePagesThanSmallOnes) {
  constexpr size_t kLarge = size_t{4} << 30;
  void* memory = reserve(kLarge);
  ASSERT_NE(memory, nullptr);
  mr_context* context = open_context(0);
  const auto rounds = [&](size_t length) {
    const long before = page_faults();
    const Time begin = driver::now();
    for (int i = 0; i < 1000; ++i) {
      const auto region = add_region(context, memory, length);
      mr_region_deregister(context, region.region);
    }
    // A figure for docs/evidence.md, no bar: time is not this machine's to promise.
    std::printf("%zu bytes: register and deregister in %lld ns\n", length,
                static_cast<long long>((driver::now() - begin).ns / 1000));
    return page_faults() - before;
  };
  rounds(4096);  // first use
  EXPECT_LE(rounds(4096), 16);
  EXPECT_LE(rounds(kLarge), 16);
  mr_context_close(context);
  munmap(memory, kLarge);
}

TEST(NativeRegion, ManyRegionsUntilTheSettingEndsThem) {
  mr_context_options o = options(0);
  const char* const settings[] = {"max_regions=100000"};
  o.settings = settings;
  o.setting_count = 1;
  mr_context* context = nullptr;
  ASSERT_EQ(mr_context_open(&o, &context), MR_OK) << last_error(nullptr);
  std::vector<char> memory(4096);
  for (int i = 0; i < 100'000; ++i) add_region(context, memory.data(), memory.size());
  mr_region_info info{};
  info.size = sizeof info;
  EXPECT_EQ(mr_region_register(context, memory.data(), 1, 0, &info), MR_FULL);
  EXPECT_NE(last_error(context).find("max_regions"), std::string::npos);
  mr_context_close(context);
}

/// Moves a MiB as a plain user with a limit of 0 for locked memory.
bool moves_data_without_rights() {
  const rlimit none{0, 0};
  if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return false;
  constexpr uid_t kNobody = 65534;
  if (getuid() == 0 &&
      (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0)) {
    return false;
  }
  Two two;
  std::vector<char> memory(1 << 20);
  const auto region = add_region(two.server, memory.data(), memory.size());
  const std::vector<char> from(1 << 20, 'x');
  if (post(two.client, two.write_to(region, from.data(), from.size())) != MR_OK) return false;
  return two.completions(two.client, 1)[0].status == MR_OK && memory == from;
}

// S12: the limit cannot be raised again, so this runs in a process of its own.
TEST(NativeRegion, WorksWithoutTheRightToLockMemory) {
  EXPECT_EXIT(_exit(moves_data_without_rights() ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST(NativeRegion, IsBusyWhileWorkNamesIt) {
  Two two;
  std::vector<char> from(1 << 20, 'a');
  std::vector<char> to(1 << 20);
  const auto source = add_region(two.client, from.data(), from.size(), 0);
  const auto target = add_region(two.server, to.data(), to.size());
  mr_work w = two.write_to(target, from.data(), from.size());
  w.region = source.region;
  ASSERT_EQ(post(two.client, w), MR_OK);
  EXPECT_EQ(mr_region_deregister(two.client, source.region), MR_BUSY);
  EXPECT_NE(last_error(two.client).find("1 posted requests"), std::string::npos);
  EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_OK));
  EXPECT_EQ(to, from);  // the refused call changed nothing
  EXPECT_EQ(mr_region_deregister(two.client, source.region), MR_OK);
  EXPECT_EQ(mr_region_deregister(two.client, source.region), MR_UNKNOWN_HANDLE);
}

TEST(NativeRegion, AfterDeregistrationNothingIsPlacedAndThePeerHearsWhy) {
  Two two;
  std::vector<char> from(8 << 20, 'a');
  std::vector<char> to(8 << 20);
  const auto target = add_region(two.server, to.data(), to.size());
  ASSERT_EQ(post(two.client, two.write_to(target, from.data(), from.size())), MR_OK);
  // Some of it has arrived, the rest is on its way.
  while (to[0] == 0) two.turn();
  ASSERT_EQ(mr_region_deregister(two.server, target.region), MR_OK);
  const std::vector<char> then = to;
  ASSERT_NE(then.back(), 'a');
  EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_ACCESS));
  EXPECT_EQ(to, then);
}

TEST(NativeRegion, AHandleOfAnEarlierRegionIsNotTakenForANewOne) {
  mr_context* context = open_context(0);
  char memory[64];
  const auto first = add_region(context, memory, sizeof memory);
  ASSERT_EQ(mr_region_deregister(context, first.region), MR_OK);
  const auto second = add_region(context, memory, sizeof memory);
  EXPECT_NE(first.region, second.region);
  EXPECT_NE(first.key, second.key);
  EXPECT_EQ(mr_region_deregister(context, first.region), MR_UNKNOWN_HANDLE);
  EXPECT_EQ(mr_region_deregister(context, second.region), MR_OK);
  mr_context_close(context);
}

TEST(NativeRegion, WorkOutsideItsRegionIsRefused) {
  Two two;
  std::vector<char> memory(4096);
  const auto region = add_region(two.client, memory.data(), 1024);
  mr_receive r{};
  r.connection = two.to_server;
  r.region = region.region;
  const auto at = [&](size_t offset, size_t length) {
    r.memory = memory.data() + offset;
    r.length = length;
    return post(two.client, r);
  };
  EXPECT_EQ(at(1000, 25), MR_INVALID);
  EXPECT_EQ(at(1024, 1), MR_INVALID);
  EXPECT_EQ(at(2000, 1), MR_INVALID);
  EXPECT_EQ(at(1000, 24), MR_OK);
  EXPECT_EQ(at(0, 1024), MR_OK);
  EXPECT_EQ(at(1024, 0), MR_OK);
}

}  // namespace
}  // namespace metaroce::api::native
