// The one place that reads a clock for the product.
#pragma once

#include <time.h>

#include "base/time.h"

namespace metaroce::driver {

/// CLOCK_MONOTONIC in nanoseconds.
inline Time now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec};
}

}  // namespace metaroce::driver
