// Programmer errors stop the program at once, in every build. Never used on what a peer can send.
#pragma once

namespace metaroce {

/// Prints the expression, its place and the context set by set_assert_context(), then aborts.
[[noreturn]] void assert_failed(const char* expression, const char* file, int line);

/// Shown when an assertion fails: the seed of the run and the engine's time in nanoseconds.
void set_assert_context(unsigned long long seed, long long engine_time_ns);

}  // namespace metaroce

#define MR_ASSERT(expr) \
  (__builtin_expect(!!(expr), 1) ? (void)0 : ::metaroce::assert_failed(#expr, __FILE__, __LINE__))

#ifdef MR_DASSERT_ON
#define MR_DASSERT(expr) MR_ASSERT(expr)
#else
#define MR_DASSERT(expr) ((void)sizeof(!!(expr)))
#endif
