// From what a person types to addresses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/expected.h"
#include "driver/common/error.h"

namespace metaroce::driver {

enum class Family : uint8_t { kAny, kIpv4, kIpv6 };

/// Accepts `host`, `host:port`, `address`, `address:port`, `[v6]`, `[v6]:port`, `v6`, and
/// `fe80::1%eth0` in every form; a name gives all its addresses in the resolver's order, without
/// repetition. `default_port` serves where no port is given. Blocks on the resolver for names.
Expected<std::vector<SocketAddress>, Error> resolve(std::string_view text, uint16_t default_port,
                                                    Family family = Family::kAny);

}  // namespace metaroce::driver
