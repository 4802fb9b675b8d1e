// Descriptors, wakes, the progress thread, forks.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "api/native/test_support.h"

namespace metaroce::api::native {
namespace {

bool readable(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, timeout_ms) == 1;
}

/// The loop of the manual page: arm, wait for the descriptor, fetch all. Never a timeout.
std::vector<mr_completion> loop_until(mr_context* context, size_t count) {
  std::vector<mr_completion> all;
  const int fd = mr_context_fd(context);
  for (;;) {
    mr_completion batch[16];
    size_t got = 0;
    do {
      EXPECT_EQ(mr_poll(context, batch, 16, sizeof batch[0], &got), MR_OK);
      all.insert(all.end(), batch, batch + got);
    } while (got != 0);
    Two::events(context);
    if (all.size() >= count) return all;
    EXPECT_EQ(mr_context_arm(context), MR_OK);
    EXPECT_TRUE(readable(fd, 30'000)) << "a wake-up was lost";
    if (testing::Test::HasFailure()) return all;
  }
}

/// Ping-pong of `rounds` between two threads that only wait for descriptors.
void ping_pong(uint32_t flags, int rounds) {
  Two two(flags);
  const auto side = [&](mr_context* context, mr_connection connection, bool first) {
    char in = 0;
    char out = 1;
    for (int i = 0; i < rounds; ++i) {
      mr_receive r{};
      r.connection = connection;
      r.memory = &in;
      r.length = 1;
      ASSERT_EQ(post(context, r), MR_OK) << last_error(context);
      mr_work w{};
      w.connection = connection;
      w.operation = MR_SEND;
      w.memory = &out;
      w.length = 1;
      if (first) {
        ASSERT_EQ(post(context, w), MR_OK);
        ASSERT_EQ(loop_until(context, 2).size(), 2u);
      } else {
        auto done = loop_until(context, 1);
        ASSERT_EQ(post(context, w), MR_OK);
        if (done.size() < 2) loop_until(context, 1);
      }
    }
  };
  std::thread other([&] { side(two.server, two.to_client, false); });
  side(two.client, two.to_server, true);
  other.join();
}

TEST(NativeWaiting, NoWakeUpIsLostInTheLoopOfOneThread) { ping_pong(0, 2000); }

TEST(NativeWaiting, NoWakeUpIsLostWithProgressThreads) {
  ping_pong(MR_CONTEXT_PROGRESS_THREAD, 2000);
}

TEST(NativeWaiting, ArmingAfterTheNewsMakesTheDescriptorReadableAtOnce) {
  for (const uint32_t flags : {0u, uint32_t{MR_CONTEXT_PROGRESS_THREAD}}) {
    Two two(flags);
    char in = 0;
    mr_receive r{};
    r.connection = two.to_client;
    r.memory = &in;
    r.length = 1;
    ASSERT_EQ(post(two.server, r), MR_OK);
    mr_work w{};
    w.connection = two.to_server;
    w.operation = MR_SEND;
    w.memory = "x";
    w.length = 1;
    ASSERT_EQ(post(two.client, w), MR_OK);
    two.completions(two.client, 1);  // so it has arrived and waits at the server
    ASSERT_EQ(mr_context_arm(two.server), MR_OK);
    EXPECT_TRUE(readable(mr_context_fd(two.server), 30'000));
    EXPECT_EQ(two.completions(two.server, 1).size(), 1u);
  }
}

TEST(NativeWaiting, AnIdleContextIsQuiet) {
  for (const uint32_t flags : {0u, uint32_t{MR_CONTEXT_PROGRESS_THREAD}}) {
    mr_context* context = open_context(flags);
    mr_completion c;
    size_t got = 0;
    mr_poll(context, &c, 1, sizeof c, &got);
    ASSERT_EQ(mr_context_arm(context), MR_OK);
    EXPECT_FALSE(readable(mr_context_fd(context), 0));
    mr_context_close(context);
  }
}

TEST(NativeWaiting, WakeEndsAWaitFromAnotherThreadAndIsKept) {
  for (const uint32_t flags : {0u, uint32_t{MR_CONTEXT_PROGRESS_THREAD}}) {
    mr_context* context = open_context(flags);
    EXPECT_EQ(mr_context_wait(context, 1'000'000), MR_TIMEOUT);
    EXPECT_EQ(mr_context_wake(context), MR_OK);
    EXPECT_EQ(mr_context_wait(context, -1), MR_WOKEN);
    std::thread waker([&] { mr_context_wake(context); });
    EXPECT_EQ(mr_context_wait(context, -1), MR_WOKEN);
    waker.join();
    ASSERT_EQ(mr_context_arm(context), MR_OK);
    EXPECT_EQ(mr_context_wake(context), MR_OK);
    EXPECT_TRUE(readable(mr_context_fd(context), 30'000));
    // Armed again without a poll: the wake still stands.
    ASSERT_EQ(mr_context_arm(context), MR_OK);
    EXPECT_TRUE(readable(mr_context_fd(context), 30'000));
    mr_poll(context, nullptr, 0, sizeof(mr_completion), nullptr);
    ASSERT_EQ(mr_context_arm(context), MR_OK);
    EXPECT_FALSE(readable(mr_context_fd(context), 0));
    mr_context_close(context);
  }
}

mr_context* woken_by_signal = nullptr;

TEST(NativeWaiting, WakeMayBeCalledInASignalHandler) {
  for (const uint32_t flags : {0u, uint32_t{MR_CONTEXT_PROGRESS_THREAD}}) {
    woken_by_signal = open_context(flags);
    struct sigaction action {};
    action.sa_handler = [](int) { mr_context_wake(woken_by_signal); };
    struct sigaction before {};
    ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
    const pthread_t self = pthread_self();
    std::thread sender([&] { pthread_kill(self, SIGUSR1); });
    EXPECT_EQ(mr_context_wait(woken_by_signal, -1), MR_WOKEN);
    sender.join();
    sigaction(SIGUSR1, &before, nullptr);
    mr_context_close(woken_by_signal);
  }
}

// The program never drives: it only waits for the descriptor of one side.
TEST(NativeWaiting, AProgressThreadMovesDataWithoutAnyCall) {
  Two two(MR_CONTEXT_PROGRESS_THREAD);
  std::vector<char> from(16 << 20, 'q');
  std::vector<char> to(from.size());
  const auto region = add_region(two.server, to.data(), to.size());
  Two::events(two.client);
  ASSERT_EQ(post(two.client, two.write_to(region, from.data(), from.size())), MR_OK);
  bool done = false;
  while (!done) {
    ASSERT_EQ(mr_context_arm(two.client), MR_OK);
    ASSERT_TRUE(readable(mr_context_fd(two.client), 30'000));
    Two::events(two.client);
    mr_completion c;
    size_t got = 0;
    ASSERT_EQ(mr_poll(two.client, &c, 1, sizeof c, &got), MR_OK);
    done = got == 1;
  }
  EXPECT_EQ(to, from);
}

TEST(NativeWaiting, BlockingConnectAndAcceptMeetFromTwoThreads) {
  for (const uint32_t flags : {0u, uint32_t{MR_CONTEXT_PROGRESS_THREAD}}) {
    mr_context* server = open_context(flags | MR_CONTEXT_ACCEPT);
    mr_context* client = open_context(flags);
    mr_connection accepted = 0;
    std::thread listener(
        [&] { EXPECT_EQ(mr_accept(server, kBound, &accepted), MR_OK) << last_error(server); });
    mr_connection connected = 0;
    EXPECT_EQ(connect_to(client, mr_context_port(server), kBound, true, &connected), MR_OK)
        << last_error(client);
    listener.join();
    EXPECT_NE(accepted, 0u);
    mr_context_close(client);
    mr_context_close(server);
  }
}

// What mr_connect waits for is not taken away by a thread that fetches events.
TEST(NativeWaiting, ConnectAndTheEventsOfAnotherThreadDoNotMeet) {
  mr_context* server = open_context(MR_CONTEXT_PROGRESS_THREAD | MR_CONTEXT_ACCEPT);
  mr_context* client = open_context(MR_CONTEXT_PROGRESS_THREAD);
  std::atomic<bool> done{false};
  std::thread fetcher([&] {
    while (!done.load()) {
      for (const mr_event& e : Two::events(client)) {
        EXPECT_NE(e.kind, static_cast<uint32_t>(MR_EVENT_CONNECTED));
        EXPECT_NE(e.kind, static_cast<uint32_t>(MR_EVENT_FAILED));
      }
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 20; ++i) {
    mr_connection c = 0;
    ASSERT_EQ(connect_to(client, mr_context_port(server), kBound, true, &c), MR_OK)
        << last_error(client);
    EXPECT_EQ(mr_abort(client, c, 0), MR_OK);
  }
  const uint16_t port = mr_context_port(server);
  mr_context_close(server);
  mr_connection c = 0;
  EXPECT_EQ(connect_to(client, port, kBound, true, &c), MR_REFUSED);
  done = true;
  fetcher.join();
  mr_context_close(client);
}

TEST(NativeWaiting, ManyThreadsShareAContextWithAProgressThread) {
  Two two(MR_CONTEXT_PROGRESS_THREAD);
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  std::vector<char> to(kThreads * 64);
  const auto region = add_region(two.server, to.data(), to.size());
  std::atomic<int> completed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    uint16_t stream = 0;
    ASSERT_EQ(mr_stream_open(two.client, two.to_server, MR_ANY_STREAM, &stream), MR_OK);
    threads.emplace_back([&, t, stream] {
      const char value = static_cast<char>('a' + t);
      const std::vector<char> from(64, value);
      mr_work w = two.write_to(region, from.data(), from.size());
      w.remote_address += static_cast<uint64_t>(t) * 64;
      w.stream = stream;
      for (int i = 0; i < kEach; ++i) ASSERT_EQ(post(two.client, w), MR_OK);
      // `from` lives until everybody's work is done, whoever fetches the completions.
      while (completed.load() < kThreads * kEach) {
        mr_completion batch[16];
        size_t got = 0;
        ASSERT_EQ(mr_poll(two.client, batch, 16, sizeof batch[0], &got), MR_OK);
        for (size_t i = 0; i < got; ++i) EXPECT_EQ(batch[i].status, static_cast<uint32_t>(MR_OK));
        completed += static_cast<int>(got);
        mr_connection_info info{};
        info.size = sizeof info;
        EXPECT_EQ(mr_connection_get(two.client, two.to_server, &info), MR_OK);
      }
    });
  }
  for (auto& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(std::string(to.data() + t * 64, 64), std::string(64, static_cast<char>('a' + t)));
  }
}

TEST(NativeFork, AChildIsToldAndTheParentGoesOn) {
  for (const uint32_t flags : {0u, uint32_t{MR_CONTEXT_PROGRESS_THREAD}}) {
    Two two(flags);
    std::vector<char> to(4096);
    const auto region = add_region(two.server, to.data(), to.size());
    const pid_t child = fork();
    if (child == 0) {
      char text[64];
      mr_connection c = 0;
      mr_event e{};
      e.size = sizeof e;
      size_t got = 0;
      mr_completion done;
      const bool told =
          mr_context_wait(two.client, 0) == MR_FORKED && mr_context_wake(two.client) == MR_FORKED &&
          mr_context_fd(two.client) == -1 && mr_context_arm(two.client) == MR_FORKED &&
          mr_next_event(two.client, &e) == MR_FORKED && mr_context_port(two.client) == 0 &&
          mr_poll(two.client, &done, 1, sizeof done, &got) == MR_FORKED &&
          mr_last_error(two.client, text, sizeof text) == MR_FORKED &&
          mr_connect_start(two.client, nullptr, &c) == MR_FORKED &&
          mr_context_close(two.client) == MR_FORKED && mr_context_close(two.server) == MR_FORKED;
      mr_context* own = nullptr;
      const mr_context_options o = options(0);
      const bool can_open = mr_context_open(&o, &own) == MR_OK && mr_context_close(own) == MR_OK;
      _exit(told && can_open ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const std::string from(4096, 'z');
    ASSERT_EQ(post(two.client, two.write_to(region, from.data(), from.size())), MR_OK);
    EXPECT_EQ(two.completions(two.client, 1)[0].status, static_cast<uint32_t>(MR_OK));
    EXPECT_EQ(to[4095], 'z');
  }
}

std::set<int> open_descriptors() {
  std::set<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    all.insert(std::stoi(entry.path().filename().string()));
  }
  return all;
}

TEST(NativeFork, EveryDescriptorIsClosedOnExecAndAtTheEnd) {
  const auto before = open_descriptors();
  {
    Two two(MR_CONTEXT_PROGRESS_THREAD);
    two.event(two.client, MR_EVENT_PATHS_OPEN);
    size_t fresh = 0;
    for (const int fd : open_descriptors()) {
      const int flags = fcntl(fd, F_GETFD);
      if (before.count(fd) != 0 || flags < 0) continue;  // or that of the listing itself
      ++fresh;
      EXPECT_TRUE(flags & FD_CLOEXEC) << fd;
    }
    EXPECT_GT(fresh, 6u);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace metaroce::api::native
