#include "driver/common/loop.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

namespace metaroce::driver {
namespace {

epoll_event event_of(int fd, bool readable, bool writable) {
  epoll_event event{};
  event.events = (readable ? static_cast<uint32_t>(EPOLLIN) : 0u) |
                 (writable ? static_cast<uint32_t>(EPOLLOUT) : 0u);
  event.data.fd = fd;
  return event;
}

}  // namespace

Loop::Loop(Duration spin) : epoll_(epoll_create1(EPOLL_CLOEXEC)), spin_(spin) {}

Loop::~Loop() {
  if (epoll_ >= 0) close(epoll_);
}

bool Loop::add(int fd, bool readable, bool writable) {
  epoll_event event = event_of(fd, readable, writable);
  return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool Loop::change(int fd, bool readable, bool writable) {
  epoll_event event = event_of(fd, readable, writable);
  return epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0;
}

void Loop::remove(int fd) { epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

bool Loop::block(Time now, Time until) {
  if (until <= now) return false;
  epoll_event events[16];
  // epoll_wait rounds up to milliseconds; a deadline 50 us away must not become 1 ms.
  timespec timeout{};
  const timespec* limit = nullptr;
  if (until != kNever) {
    const int64_t ns = (until - now).ns;
    timeout.tv_sec = ns / 1'000'000'000;
    timeout.tv_nsec = ns % 1'000'000'000;
    limit = &timeout;
  }
  int n = epoll_pwait2(epoll_, events, 16, limit, nullptr);
  if (n < 0 && errno == ENOSYS) {
    const int ms =
        limit == nullptr
            ? -1
            : static_cast<int>(timeout.tv_sec * 1000 + (timeout.tv_nsec + 999'999) / 1'000'000);
    n = epoll_wait(epoll_, events, 16, ms);
  }
  return n > 0;
}

int Loop::ready(std::span<int> fds) {
  epoll_event events[32];
  const int room = static_cast<int>(fds.size() < 32 ? fds.size() : 32);
  const int n = epoll_wait(epoll_, events, room, 0);
  for (int i = 0; i < n; ++i) fds[static_cast<size_t>(i)] = events[i].data.fd;
  return n < 0 ? 0 : n;
}

}  // namespace metaroce::driver
