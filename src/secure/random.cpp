#include "secure/random.h"

#include <openssl/rand.h>

#include <cstring>

#include "base/assert.h"
#include "secure/secret.h"

namespace metaroce::secure {
namespace {

void draw(std::span<std::byte> out) {
  const int done =
      RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size()));
  MR_ASSERT(done == 1);
}

}  // namespace

SystemRandom::~SystemRandom() { wipe(buffer_); }

void SystemRandom::fill(std::span<std::byte> out) {
  if (out.size() > buffer_.size()) return draw(out);
  if (used_ + out.size() > buffer_.size()) {
    draw(buffer_);
    used_ = 0;
  }
  std::memcpy(out.data(), buffer_.data() + used_, out.size());
  wipe(std::span(buffer_).subspan(used_, out.size()));
  used_ += out.size();
}

}  // namespace metaroce::secure
