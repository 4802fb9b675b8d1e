// Sizes of structs from other versions, wrong arguments, tables of words.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>

#include "api/native/status_map.h"
#include "api/native/test_support.h"
#include "base/settings.h"

namespace metaroce::api::native {
namespace {

// ---- sizes ----

template <class T>
struct Newer {
  T known;
  uint64_t later = 0;
};

TEST(NativeSizes, SmallerAndLargerOptionsAreTaken) {
  mr_context* context = nullptr;
  mr_context_options o = options(0);
  o.size = offsetof(mr_context_options, settings);  // an older header ended here
  o.setting_count = 1;                              // not looked at
  EXPECT_EQ(mr_context_open(&o, &context), MR_OK) << last_error(nullptr);
  mr_context_close(context);
  Newer<mr_context_options> newer{options(0), 0};
  newer.known.size = sizeof newer;
  EXPECT_EQ(mr_context_open(&newer.known, &context), MR_OK) << last_error(nullptr);
  mr_context_close(context);
  newer.later = 1;  // asks for something that this version does not know
  EXPECT_EQ(mr_context_open(&newer.known, &context), MR_INVALID);
  EXPECT_EQ(context, nullptr);
  EXPECT_NE(last_error(nullptr).find("options.size"), std::string::npos);
  newer.known.size = 0;
  EXPECT_EQ(mr_context_open(&newer.known, &context), MR_INVALID);
}

TEST(NativeSizes, OutputStructsAreWrittenAsFarAsTheCallerKnowsThem) {
  Two two;
  char memory[16];
  Newer<mr_region_info> newer{};
  newer.known.size = sizeof newer;
  newer.later = 77;
  ASSERT_EQ(mr_region_register(two.client, memory, 16, 0, &newer.known), MR_OK);
  EXPECT_EQ(newer.later, 0u);  // unknown here, so 0
  EXPECT_EQ(newer.known.size, sizeof newer);
  EXPECT_EQ(newer.known.length, 16u);
  mr_region_info older{};
  older.size = offsetof(mr_region_info, rights);
  older.rights = 77;
  older.length = 77;
  ASSERT_EQ(mr_region_register(two.client, memory, 16, 0, &older), MR_OK);
  EXPECT_EQ(older.rights, 77u);
  EXPECT_EQ(older.length, 77u);
  EXPECT_NE(older.key, 0u);
  mr_connection_info info{};
  info.size = offsetof(mr_connection_info, window);
  info.window = 1234567;
  ASSERT_EQ(mr_connection_get(two.client, two.to_server, &info), MR_OK);
  EXPECT_EQ(info.window, 1234567u);
  EXPECT_EQ(info.planes, 1u);
}

TEST(NativeSizes, ArraysStepByTheCallersElement) {
  Two two;
  // Receives of an older header, which ended before `region`; sends of a newer one.
  constexpr size_t kOld = offsetof(mr_receive, region);
  std::vector<std::byte> older(3 * kOld);
  char inbox[3] = {};
  std::vector<Newer<mr_work>> newer(3);
  for (size_t i = 0; i < 3; ++i) {
    mr_receive r{};
    r.id = i;
    r.connection = two.to_client;
    r.memory = &inbox[i];
    r.length = 1;
    std::memcpy(older.data() + i * kOld, &r, kOld);
    mr_work& w = newer[i].known;
    w.connection = two.to_server;
    w.operation = MR_SEND;
    w.memory = &"abc"[i];
    w.length = 1;
  }
  size_t taken = 0;
  ASSERT_EQ(mr_post_receive(two.server, reinterpret_cast<const mr_receive*>(older.data()), 3, kOld,
                            &taken),
            MR_OK)
      << last_error(two.server);
  EXPECT_EQ(taken, 3u);
  ASSERT_EQ(mr_post(two.client, &newer[0].known, 3, sizeof newer[0], &taken), MR_OK);
  EXPECT_EQ(taken, 3u);
  // Completions of an older header that knew nothing of `immediate`.
  constexpr size_t kShort = offsetof(mr_completion, immediate);
  std::vector<std::byte> done(3 * kShort + 8, std::byte{0x55});
  size_t got = 0;
  for (size_t n = 0; got < 3; got += n) {
    two.turn();
    ASSERT_EQ(mr_poll(two.server, reinterpret_cast<mr_completion*>(done.data() + got * kShort),
                      3 - got, kShort, &n),
              MR_OK);
  }
  EXPECT_EQ(std::string(inbox, 3), "abc");
  for (size_t i = 0; i < 3; ++i) {
    uint64_t id = 0;
    std::memcpy(&id, done.data() + i * kShort, sizeof id);
    EXPECT_EQ(id, i);
  }
  EXPECT_EQ(done.back(), std::byte{0x55});  // nothing was written behind
  newer[1].later = 1;
  EXPECT_EQ(mr_post(two.client, &newer[0].known, 3, sizeof newer[0], &taken), MR_INVALID);
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(mr_post(two.client, &newer[0].known, 1, 4, &taken), MR_INVALID);
  EXPECT_EQ(mr_poll(two.client, nullptr, 0, 4, &got), MR_INVALID);
}

// ---- words ----

// O04
TEST(NativeStatus, EveryStatusHasANameAMeaningAndSomethingToCheck) {
  size_t count = 0;
  const StatusRow* rows = status_rows(count);
  std::set<int> values;
  std::set<std::string> names;
  std::set<std::string> texts;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(values.insert(rows[i].value).second);
    EXPECT_TRUE(names.insert(rows[i].name).second);
    EXPECT_TRUE(texts.insert(rows[i].text).second);
    EXPECT_EQ(std::string(mr_status_name(rows[i].value)).substr(0, 3), "MR_");
    EXPECT_STREQ(mr_status_text(rows[i].value), rows[i].text);
    EXPECT_STREQ(mr_status_check(rows[i].value), rows[i].check);
    EXPECT_GT(std::strlen(rows[i].check), 10u);
  }
  for (int s = 0; s < static_cast<int>(Status::kCount); ++s) {
    const mr_status c = to_c(static_cast<Status>(s));
    EXPECT_EQ(values.count(c), 1u) << to_string(static_cast<Status>(s)) << " has no words";
    EXPECT_EQ(c == MR_OK, s == 0);
  }
  EXPECT_STREQ(mr_status_name(9999), "(no status)");
  EXPECT_STRNE(mr_status_text(-1), "");
}

TEST(NativeStatus, EveryStatusOfTheEngineKeepsItsOwnValue) {
  std::set<int> seen;
  for (int s = 0; s < static_cast<int>(Status::kCount); ++s) {
    EXPECT_TRUE(seen.insert(to_c(static_cast<Status>(s))).second);
  }
}

TEST(NativeStatus, ValuesAreFixed) {
  // Programs were compiled with these numbers.
  EXPECT_EQ(MR_FULL, 1);
  EXPECT_EQ(MR_INVALID, 2);
  EXPECT_EQ(MR_UNREACHABLE, 5);
  EXPECT_EQ(MR_UNRESPONSIVE, 6);
  EXPECT_EQ(MR_ACCESS, 10);
  EXPECT_EQ(MR_CLOSED, 15);
  EXPECT_EQ(MR_TIMEOUT, 64);
  EXPECT_EQ(MR_SYSTEM, 70);
}

TEST(NativeStatus, SettingsAreListed) {
  int count = 0;
  const SettingInfo* table = setting_table(count);
  mr_setting_info info{};
  info.size = sizeof info;
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(mr_setting_get(static_cast<size_t>(i), &info), MR_OK);
    EXPECT_EQ(info.name, table[i].name);
    EXPECT_EQ(info.value, table[i].value);
  }
  EXPECT_EQ(mr_setting_get(static_cast<size_t>(count), &info), MR_EMPTY);
}

// ---- wrong arguments ----

struct Wrong {
  const char* what;  ///< must stand in the text, with value and range
  std::function<void(mr_context_options&)> change;
};

// S24
TEST(NativeArguments, EachWrongOptionIsNamedWithItsValueAndRange) {
  static const char* const no_number[] = {"max_sends=many"};
  static const char* const out_of_range[] = {"paths_per_plane=65"};
  static const char* const unknown[] = {"colour=3"};
  static const char* const no_value[] = {"max_sends"};
  static const char* const name[] = {"localhost"};
  static const char* const elsewhere[] = {"192.0.2.1"};
  const auto setting = [](const char* const* list) {
    return [list](mr_context_options& o) {
      o.settings = list;
      o.setting_count = 1;
    };
  };
  const auto address = [](const char* const* list) {
    return [list](mr_context_options& o) { o.addresses = list; };
  };
  const std::vector<Wrong> table = {
      {"flags is 0x80000", [](mr_context_options& o) { o.flags = 0x80000; }},
      {"max_sends is \"many\"; it must be a whole number from 16 to 1048576", setting(no_number)},
      {"paths_per_plane is \"65\"; it must be a whole number from 1 to 64", setting(out_of_range)},
      {"no setting \"colour\"", setting(unknown)},
      {"\"max_sends\" is not NAME=VALUE", setting(no_value)},
      {"settings is NULL and setting_count is 1",
       [](mr_context_options& o) { o.settings = nullptr; }},
      {"address_count is 17; it must be 0 to 16",
       [](mr_context_options& o) { o.address_count = 17; }},
      {"addresses is NULL", [](mr_context_options& o) { o.addresses = nullptr; }},
      {"addresses[0] is \"localhost\"", address(name)},
      {"192.0.2.1", address(elsewhere)},
      {"faults", [](mr_context_options& o) { o.faults = "explode=1%"; }},
  };
  for (const Wrong& row : table) {
    mr_context_options o = options(0);
    row.change(o);
    mr_context* context = nullptr;
    EXPECT_NE(mr_context_open(&o, &context), MR_OK) << row.what;
    EXPECT_NE(last_error(nullptr).find(row.what), std::string::npos)
        << "wanted: " << row.what << "\ngot: " << last_error(nullptr);
  }
}

TEST(NativeArguments, EachWrongArgumentOfACallIsNamed) {
  Two two;
  mr_context* c = two.client;
  char memory[16];
  mr_region_info info{};
  info.size = sizeof info;
  mr_work w{};
  w.connection = two.to_server;
  mr_connection made = 0;
  mr_connect_options o{};
  o.size = sizeof o;
  const char* const bad_port[] = {"127.0.0.1:99999"};
  mr_event event{};
  uint64_t values[4];
  size_t got = 0;
  const auto with = [&](auto change) {
    mr_work copy = w;
    change(copy);
    return post(c, copy);
  };
  const std::vector<std::pair<mr_status, const char*>> results = [&] {
    std::vector<std::pair<mr_status, const char*>> r;
    std::vector<std::string> texts;
    const auto note = [&](mr_status status, const char* text) {
      r.emplace_back(status, text);
      EXPECT_NE(last_error(c).find(text), std::string::npos)
          << "wanted: " << text << "\ngot: " << last_error(c);
    };
    note(mr_region_register(c, nullptr, 1, 0, &info), "memory is 0x0, length is 1");
    note(mr_region_register(c, memory, 0, 0, &info), "length is 0");
    note(mr_region_register(c, memory, 1, 0x100, &info), "rights is 0x100");
    note(mr_region_register(c, memory, 1, 0, nullptr), "info is NULL");
    note(with([](mr_work& x) { x.operation = 4; }), "work[0].operation is 4");
    note(with([](mr_work& x) { x.flags = 0x20; }), "work[0].flags is 0x20");
    note(with([](mr_work& x) { x.length = 1; }), "memory is NULL and length is 1");
    note(with([&](mr_work& x) {
           x.memory = memory;
           x.length = 0x80000001u;
         }),
         "length is 2147483649; it must be 0 to 2147483648");
    note(with([](mr_work& x) { x.stream = 9; }), "stream 9");
    note(with([](mr_work& x) { x.region = 5; }), "no region 0x5");
    note(with([](mr_work& x) { x.connection = 1; }), "no connection 0x1");
    note(mr_connect_start(c, &o, &made), "peer_count is 0");
    o.peers = bad_port;
    o.peer_count = 1;
    note(mr_connect_start(c, &o, &made), "\"99999\" is not a number in 1..65535");
    note(mr_connect_start(c, nullptr, &made), "options must be given");
    note(mr_accept(c, 0, &made), "MR_CONTEXT_ACCEPT");
    note(mr_next_event(c, &event), "sizeof(mr_event)");
    note(mr_counters_get(c, 9, 0, 0, values, 4, &got), "group is 9; it must be 0 to 3");
    note(mr_counters_get(c, MR_COUNTERS_PATH, two.to_server, 999, values, 4, &got), "path is 999");
    note(mr_context_address(c, 3, memory, sizeof memory), "plane is 3; it must be 0 to 0");
    return r;
  }();
  for (const auto& [status, text] : results) {
    EXPECT_TRUE(status == MR_INVALID || status == MR_UNKNOWN_HANDLE) << text;
  }
}

TEST(NativeArguments, EachWrongArgumentOfAnOperationIsNamed) {
  Two two;
  mr_context* c = two.client;
  char memory[16];
  mr_region_info info{};
  info.size = sizeof info;
  mr_work w{};
  w.connection = two.to_server;
  const auto with = [&](auto change) {
    mr_work copy = w;
    change(copy);
    return post(c, copy);
  };
  const auto note = [&](mr_status status, const char* text) {
    EXPECT_TRUE(status == MR_INVALID || status == MR_UNKNOWN_HANDLE) << text;
    EXPECT_NE(last_error(c).find(text), std::string::npos)
        << "wanted: " << text << "\ngot: " << last_error(c);
  };
  note(with([](mr_work& x) { x.operation = 9; }), "work[0].operation is 9");
  note(with([](mr_work& x) {
         x.operation = MR_FETCH_ADD;
         x.remote_address = 12;
       }),
       "0xc, must be a multiple of 8");
  mr_segment segment{memory, 1, 0};
  note(with([&](mr_work& x) {
         x.segments = &segment;
         x.segment_count = 17;
       }),
       "segment_count is 17; at most 16");
  note(with([&](mr_work& x) {
         x.flags = MR_WORK_COPIED;
         x.memory = memory;
         x.length = 257;
       }),
       "length is 257; it must be 0 to 256");
  note(with([&](mr_work& x) { x.segment_count = 3; }), "segments is NULL and segment_count is 3");
  note(with([&](mr_work& x) {
         x.operation = MR_READ;
         x.flags = MR_WORK_COPIED;
         x.memory = memory;
       }),
       "MR_WORK_COPIED is for what is sent");
  mr_receive nowhere{};
  nowhere.queue = 99;
  note(post(c, nowhere), "no such shared queue");
  note(mr_window_open(c, 5, 0, 1, 0, 0, &info), "no region 0x5");
  note(mr_stream_set(c, two.to_server, 0, nullptr), "options is NULL");
  note(mr_stream_reset(c, two.to_server, 9), "stream 9 is not open");
  note(mr_queue_arm(c, 7, 1), "no queue 7");
  note(mr_queue_destroy(c, 7), "no queue 7");
  note(mr_queue_create(c, nullptr), "queue is NULL");
}

TEST(NativeArguments, NullContextsAreRefused) {
  EXPECT_EQ(mr_context_open(nullptr, nullptr), MR_INVALID);
  EXPECT_EQ(mr_context_close(nullptr), MR_OK);
  EXPECT_EQ(mr_context_wait(nullptr, 0), MR_INVALID);
  EXPECT_EQ(mr_context_wake(nullptr), MR_INVALID);
  EXPECT_EQ(mr_context_fd(nullptr), -1);
  EXPECT_EQ(mr_poll(nullptr, nullptr, 0, sizeof(mr_completion), nullptr), MR_INVALID);
  EXPECT_EQ(mr_last_error(nullptr, nullptr, 0), MR_INVALID);
}

TEST(NativeArguments, TheEnvironmentIsReadUnlessForbidden) {
  ASSERT_EQ(setenv("METAROCE_MAX_REGIONS", "none", 1), 0);
  mr_context* context = nullptr;
  mr_context_options o = options(0);
  EXPECT_EQ(mr_context_open(&o, &context), MR_OK);
  mr_context_close(context);
  o.flags = 0;
  EXPECT_EQ(mr_context_open(&o, &context), MR_INVALID);
  EXPECT_NE(last_error(nullptr).find("environment METAROCE_MAX_REGIONS"), std::string::npos);
  unsetenv("METAROCE_MAX_REGIONS");
}

TEST(NativeArguments, TextsAreCutToFit) {
  mr_context* context = open_context(0);
  char text[10];
  ASSERT_EQ(mr_context_address(context, 0, text, sizeof text), MR_OK);
  EXPECT_STREQ(text, "127.0.0.1");
  ASSERT_EQ(mr_context_address(context, 0, text, 4), MR_OK);
  EXPECT_STREQ(text, "127");
  mr_context_close(context);
}

TEST(NativeArguments, TwoContextsOnOnePortAreRefusedByName) {
  mr_context* first = open_context(0);
  mr_context_options o = options(0);
  o.port = mr_context_port(first);
  mr_context* second = nullptr;
  EXPECT_EQ(mr_context_open(&o, &second), MR_SYSTEM);
  EXPECT_NE(last_error(nullptr).find(std::to_string(o.port)), std::string::npos)
      << last_error(nullptr);
  mr_context_close(first);
}

}  // namespace
}  // namespace metaroce::api::native
