// Two contexts of one process, joined over loopback, for tests of the C interface.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "metaroce/metaroce.h"

namespace metaroce::api::native {

inline constexpr int64_t kBound = 30'000'000'000;  ///< ns; whoever waits so long hangs

inline std::string last_error(mr_context* context) {
  char text[512] = "";
  mr_last_error(context, text, sizeof text);
  return text;
}

inline mr_context_options options(uint32_t flags) {
  static const char* const addresses[] = {"127.0.0.1"};
  // No keep-alive within the bound: it would rescue a lost wake-up.
  static const char* const settings[] = {"keep_alive=3600000000000"};
  mr_context_options o{};
  o.size = sizeof o;
  o.flags = flags | MR_CONTEXT_NO_ENVIRONMENT;
  o.addresses = addresses;
  o.address_count = 1;
  o.settings = settings;
  o.setting_count = 1;
  return o;
}

inline mr_context* open_context(uint32_t flags) {
  const mr_context_options o = options(flags);
  mr_context* context = nullptr;
  EXPECT_EQ(mr_context_open(&o, &context), MR_OK) << last_error(nullptr);
  return context;
}

inline mr_status connect_to(mr_context* from, uint16_t port, int64_t timeout, bool wait,
                            mr_connection* out) {
  const std::string text = "127.0.0.1:" + std::to_string(port);
  const char* const peers[] = {text.c_str()};
  mr_connect_options o{};
  o.size = sizeof o;
  o.peers = peers;
  o.peer_count = 1;
  return wait ? mr_connect(from, &o, timeout, out) : mr_connect_start(from, &o, out);
}

/// `server` accepted what `client` connected; stream 0 is open at both ends.
class Two {
 public:
  explicit Two(uint32_t flags = 0) {
    server = open_context(flags | MR_CONTEXT_ACCEPT);
    client = open_context(flags);
    join();
  }
  ~Two() {
    mr_context_close(client);
    mr_context_close(server);
  }

  void join() {
    ASSERT_EQ(connect_to(client, mr_context_port(server), 0, false, &to_server), MR_OK);
    bool connected = false;
    bool accepted = false;
    while (!connected || !accepted) {
      turn();
      for (const mr_event& e : events(client)) {
        connected |= e.kind == MR_EVENT_CONNECTED;
        early.emplace_back(client, e);
      }
      for (const mr_event& e : events(server)) {
        early.emplace_back(server, e);
        if (e.kind != MR_EVENT_ACCEPTED) continue;
        accepted = true;
        to_client = e.connection;
      }
    }
    ASSERT_EQ(mr_stream_open(client, to_server, 0, nullptr), MR_OK);
    ASSERT_EQ(mr_stream_open(server, to_client, 0, nullptr), MR_OK);
  }

  /// A little progress at both ends; completions stay where they are.
  void turn() {
    mr_poll(client, nullptr, 0, sizeof(mr_completion), nullptr);
    mr_poll(server, nullptr, 0, sizeof(mr_completion), nullptr);
  }

  static std::vector<mr_event> events(mr_context* context) {
    std::vector<mr_event> all;
    mr_event e{};
    e.size = sizeof e;
    while (mr_next_event(context, &e) == MR_OK) all.push_back(e);
    return all;
  }

  /// Drives both until `context` gave `count` completions.
  std::vector<mr_completion> completions(mr_context* context, size_t count) {
    std::vector<mr_completion> all;
    while (all.size() < count) {
      turn();
      mr_completion batch[16];
      size_t got = 0;
      EXPECT_EQ(mr_poll(context, batch, std::min<size_t>(16, count - all.size()),
                        sizeof(mr_completion), &got),
                MR_OK);
      all.insert(all.end(), batch, batch + got);
    }
    return all;
  }

  /// Drives both until `context` has the event, or had it before both were joined.
  mr_event event(mr_context* context, mr_event_kind kind) {
    for (const auto& [whose, e] : early) {
      if (whose == context && e.kind == static_cast<uint32_t>(kind)) return e;
    }
    for (;;) {
      turn();
      for (const mr_event& e : events(context)) {
        if (e.kind == static_cast<uint32_t>(kind)) return e;
      }
    }
  }

  mr_work write_to(const mr_region_info& target, const void* from, size_t length) const {
    mr_work w{};
    w.id = 7;
    w.connection = to_server;
    w.operation = MR_WRITE;
    w.memory = from;
    w.length = length;
    w.remote_address = target.address;
    w.remote_key = target.key;
    return w;
  }

  mr_context* server = nullptr;
  mr_context* client = nullptr;
  /// What came before both were joined.
  std::vector<std::pair<mr_context*, mr_event>> early;
  mr_connection to_server = 0;
  mr_connection to_client = 0;
};

inline mr_region_info add_region(mr_context* context, void* memory, size_t length,
                                 uint32_t rights = MR_REMOTE_WRITE) {
  mr_region_info info{};
  info.size = sizeof info;
  EXPECT_EQ(mr_region_register(context, memory, length, rights, &info), MR_OK)
      << last_error(context);
  return info;
}

inline mr_status post(mr_context* context, const mr_work& work) {
  size_t taken = 0;
  const mr_status status = mr_post(context, &work, 1, sizeof work, &taken);
  EXPECT_EQ(taken, status == MR_OK ? 1u : 0u);
  return status;
}

inline mr_status post(mr_context* context, const mr_receive& receive) {
  return mr_post_receive(context, &receive, 1, sizeof receive, nullptr);
}

}  // namespace metaroce::api::native
