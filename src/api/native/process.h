// Does a context still belong to this process?
#pragma once

namespace metaroce::api::native {

/// A mark that a fork wipes out. One per context: raw clone() is noticed as well, which
/// pthread_atfork handlers would miss, and a look costs a load instead of a system call.
class ProcessMark {
 public:
  ProcessMark();
  ~ProcessMark();
  ProcessMark(const ProcessMark&) = delete;
  ProcessMark& operator=(const ProcessMark&) = delete;

  /// False in a child of the process that made it.
  bool ours() const;

 private:
  void* page_ = nullptr;  ///< wiped in children; null where the kernel cannot do that
  int pid_ = 0;
};

}  // namespace metaroce::api::native
