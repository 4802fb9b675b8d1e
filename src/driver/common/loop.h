// Waiting: spin while there was work a moment ago, then block.
#pragma once

#include <cstdint>
#include <span>

#include "base/time.h"

namespace metaroce::driver {

/// Blocks in epoll on any number of descriptors. Owns the epoll descriptor only.
class Loop {
 public:
  /// `spin`: how long after the last work the loop keeps looking without blocking; 0 never spins.
  explicit Loop(Duration spin);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  bool valid() const { return epoll_ >= 0; }
  int fd() const { return epoll_; }
  /// `readable`/`writable`: what wakes; with neither, only errors of the descriptor do.
  bool add(int fd, bool readable, bool writable);
  bool change(int fd, bool readable, bool writable);
  void remove(int fd);

  void note_work(Time now) { last_work_ = now; }
  /// True while blocking is not yet worth it.
  bool spinning(Time now) const { return spin_.ns > 0 && now - last_work_ < spin_; }
  /// Blocks until a descriptor is ready or `until`; returns at once if that is past. True if a
  /// descriptor was ready.
  bool block(Time now, Time until);
  /// The descriptors that are ready right now, at most 32; returns their number.
  int ready(std::span<int> fds);

 private:
  int epoll_ = -1;
  Duration spin_;
  Time last_work_{};
};

}  // namespace metaroce::driver
