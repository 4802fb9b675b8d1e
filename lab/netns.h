// For a moment in another network namespace.
#pragma once

#include <fcntl.h>
#include <sched.h>

#include <cerrno>

#include "base/assert.h"
#include "driver/common/descriptor.h"

namespace metaroce::lab {

/// Whatever network namespace this thread goes to while it lives, it is back where it was
/// afterwards.
class NetnsReturn {
 public:
  NetnsReturn() : back_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)), error_(errno) {
    if (back_.valid()) error_ = 0;
  }
  ~NetnsReturn() {
    // Whoever went on in the wrong namespace would change the wrong system.
    const bool returned = !back_.valid() || setns(back_.get(), CLONE_NEWNET) == 0;
    MR_ASSERT(returned);
  }
  NetnsReturn(const NetnsReturn&) = delete;
  NetnsReturn& operator=(const NetnsReturn&) = delete;

  /// errno of what did not work; 0: nothing. Check it before going anywhere.
  int error() const { return error_; }

 protected:
  void enter(int netns) {
    if (error_ == 0 && setns(netns, CLONE_NEWNET) != 0) error_ = errno;
  }

 private:
  driver::Descriptor back_;
  int error_;
};

/// While it lives, this thread is in the namespace open at `netns`, if error() is 0; sockets made
/// meanwhile stay there.
class InNetns : public NetnsReturn {
 public:
  explicit InNetns(int netns) { enter(netns); }
};

}  // namespace metaroce::lab
