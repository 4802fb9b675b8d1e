#include "driver/common/syscalls.h"

namespace metaroce::driver {

ssize_t Syscalls::sendmsg(int fd, const msghdr* message, int flags) {
  return ::sendmsg(fd, message, flags);
}

ssize_t Syscalls::recvmsg(int fd, msghdr* message, int flags) {
  return ::recvmsg(fd, message, flags);
}

int Syscalls::bind(int fd, const sockaddr* address, socklen_t length) {
  return ::bind(fd, address, length);
}

int Syscalls::setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  return ::setsockopt(fd, level, name, value, length);
}

int Syscalls::getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  return ::getsockopt(fd, level, name, value, length);
}

Syscalls& Syscalls::real() {
  static Syscalls calls;
  return calls;
}

}  // namespace metaroce::driver
