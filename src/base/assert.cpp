#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace metaroce {
namespace {
thread_local unsigned long long context_seed = 0;
thread_local long long context_time = 0;
}  // namespace

void set_assert_context(unsigned long long seed, long long engine_time_ns) {
  context_seed = seed;
  context_time = engine_time_ns;
}

void assert_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s (seed %llu, engine time %lld ns)\n", file, line,
               expression, context_seed, context_time);
  std::abort();
}

}  // namespace metaroce
