// Reads, atomics, segments, shared queues and ends of streams over real sockets.
#include <algorithm>
#include <array>
#include <cstring>

#include "api/native/test_support.h"

namespace metaroce::api::native {
namespace {

mr_region_info reachable(mr_context* c, void* memory, size_t length, uint32_t rights) {
  mr_region_info info{};
  info.size = sizeof info;
  EXPECT_EQ(mr_region_register(c, memory, length, rights, &info), MR_OK) << last_error(c);
  return info;
}

mr_work asks(const Two& two, uint8_t operation, const mr_region_info& region, void* memory,
             uint64_t length) {
  mr_work w{};
  w.id = 1;
  w.connection = two.to_server;
  w.operation = operation;
  w.memory = memory;
  w.length = length;
  w.remote_address = region.address;
  w.remote_key = region.key;
  return w;
}

/// A shared queue that stream 0 of the server takes its receives from.
mr_queue queue_of_stream_0(const Two& two) {
  mr_queue queue = 0;
  EXPECT_EQ(mr_queue_create(two.server, &queue), MR_OK);
  mr_stream_options options{};
  options.size = sizeof options;
  options.rnr_retry = MR_RETRY_FOR_EVER;
  options.shared_queue = queue;
  EXPECT_EQ(mr_stream_set(two.server, two.to_client, 0, &options), MR_OK);
  return queue;
}

TEST(NativeOperations, ReadAndAtomicsAreAnsweredByTheTransport) {
  Two two;
  alignas(8) std::array<uint64_t, 64> there{};
  for (size_t i = 0; i < there.size(); ++i) there[i] = 1000 + i;
  const auto region =
      reachable(two.server, there.data(), sizeof there, MR_REMOTE_READ | MR_REMOTE_ATOMIC);
  std::array<uint64_t, 64> here{};
  ASSERT_EQ(post(two.client, asks(two, MR_READ, region, here.data(), sizeof here)), MR_OK);
  auto done = two.completions(two.client, 1);
  EXPECT_EQ(done[0].status, static_cast<uint32_t>(MR_OK));
  EXPECT_EQ(done[0].bytes, sizeof here);
  EXPECT_EQ(here, there);

  auto add = asks(two, MR_FETCH_ADD, region, here.data(), 0);
  add.operand = 5;
  ASSERT_EQ(post(two.client, add), MR_OK);
  auto swap = asks(two, MR_COMPARE_SWAP, region, nullptr, 0);
  swap.operand = 1005;
  swap.swap = 7;
  ASSERT_EQ(post(two.client, swap), MR_OK);
  done = two.completions(two.client, 2);
  EXPECT_EQ(done[0].old_value, 1000u);
  EXPECT_EQ(here[0], 1000u);
  EXPECT_EQ(done[1].old_value, 1005u);
  EXPECT_EQ(there[0], 7u);
}

TEST(NativeOperations, SegmentsHoldTheirRegionsUntilTheCompletionWasPolled) {
  Two two;
  char pieces[3][100];
  for (int i = 0; i < 3; ++i) std::memset(pieces[i], 'a' + i, sizeof pieces[i]);
  const auto first = reachable(two.client, pieces[0], 100, 0);
  const auto last = reachable(two.client, pieces[2], 100, 0);
  char target[300] = {};
  const auto region = reachable(two.server, target, sizeof target, MR_REMOTE_WRITE);
  const mr_segment segments[] = {
      {pieces[2], 100, last.region}, {pieces[1], 100, 0}, {pieces[0], 50, first.region}};
  auto w = asks(two, MR_WRITE, region, nullptr, 0);
  w.segments = segments;
  w.segment_count = 3;
  ASSERT_EQ(post(two.client, w), MR_OK) << last_error(two.client);
  EXPECT_EQ(mr_region_deregister(two.client, first.region), MR_BUSY);
  EXPECT_EQ(mr_region_deregister(two.client, last.region), MR_BUSY);
  EXPECT_EQ(two.completions(two.client, 1)[0].bytes, 250u);
  EXPECT_EQ(mr_region_deregister(two.client, first.region), MR_OK);
  EXPECT_EQ(mr_region_deregister(two.client, last.region), MR_OK);
  EXPECT_EQ(std::string(target, 250),
            std::string(100, 'c') + std::string(100, 'b') + std::string(50, 'a'));
  // One that is not inside its region takes nothing and holds nothing.
  const mr_segment outside[] = {{pieces[1], 1, 0}, {pieces[0], 1, region.region}};
  w.segments = outside;
  w.segment_count = 2;
  EXPECT_NE(post(two.client, w), MR_OK);
}

TEST(NativeOperations, UnsignalledAndCopied) {
  Two two;
  char target[8] = {};
  const auto region = reachable(two.server, target, sizeof target, MR_REMOTE_WRITE);
  char text[8] = "copied";
  auto w = asks(two, MR_WRITE, region, text, 8);
  w.flags = MR_WORK_UNSIGNALLED | MR_WORK_COPIED;
  ASSERT_EQ(post(two.client, w), MR_OK);
  std::memset(text, 0, sizeof text);
  w.id = 2;
  w.flags = MR_WORK_UNSIGNALLED;
  w.remote_key ^= 1;
  ASSERT_EQ(post(two.client, w), MR_OK);
  const auto done = two.completions(two.client, 1);
  EXPECT_EQ(done[0].id, 2u);
  EXPECT_EQ(done[0].status, static_cast<uint32_t>(MR_ACCESS));
  EXPECT_STREQ(target, "copied");
}

TEST(NativeOperations, ASharedQueueFeedsStreamsAndTellsWhenItIsShort) {
  Two two;
  const mr_queue queue = queue_of_stream_0(two);
  EXPECT_EQ(mr_queue_destroy(two.server, queue), MR_BUSY);
  char inbox[4][16] = {};
  for (uint64_t i = 0; i < 4; ++i) {
    mr_receive r{};
    r.id = 50 + i;
    r.queue = queue;
    r.memory = inbox[i];
    r.length = sizeof inbox[i];
    ASSERT_EQ(post(two.server, r), MR_OK) << last_error(two.server);
  }
  mr_receive wrong{};
  wrong.connection = two.to_client;
  EXPECT_EQ(post(two.server, wrong), MR_INVALID);
  EXPECT_NE(last_error(two.server).find("shared queue"), std::string::npos);
  ASSERT_EQ(mr_queue_arm(two.server, queue, 3), MR_OK);
  char text[] = "x";
  mr_region_info none{};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(post(two.client, asks(two, MR_SEND, none, text, 2)), MR_OK);
  }
  const auto got = two.completions(two.server, 2);
  EXPECT_EQ(got[0].id, 50u);
  EXPECT_EQ(got[1].id, 51u);
  bool told = false;
  for (const mr_event& e : two.events(two.server))
    told |= e.kind == MR_EVENT_QUEUE_LOW && e.queue == queue;
  EXPECT_TRUE(told);
}

TEST(NativeOperations, ASharedQueueStaysUntilWhatItGaveIsPolled) {
  Two two;
  const mr_queue queue = queue_of_stream_0(two);
  char inbox[2][16] = {};
  const auto region = reachable(two.server, inbox, sizeof inbox, 0);
  for (uint64_t i = 0; i < 2; ++i) {
    mr_receive r{};
    r.id = 50 + i;
    r.queue = queue;
    r.memory = inbox[i];
    r.region = region.region;
    r.length = sizeof inbox[i];
    ASSERT_EQ(post(two.server, r), MR_OK) << last_error(two.server);
  }
  char text[] = "x";
  mr_region_info none{};
  ASSERT_EQ(post(two.client, asks(two, MR_SEND, none, text, 2)), MR_OK);
  EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_OK));
  ASSERT_EQ(mr_close(two.client, two.to_server, 0), MR_OK);
  two.event(two.server, MR_EVENT_CLOSED);
  // Long after the connection is gone its completion stays, and so does what it names.
  const auto gone = [&] {
    mr_connection_info info{};
    info.size = sizeof info;
    return mr_connection_get(two.server, two.to_client, &info) != MR_OK;
  };
  while (!gone()) two.turn();
  EXPECT_EQ(mr_queue_destroy(two.server, queue), MR_BUSY);
  EXPECT_NE(last_error(two.server).find("1 receives of queue"), std::string::npos);
  EXPECT_EQ(mr_region_deregister(two.server, region.region), MR_BUSY);
  EXPECT_EQ(two.completions(two.server, 1)[0].id, 50u);
  while (mr_queue_destroy(two.server, queue) == MR_BUSY) two.turn();
  EXPECT_EQ(mr_region_deregister(two.server, region.region), MR_OK);
}

TEST(NativeOperations, OptionsOfAStreamAreSetBeforeItsWork) {
  Two two;
  char text[] = "x";
  mr_region_info none{};
  ASSERT_EQ(post(two.client, asks(two, MR_SEND, none, text, 2)), MR_OK);
  mr_stream_options options{};
  options.size = sizeof options;
  options.in_order = 1;
  EXPECT_EQ(mr_stream_set(two.client, two.to_server, 0, &options), MR_INVALID);
  EXPECT_NE(last_error(two.client).find("1 posted requests use stream 0"), std::string::npos);
}

TEST(NativeOperations, ADrainedStreamTakesNoMoreWork) {
  Two two;
  char inbox[16];
  mr_receive r{};
  r.id = 5;
  r.connection = two.to_client;
  r.memory = inbox;
  r.length = sizeof inbox;
  ASSERT_EQ(post(two.server, r), MR_OK);
  ASSERT_EQ(mr_stream_drain(two.client, two.to_server, 0), MR_OK);  // nothing was ever sent
  char text[] = "x";
  mr_region_info none{};
  EXPECT_EQ(post(two.client, asks(two, MR_SEND, none, text, 2)), MR_CLOSED);
  EXPECT_EQ(two.completions(two.server, 1)[0].status, static_cast<uint32_t>(MR_FLUSHED));
  EXPECT_EQ(post(two.client, asks(two, MR_SEND, none, text, 2)), MR_CLOSED);
}

TEST(NativeOperations, AResetStreamFlushesBothEnds) {
  Two two;
  char inbox[16];
  mr_receive r{};
  r.id = 5;
  r.connection = two.to_client;
  r.memory = inbox;
  r.length = sizeof inbox;
  ASSERT_EQ(post(two.server, r), MR_OK);
  ASSERT_EQ(mr_stream_reset(two.client, two.to_server, 0), MR_OK);
  const auto done = two.completions(two.server, 1);
  EXPECT_EQ(done[0].status, static_cast<uint32_t>(MR_FLUSHED));
  char text[] = "x";
  mr_region_info none{};
  ASSERT_EQ(post(two.client, asks(two, MR_SEND, none, text, 2)), MR_OK);
  EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_FLUSHED));
  EXPECT_EQ(mr_stream_close(two.server, two.to_client, 0), MR_OK);
}

TEST(NativeOperations, AWindowOfAnotherDomainIsNoKey) {
  Two two;
  char memory[64] = {};
  const auto region = reachable(two.server, memory, sizeof memory, MR_REMOTE_WRITE);
  mr_region_info window{};
  window.size = sizeof window;
  ASSERT_EQ(mr_window_open(two.server, region.region, 8, 16, MR_REMOTE_WRITE, 9, &window), MR_OK);
  EXPECT_EQ(window.address, region.address + 8);
  EXPECT_EQ(mr_region_deregister(two.server, region.region), MR_BUSY);
  char text[16] = "window";
  ASSERT_EQ(mr_connection_set_domain(two.server, two.to_client, 9), MR_OK);
  ASSERT_EQ(post(two.client, asks(two, MR_WRITE, window, text, 16)), MR_OK);
  EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_OK));
  EXPECT_STREQ(memory + 8, "window");
  ASSERT_EQ(mr_connection_set_domain(two.server, two.to_client, 8), MR_OK);
  ASSERT_EQ(post(two.client, asks(two, MR_WRITE, window, text, 16)), MR_OK);
  EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_ACCESS));
  EXPECT_EQ(mr_region_deregister(two.server, window.region), MR_OK);
  EXPECT_EQ(mr_region_deregister(two.server, region.region), MR_OK);
}

}  // namespace
}  // namespace metaroce::api::native
