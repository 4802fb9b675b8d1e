// Fences between plain accesses, for memory that others look at without asking.
#pragma once

namespace metaroce {

// The thread sanitizer does not model fences, and g++ says so wherever one is. What they order here
// is read by other processes or by programs that poll, which it cannot see.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/// What was written before is visible before what is written after it.
inline void release_fence() { __atomic_thread_fence(__ATOMIC_RELEASE); }
/// What is read after it is not older than what was read before.
inline void acquire_fence() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace metaroce
