// Structs of the C interface that grow: what an older or newer header than ours hands over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace metaroce::api::native {

/// Copies a struct of the caller's size into ours. False when it is smaller than `least`, or when
/// a field that we do not know is set.
template <class T>
bool take_struct(const void* from, size_t size, size_t least, T& out) {
  if (size < least) return false;
  std::memset(static_cast<void*>(&out), 0, sizeof out);
  std::memcpy(static_cast<void*>(&out), from, std::min(size, sizeof out));
  const auto* bytes = static_cast<const std::byte*>(from);
  for (size_t i = sizeof out; i < size; ++i) {
    if (bytes[i] != std::byte{0}) return false;
  }
  return true;
}

/// Copies our struct into one of the caller's size; what only the caller knows becomes 0.
template <class T>
void give_struct(const T& from, void* out, size_t size) {
  std::memcpy(out, static_cast<const void*>(&from), std::min(size, sizeof from));
  if (size > sizeof from)
    std::memset(static_cast<std::byte*>(out) + sizeof from, 0, size - sizeof from);
}

/// The same for structs that begin with their size, which stays.
template <class T>
void give_sized(T from, T* out) {
  from.size = out->size;
  give_struct(from, out, out->size);
}

}  // namespace metaroce::api::native
