// How calls wait: for sockets themselves, or for the progress thread.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "api/native/context.h"
#include "driver/common/error.h"

namespace metaroce::api::native {
namespace {

constexpr Time kAwake{std::numeric_limits<int64_t>::min()};

void drain(int fd) {
  uint64_t count = 0;
  if (::read(fd, &count, sizeof count) < 0) return;  // it was empty
}

void make_readable(int fd) {
  const uint64_t one = 1;
  if (::write(fd, &one, sizeof one) < 0) return;  // the counter is full: it is readable
}

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

mr_status Context::open_waiting(bool with_thread, std::string& error) {
  const auto failed = [&](const char* call) {
    error = driver::system_error(errno, call, "raise `ulimit -n`").text;
    return MR_SYSTEM;
  };
  if (!with_thread) {
    notify_fd_ = epoll_create1(EPOLL_CLOEXEC);
    if (notify_fd_ < 0) return failed("epoll_create1");
    timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer_fd_ < 0) return failed("timerfd_create");
    if (!watch(notify_fd_, endpoint_->fd()) || !watch(notify_fd_, timer_fd_) ||
        !watch(notify_fd_, endpoint_->wake_fd())) {
      return failed("epoll_ctl");
    }
    return MR_OK;
  }
  notify_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (notify_fd_ < 0) return failed("eventfd");
  thread_loop_ = std::make_unique<driver::Loop>(Duration{});
  if (!thread_loop_->valid() || !thread_loop_->add(endpoint_->fd(), true, false) ||
      !thread_loop_->add(endpoint_->wake_fd(), true, false)) {
    return failed("epoll_create1");
  }
  // Signals are the program's: its handlers run in its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  mr_status status = MR_OK;
  threaded_ = true;
  try {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "metaroce");
  } catch (const std::system_error& e) {
    error = driver::system_error(e.code().value(), "pthread_create", "raise `ulimit -u`").text;
    status = MR_SYSTEM;
    threaded_ = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

Context::~Context() {
  if (thread_.joinable()) {
    enter();
    stop_ = true;
    endpoint_->wake();
    leave();
    thread_.join();
  }
  thread_loop_.reset();
  if (notify_fd_ >= 0) ::close(notify_fd_);
  if (timer_fd_ >= 0) ::close(timer_fd_);
}

void Context::enter() {
  if (!threaded()) return;
  ++callers_;
  mutex_.lock();
  --callers_;
}

void Context::leave() {
  if (!threaded()) return;
  announce();
  // What this call began may be due before the progress thread meant to get up.
  if (sleeping_until_ != kAwake && endpoint_->next_wake() < sleeping_until_) endpoint_->wake();
  mutex_.unlock();
}

void Context::announce() {
  if (!has_news() && !woken_.load()) return;
  news_.notify_all();
  if (armed_) {
    armed_ = false;
    make_readable(notify_fd_);
  }
}

size_t Context::step() {
  const size_t work = endpoint_->step();
  drain_events();
  if (!threaded()) endpoint_->take_wake();
  return work;
}

void Context::pause(Time until) {
  if (!threaded()) {
    endpoint_->block(until == kNever ? Duration{kNever.ns} : until - driver::now());
    return;
  }
  announce();
  if (sleeping_until_ != kAwake && endpoint_->next_wake() < sleeping_until_) endpoint_->wake();
  std::unique_lock lock(mutex_, std::adopt_lock);
  if (until == kNever) {
    news_.wait(lock);
  } else {
    // steady_clock is CLOCK_MONOTONIC, the clock of driver::now().
    news_.wait_until(lock,
                     std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until.ns)));
  }
  lock.release();
}

void Context::wake() {
  // Async-signal-safe: two atomics and a write.
  woken_.store(true);
  endpoint_->wake();
}

mr_status Context::arm() {
  fd_in_use_ = true;
  if (threaded()) {
    drain(notify_fd_);
    armed_ = true;
    announce();
    return MR_OK;
  }
  endpoint_->take_wake();
  const Time due = endpoint_->next_wake();
  itimerspec when{};
  if (has_news() || woken_.load() || due <= driver::now()) {
    when.it_value.tv_nsec = 1;
  } else if (due != kNever) {
    when.it_value.tv_sec = due.ns / 1'000'000'000;
    when.it_value.tv_nsec = due.ns % 1'000'000'000;
  }
  if (timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &when, nullptr) != 0) {
    return fail(MR_SYSTEM, driver::system_error(errno, "timerfd_settime").text);
  }
  return MR_OK;
}

void Context::note_polled() {
  if (!fd_in_use_) return;
  fd_in_use_ = false;
  woken_.store(false);
  endpoint_->look_soon();
}

void Context::give_way() {
  mutex_.unlock();
  // A mutex is not fair: without this a caller could wait for many rounds.
  do {
    sched_yield();
  } while (callers_.load() != 0);
  mutex_.lock();
}

void Context::run() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // the default of 50 us would come on top of every deadline
  mutex_.lock();
  while (!stop_) {
    endpoint_->take_wake();
    const size_t work = step();
    announce();
    const Time due = endpoint_->next_wake();
    const Time now = driver::now();
    if (work != 0 || due <= now || endpoint_->spinning()) {
      give_way();
      continue;
    }
    sleeping_until_ = due;
    mutex_.unlock();
    thread_loop_->block(now, due);
    mutex_.lock();
    sleeping_until_ = kAwake;
    endpoint_->look_soon();
  }
  mutex_.unlock();
}

}  // namespace metaroce::api::native

using metaroce::Time;
using metaroce::api::native::Context;
using metaroce::api::native::guarded;

extern "C" {

mr_status mr_context_wait(mr_context* context, int64_t timeout_ns) {
  return guarded(context, [&](Context& c) {
    const bool news =
        c.wait(metaroce::api::native::after(timeout_ns), true, [&] { return c.has_news(); });
    if (news) return MR_OK;
    return c.take_woken() ? MR_WOKEN : MR_TIMEOUT;
  });
}

mr_status mr_context_wake(mr_context* context) {
  if (context == nullptr) return MR_INVALID;
  if (!context->ours()) return MR_FORKED;
  context->wake();
  return MR_OK;
}

int mr_context_fd(mr_context* context) {
  return context == nullptr || !context->ours() ? -1 : context->fd();
}

mr_status mr_context_arm(mr_context* context) {
  return guarded(context, [](Context& c) { return c.arm(); });
}

}  // extern "C"
