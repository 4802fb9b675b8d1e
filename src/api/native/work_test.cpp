// Moving data, events, endings.
#include <algorithm>
#include <cstring>
#include <set>

#include "api/native/test_support.h"

namespace metaroce::api::native {
namespace {

std::vector<char> noise(size_t n) {
  std::vector<char> v(n);
  uint32_t x = 1;
  for (char& c : v) c = static_cast<char>((x = x * 1664525 + 1013904223) >> 24);
  return v;
}

TEST(NativeWork, AWriteLandsInTheRegionAndCompletes) {
  Two two;
  const auto from = noise(1 << 20);
  std::vector<char> to(from.size());
  const auto region = add_region(two.server, to.data(), to.size());
  ASSERT_EQ(post(two.client, two.write_to(region, from.data(), from.size())), MR_OK);
  const auto done = two.completions(two.client, 1);
  EXPECT_EQ(done[0].id, 7u);
  EXPECT_EQ(done[0].status, static_cast<uint32_t>(MR_OK));
  EXPECT_EQ(done[0].operation, MR_WRITE);
  EXPECT_EQ(done[0].bytes, from.size());
  EXPECT_EQ(done[0].connection, two.to_server);
  EXPECT_EQ(to, from);
}

TEST(NativeWork, SendsAndImmediatesMeetReceivesInOrder) {
  Two two;
  char inbox[3][64] = {};
  for (uint64_t i = 0; i < 3; ++i) {
    mr_receive r{};
    r.id = 100 + i;
    r.connection = two.to_client;
    r.memory = inbox[i];
    r.length = sizeof inbox[i];
    ASSERT_EQ(post(two.server, r), MR_OK);
  }
  char target[16] = {};
  const auto region = add_region(two.server, target, sizeof target);
  mr_work list[3] = {};
  for (uint64_t i = 0; i < 3; ++i) {
    list[i].id = i;
    list[i].connection = two.to_server;
    list[i].memory = "hello";
    list[i].length = 6;
    list[i].immediate = 40 + static_cast<uint32_t>(i);
  }
  list[0].operation = MR_SEND;
  list[1].operation = MR_SEND_IMM;
  list[2].operation = MR_WRITE_IMM;
  list[2].remote_address = region.address;
  list[2].remote_key = region.key;
  list[1].flags = MR_WORK_SOLICITED;
  size_t taken = 0;
  ASSERT_EQ(mr_post(two.client, list, 3, sizeof list[0], &taken), MR_OK);
  EXPECT_EQ(taken, 3u);
  const auto received = two.completions(two.server, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(received[i].id, 100 + i);
    EXPECT_EQ(received[i].operation, MR_RECEIVE);
    EXPECT_EQ(received[i].status, static_cast<uint32_t>(MR_OK));
    EXPECT_EQ((received[i].flags & MR_COMPLETION_IMMEDIATE) != 0, i > 0);
    EXPECT_EQ((received[i].flags & MR_COMPLETION_SOLICITED) != 0, i == 1);
    if (i > 0) {
      EXPECT_EQ(received[i].immediate, 40 + i);
    }
  }
  EXPECT_STREQ(inbox[0], "hello");
  EXPECT_STREQ(inbox[1], "hello");
  EXPECT_STREQ(target, "hello");
  EXPECT_EQ(inbox[2][0], 0);
  EXPECT_EQ(two.completions(two.client, 3).size(), 3u);
}

TEST(NativeWork, AccessThroughAWrongKeyFailsTheRequest) {
  Two two;
  char memory[64] = {};
  auto region = add_region(two.server, memory, sizeof memory);
  region.key ^= 1;
  ASSERT_EQ(post(two.client, two.write_to(region, "x", 1)), MR_OK);
  EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_ACCESS));
  EXPECT_EQ(memory[0], 0);
}

TEST(NativeWork, AFullContextTakesWhatFitsAndSaysSo) {
  mr_context_options o = options(MR_CONTEXT_ACCEPT);
  const char* const settings[] = {"max_sends=16"};
  o.settings = settings;
  o.setting_count = 1;
  mr_context* small = nullptr;
  ASSERT_EQ(mr_context_open(&o, &small), MR_OK);
  Two two;
  mr_connection c = 0;
  ASSERT_EQ(connect_to(small, mr_context_port(two.server), 0, false, &c), MR_OK);
  ASSERT_EQ(mr_stream_open(small, c, 0, nullptr), MR_OK);
  std::vector<mr_work> list(20);
  for (auto& w : list) {
    w.connection = c;
    w.operation = MR_SEND;
  }
  size_t taken = 0;
  EXPECT_EQ(mr_post(small, list.data(), list.size(), sizeof list[0], &taken), MR_FULL);
  EXPECT_EQ(taken, 16u);
  EXPECT_NE(last_error(small).find("max_sends"), std::string::npos) << last_error(small);
  mr_context_close(small);
}

TEST(NativeWork, CloseIsToldAtBothEnds) {
  Two two;
  char inbox[8];
  mr_receive r{};
  r.id = 5;
  r.connection = two.to_server;
  r.memory = inbox;
  r.length = sizeof inbox;
  ASSERT_EQ(post(two.client, r), MR_OK);
  ASSERT_EQ(mr_close(two.client, two.to_server, 3), MR_OK);
  const auto flushed = two.completions(two.client, 1);
  EXPECT_EQ(flushed[0].id, 5u);
  EXPECT_EQ(flushed[0].status, static_cast<uint32_t>(MR_CLOSED));
  EXPECT_EQ(post(two.client, r), MR_NOT_CONNECTED);
  const mr_event there = two.event(two.server, MR_EVENT_CLOSED);
  EXPECT_EQ(there.connection, two.to_client);
  EXPECT_NE(std::string(there.text).find("closed the connection"), std::string::npos);
  EXPECT_EQ(two.event(two.client, MR_EVENT_CLOSED).connection, two.to_server);
  EXPECT_EQ(mr_close(two.client, two.to_server, 0), MR_UNKNOWN_HANDLE);
}

TEST(NativeWork, AbortGivesBackMemoryAtOnceAndTellsNothing) {
  Two two;
  std::vector<char> memory(1 << 16);
  const auto region = add_region(two.client, memory.data(), memory.size());
  mr_receive r{};
  r.connection = two.to_server;
  r.memory = memory.data();
  r.length = memory.size();
  r.region = region.region;
  ASSERT_EQ(post(two.client, r), MR_OK);
  EXPECT_EQ(mr_region_deregister(two.client, region.region), MR_BUSY);
  ASSERT_EQ(mr_abort(two.client, two.to_server, 9), MR_OK);
  EXPECT_EQ(mr_region_deregister(two.client, region.region), MR_OK);
  EXPECT_EQ(post(two.client, r), MR_UNKNOWN_HANDLE);
  EXPECT_EQ(two.event(two.server, MR_EVENT_CLOSED).connection, two.to_client);
  mr_completion c;
  size_t got = 1;
  EXPECT_EQ(mr_poll(two.client, &c, 1, sizeof c, &got), MR_OK);
  EXPECT_EQ(got, 0u);
  EXPECT_TRUE(Two::events(two.client).empty());
}

TEST(NativeWork, StreamsAreOpenedOnceAndClosedWhenNothingIsPosted) {
  Two two;
  uint16_t id = 0;
  ASSERT_EQ(mr_stream_open(two.client, two.to_server, MR_ANY_STREAM, &id), MR_OK);
  EXPECT_EQ(id, 1u);  // 0 is open already
  ASSERT_EQ(mr_stream_open(two.client, two.to_server, 9, nullptr), MR_OK);
  EXPECT_EQ(mr_stream_open(two.client, two.to_server, 9, nullptr), MR_INVALID);
  EXPECT_EQ(mr_stream_open(two.client, two.to_server, 65536, nullptr), MR_INVALID);
  mr_receive r{};
  r.connection = two.to_server;
  r.stream = 9;
  ASSERT_EQ(post(two.client, r), MR_OK);
  EXPECT_EQ(mr_stream_close(two.client, two.to_server, 9), MR_BUSY);
  EXPECT_EQ(mr_stream_close(two.client, two.to_server, 1), MR_OK);
  r.stream = 1;
  EXPECT_EQ(post(two.client, r), MR_UNKNOWN_HANDLE);
  EXPECT_EQ(mr_stream_open(two.client, two.to_server, 1, nullptr), MR_INVALID);
  ASSERT_EQ(mr_stream_open(two.server, two.to_client, 9, nullptr), MR_OK);
  mr_work w{};
  w.connection = two.to_client;
  w.stream = 9;
  w.operation = MR_SEND;
  ASSERT_EQ(post(two.server, w), MR_OK);
  EXPECT_EQ(two.completions(two.client, 1)[0].stream, 9u);
  EXPECT_EQ(mr_stream_close(two.client, two.to_server, 9), MR_OK);
}

TEST(NativeWork, BlockingConnectNamesTheCause) {
  mr_context* client = open_context(0);
  mr_context* taken = open_context(0);  // owns a port and does not accept
  mr_connection c = 0;
  EXPECT_EQ(connect_to(client, mr_context_port(taken), 50'000'000, true, &c), MR_UNRESPONSIVE);
  const std::string text = last_error(client);
  EXPECT_NE(text.find("127.0.0.1:" + std::to_string(mr_context_port(taken))), std::string::npos)
      << text;
  const uint16_t port = mr_context_port(taken);
  mr_context_close(taken);
  EXPECT_EQ(connect_to(client, port, kBound, true, &c), MR_REFUSED);
  EXPECT_NE(last_error(client).find("refused"), std::string::npos) << last_error(client);
  EXPECT_TRUE(Two::events(client).empty());
  mr_context_close(client);
}

TEST(NativeWork, AcceptWaitsAndGivesUp) {
  mr_context* server = open_context(MR_CONTEXT_ACCEPT);
  mr_connection c = 0;
  EXPECT_EQ(mr_accept(server, 1'000'000, &c), MR_TIMEOUT);
  EXPECT_NE(last_error(server).find(std::to_string(mr_context_port(server))), std::string::npos);
  mr_context_close(server);
}

TEST(NativeWork, PathsAndCountersCanBeRead) {
  Two two;
  two.event(two.client, MR_EVENT_PATHS_OPEN);
  mr_connection_info info{};
  info.size = sizeof info;
  ASSERT_EQ(mr_connection_get(two.client, two.to_server, &info), MR_OK);
  EXPECT_EQ(info.size, sizeof info);
  EXPECT_GE(info.paths, 1u);
  EXPECT_EQ(info.planes, 1u);
  EXPECT_EQ(std::string(info.peer), "127.0.0.1:" + std::to_string(mr_context_port(two.server)));
  mr_path_info paths[256];
  size_t got = 0;
  ASSERT_EQ(mr_paths_get(two.client, two.to_server, paths, 256, sizeof paths[0], &got), MR_OK);
  ASSERT_EQ(got, info.paths);
  for (size_t i = 0; i < got; ++i) {
    EXPECT_EQ(paths[i].path, i);
    EXPECT_EQ(paths[i].state, static_cast<uint32_t>(MR_PATH_GOOD));
  }
  for (const int group :
       {MR_COUNTERS_CONNECTION, MR_COUNTERS_PATH, MR_COUNTERS_SOCKET, MR_COUNTERS_DROP}) {
    uint64_t values[128];
    ASSERT_EQ(mr_counters_get(two.client, group, two.to_server, 0, values, 128, &got), MR_OK);
    std::set<std::string> names;
    for (size_t i = 0; i < got; ++i) {
      ASSERT_NE(mr_counter_name(group, i), nullptr);
      EXPECT_GT(std::strlen(mr_counter_meaning(group, i)), 5u);
      EXPECT_TRUE(names.insert(mr_counter_name(group, i)).second);
    }
    EXPECT_EQ(mr_counter_name(group, got), nullptr);
    if (group == MR_COUNTERS_SOCKET) {
      EXPECT_GT(values[0], 0u);
      EXPECT_STREQ(mr_counter_name(group, 0), "tx_datagrams");
    }
  }
}

TEST(NativeWork, PathEventsTellWhichPathBecameGood) {
  Two two;
  std::set<uint32_t> good;
  mr_connection_info info{};
  info.size = sizeof info;
  ASSERT_EQ(mr_connection_get(two.client, two.to_server, &info), MR_OK);
  // Those of before the connection was told are kept as well; join() fetched some.
  mr_path_info paths[256];
  size_t got = 0;
  size_t all_good = 0;
  while (all_good < info.paths) {
    two.turn();
    for (const mr_event& e : Two::events(two.client)) {
      if (e.kind != MR_EVENT_PATH) continue;
      EXPECT_NE(e.old_state, e.new_state);
      if (e.new_state == MR_PATH_GOOD) good.insert(e.path);
      EXPECT_NE(std::string(e.text).find("path " + std::to_string(e.path)), std::string::npos);
    }
    mr_paths_get(two.client, two.to_server, paths, 256, sizeof paths[0], &got);
    all_good = static_cast<size_t>(std::count_if(
        paths, paths + got, [](const mr_path_info& p) { return p.state == MR_PATH_GOOD; }));
  }
  EXPECT_LE(good.size(), info.paths);
}

}  // namespace
}  // namespace metaroce::api::native
