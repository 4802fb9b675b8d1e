// Expected<T, E>: a value or the reason why there is none.
#pragma once

#include <tl/expected.hpp>

namespace metaroce {

template <class T, class E>
using Expected = tl::expected<T, E>;

template <class E>
constexpr auto unexpected(E&& e) {
  return tl::make_unexpected(std::forward<E>(e));
}

}  // namespace metaroce
