// What a process keeps open that goes its own way.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>

namespace metaroce::lab {

/// Leaves 0 to 2 alone: a lock, a pipe or a file of whoever started this process must not stay open
/// as long as it lives. Of `kept` those below 3 say nothing.
inline void close_all_but(std::array<int, 3> kept) {
  std::sort(kept.begin(), kept.end());
  int next = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd < next) continue;
    if (fd > next) (void)close_range(static_cast<unsigned>(next), static_cast<unsigned>(fd - 1), 0);
    next = fd + 1;
  }
  (void)close_range(static_cast<unsigned>(next), ~0u, 0);
}

}  // namespace metaroce::lab
