// The system calls of the data path behind a table, so that tests can make them fail.
#pragma once

#include <sys/socket.h>

namespace metaroce::driver {

/// The real calls. A derived class stands in for a kernel that fails; not owned by its users.
class Syscalls {
 public:
  virtual ~Syscalls() = default;
  virtual ssize_t sendmsg(int fd, const msghdr* message, int flags);
  virtual ssize_t recvmsg(int fd, msghdr* message, int flags);
  virtual int bind(int fd, const sockaddr* address, socklen_t length);
  virtual int setsockopt(int fd, int level, int name, const void* value, socklen_t length);
  virtual int getsockopt(int fd, int level, int name, void* value, socklen_t* length);

  static Syscalls& real();
};

}  // namespace metaroce::driver
