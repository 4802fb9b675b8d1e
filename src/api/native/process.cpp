#include "api/native/process.h"

#include <sys/mman.h>
#include <unistd.h>

namespace metaroce::api::native {
namespace {

constexpr int kMark = 0x6d72;

}  // namespace

ProcessMark::ProcessMark() : pid_(getpid()) {
  const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, size, MADV_WIPEONFORK) != 0) {
    munmap(page, size);
    return;
  }
  *static_cast<int*>(page) = kMark;
  page_ = page;
}

ProcessMark::~ProcessMark() {
  if (page_ != nullptr) munmap(page_, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

bool ProcessMark::ours() const {
  if (page_ == nullptr) return getpid() == pid_;
  return *static_cast<volatile const int*>(page_) == kMark;
}

}  // namespace metaroce::api::native
