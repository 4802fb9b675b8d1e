// Opening and closing.
#include "api/native/context.h"

#include <fmt/core.h>

#include <cerrno>

#include "api/native/setting_text.h"
#include "api/native/versioned.h"
#include "driver/common/fault_spec.h"
#include "driver/common/socket_address.h"
#include "secure/key_file.h"

namespace metaroce::api::native {
namespace {

constexpr uint32_t kKnownFlags =
    MR_CONTEXT_ACCEPT | MR_CONTEXT_PROGRESS_THREAD | MR_CONTEXT_NO_ENVIRONMENT;

/// Of the last mr_context_open of this thread that failed: there is no context to ask.
thread_local std::string open_error;

Expected<void, std::string> read_settings(const mr_context_options& options, Settings& settings) {
  if ((options.flags & MR_CONTEXT_NO_ENVIRONMENT) == 0) {
    if (auto done = apply_environment(settings); !done) return done;
  }
  if (options.settings == nullptr && options.setting_count != 0) {
    return unexpected(fmt::format("settings is NULL and setting_count is {}; it must be 0 then",
                                  options.setting_count));
  }
  for (size_t i = 0; i < options.setting_count; ++i) {
    const std::string where = fmt::format("settings[{}]", i);
    if (options.settings[i] == nullptr) return unexpected(where + " is NULL; write \"NAME=VALUE\"");
    if (auto done = apply_setting(settings, options.settings[i], where); !done) return done;
  }
  return {};
}

Expected<void, std::string> read_addresses(const mr_context_options& options,
                                           std::vector<SocketAddress>& out) {
  if (options.address_count > kMaxPlanes) {
    return unexpected(
        fmt::format("address_count is {}; it must be 0 to {}", options.address_count, kMaxPlanes));
  }
  if (options.addresses == nullptr && options.address_count != 0) {
    return unexpected(fmt::format("addresses is NULL and address_count is {}; it must be 0 then",
                                  options.address_count));
  }
  for (size_t i = 0; i < options.address_count; ++i) {
    const char* text = options.addresses[i];
    const SocketAddress address =
        text == nullptr ? SocketAddress{} : driver::parse_address(text, options.port);
    if (address.family == 0) {
      return unexpected(
          fmt::format("addresses[{}] is \"{}\"; it must be a numeric IPv4 or IPv6 "
                      "address without port, such as 10.0.0.1 or fe80::1%eth0",
                      i, text == nullptr ? "(NULL)" : text));
    }
    out.push_back(address);
  }
  return {};
}

Expected<void, std::string> read_suites(const char* text, secure::Config& security) {
  security.suites.clear();
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    const secure::Suite suite = secure::suite_of(name);
    if (suite == secure::Suite::kNone) {
      return unexpected(fmt::format("suites: \"{}\" is none of AES-128-GCM, AES-256-GCM, "
                                    "ChaCha20-Poly1305",
                                    name));
    }
    security.suites.push_back(suite);
  }
  if (security.suites.empty()) return unexpected("suites is empty; NULL means all");
  return {};
}

bool given(const char* text) { return text != nullptr && *text != '\0'; }

Expected<void, std::string> read_security(const mr_context_options& options,
                                          EndpointOptions& wanted) {
  secure::Config& security = wanted.security;
  if (options.security > MR_SECURITY_REQUIRED) {
    return unexpected(fmt::format("security is {}; it must be 0 to 2", options.security));
  }
  if (options.peer_keys == nullptr && options.peer_key_count != 0) {
    return unexpected(fmt::format("peer_keys is NULL and peer_key_count is {}; it must be 0 then",
                                  options.peer_key_count));
  }
  Expected<void, std::string> read;
  if (options.psk_file != nullptr) read = secure::read_psk_file(options.psk_file, security);
  if (read && options.key_file != nullptr) {
    read = secure::read_own_key_file(options.key_file, security);
  }
  for (uint32_t i = 0; read && i < options.peer_key_count; ++i) {
    read = options.peer_keys[i] == nullptr
               ? unexpected(fmt::format("peer_keys[{}] is NULL", i))
               : secure::read_peer_key(options.peer_keys[i], security);
  }
  if (read && options.suites != nullptr) read = read_suites(options.suites, security);
  if (!read) return read;
  const bool files =
      options.psk_file != nullptr || options.key_file != nullptr || options.peer_key_count != 0;
  const char* const field = options.security != MR_SECURITY_DEFAULT ? "security"
                            : given(options.identity)               ? "identity"
                            : given(options.peer_key_name)          ? "peer_key_name"
                            : options.suites != nullptr             ? "suites"
                                                                    : nullptr;
  if (!files && field == nullptr) return {};
  if (!security.has_keys()) {  // MR-SEC-021
    return unexpected(fmt::format("{} needs keys: psk_file, or key_file and peer_keys together",
                                  files ? "security" : field));
  }
  security.policy = options.security == MR_SECURITY_OFFERED ? secure::Policy::kOffered
                                                            : secure::Policy::kRequired;
  if (options.identity != nullptr) wanted.identity = options.identity;
  if (options.peer_key_name != nullptr) wanted.peer_key = options.peer_key_name;
  return {};
}

}  // namespace

mr_status Context::open(const mr_context_options& options, std::string& error) {
  if ((options.flags & ~kKnownFlags) != 0) {
    error = fmt::format("flags is {:#x}; this version knows {:#x}", options.flags, kKnownFlags);
    return MR_INVALID;
  }
  EndpointOptions wanted;
  Expected<void, std::string> read = read_settings(options, wanted.settings);
  if (read) read = read_addresses(options, wanted.local);
  if (read && options.faults != nullptr) {
    auto faults = driver::parse_faults(options.faults);
    if (faults) {
      wanted.faults = *faults;
    } else {
      read = unexpected("faults: " + faults.error().text);
    }
  }
  if (read) read = read_security(options, wanted);
  if (!read) {
    error = read.error();
    return MR_INVALID;
  }
  wanted.port = options.port;
  accepts_ = (options.flags & MR_CONTEXT_ACCEPT) != 0;
  wanted.accept = accepts_;
  wanted.seed = options.seed;
  if (options.receive_buffer != 0) wanted.receive_buffer = options.receive_buffer;
  if (options.send_buffer != 0) wanted.send_buffer = options.send_buffer;
  if (options.spin_ns != 0) wanted.spin = nanoseconds(std::max<int64_t>(options.spin_ns, 0));
  auto endpoint = Endpoint::open(wanted);
  if (!endpoint) {
    error = endpoint.error().text;
    const int code = endpoint.error().code;
    return code == 0 || code == EINVAL ? MR_INVALID : MR_SYSTEM;
  }
  endpoint_ = std::move(*endpoint);
  settings_ = wanted.settings;
  regions_.resize(settings_.max_regions);
  // A record lives until its completion was polled: beyond what the engine may hold there is one
  // batch that the endpoint fetched already.
  posted_ = std::make_unique<Slab<PostedRecord>>(settings_.max_sends + settings_.max_receives +
                                                 16 * settings_.max_segment_lists + 4096 + 256);
  return open_waiting((options.flags & MR_CONTEXT_PROGRESS_THREAD) != 0, error);
}

Time after(int64_t timeout_ns) {
  if (timeout_ns < 0) return kNever;
  const Time now = driver::now();
  return timeout_ns >= kNever.ns - now.ns ? kNever : now + nanoseconds(timeout_ns);
}

mr_status give_text(const std::string& text, char* out, size_t size) {
  if (out == nullptr || size == 0) return MR_INVALID;
  const size_t n = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
  return MR_OK;
}

}  // namespace metaroce::api::native

namespace native = metaroce::api::native;
using native::Context;
using native::guarded;

extern "C" {

mr_status mr_context_open(const mr_context_options* options, mr_context** context) {
  if (context == nullptr) return MR_INVALID;
  *context = nullptr;
  try {
    mr_context_options ours{};
    ours.size = sizeof ours;
    if (options != nullptr &&
        !native::take_struct(options, options->size, sizeof options->size, ours)) {
      native::open_error = fmt::format(
          "options.size is {}; it must be sizeof(mr_context_options), {} in this "
          "version, and fields that this version does not know must be 0",
          options->size, sizeof ours);
      return MR_INVALID;
    }
    auto made = std::make_unique<mr_context>();
    const mr_status status = made->open(ours, native::open_error);
    if (status == MR_OK) *context = made.release();
    return status;
  } catch (const std::bad_alloc&) {
    native::open_error.clear();
    return MR_NO_MEMORY;
  } catch (...) {
    return MR_SYSTEM;
  }
}

mr_status mr_context_close(mr_context* context) {
  if (context == nullptr) return MR_OK;
  // In a child everything stays: epoll entries and sockets are shared with the parent.
  if (!context->ours()) return MR_FORKED;
  delete context;
  return MR_OK;
}

uint16_t mr_context_port(mr_context* context) {
  uint16_t port = 0;
  guarded(context, [&](Context& c) {
    port = c.endpoint().port();
    return MR_OK;
  });
  return port;
}

mr_status mr_context_address(mr_context* context, uint32_t plane, char* text, size_t size) {
  return guarded(context, [&](Context& c) {
    const auto& local = c.endpoint().local();
    if (plane >= local.size()) {
      return c.fail(MR_INVALID,
                    fmt::format("plane is {}; it must be 0 to {}", plane, local.size() - 1));
    }
    return native::give_text(metaroce::driver::to_string(local[plane]), text, size);
  });
}

mr_status mr_context_warning(mr_context* context, char* text, size_t size) {
  return guarded(context, [&](Context& c) {
    return native::give_text(c.endpoint().buffer_warning(), text, size);
  });
}

mr_status mr_last_error(mr_context* context, char* text, size_t size) {
  if (context == nullptr) return native::give_text(native::open_error, text, size);
  return guarded(context, [&](Context& c) { return native::give_text(c.error(), text, size); });
}

}  // extern "C"
