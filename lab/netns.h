// For a moment in another network namespace.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>

#include "base/assert.h"

namespace metaroce::lab {

/// While it lives, this thread is in the namespace open at `netns`; sockets made meanwhile stay
/// there. Check error() first.
class InNetns {
 public:
  explicit InNetns(int netns) : back_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    entered_ = back_ >= 0 && setns(netns, CLONE_NEWNET) == 0;
    error_ = entered_ ? 0 : errno;
  }
  ~InNetns() {
    // Whoever went on in the wrong namespace would change the wrong system.
    const bool returned = !entered_ || setns(back_, CLONE_NEWNET) == 0;
    if (back_ >= 0) close(back_);
    MR_ASSERT(returned);
  }
  InNetns(const InNetns&) = delete;
  InNetns& operator=(const InNetns&) = delete;

  /// errno of what did not work; 0: it is there.
  int error() const { return error_; }

 private:
  int back_;
  bool entered_ = false;
  int error_ = 0;
};

}  // namespace metaroce::lab
