// Why set-up failed, in words a person can act on.
#pragma once

#include <string>

namespace metaroce::driver {

/// `text` is one line: what failed, with which value, why, and what to do about it.
struct Error {
  int code = 0;  ///< errno, or 0 when no system call failed
  std::string text;
};

/// "bind 10.0.0.1:28672: Address already in use (EADDRINUSE); <remedy>".
Error system_error(int code, const std::string& what, const std::string& remedy = {});

}  // namespace metaroce::driver
