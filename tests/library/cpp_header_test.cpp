// The C++ header: every function of the wrappers is used once.
#include <metaroce/metaroce.hpp>

#include <array>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

int failures = 0;

void check(bool good, const char* what, int line) {
  if (good) return;
  std::fprintf(stderr, "line %d: %s is false\n", line, what);
  ++failures;
}
#define CHECK(condition) check((condition), #condition, __LINE__)

mr::Completion complete(mr::Context& context) {
  std::array<mr::Completion, 1> room{};
  for (;;) {
    if (!context.poll(room).empty()) return room[0];
    while (context.next_event()) continue;
    context.wait();
  }
}

void run() {
  mr::Options options;
  options.addresses = {"127.0.0.1"};
  options.settings = {"paths_per_plane=2"};
  options.progress_thread = true;
  mr::Context client(options);
  options.accept = true;
  mr::Context server(options);
  mr::Connection accepted = 0;
  std::thread listener([&] { accepted = server.accept(std::chrono::seconds(30)).value(); });
  const auto to_server = client.connect({"127.0.0.1:" + std::to_string(server.port())});
  listener.join();
  CHECK(client.fd() >= 0);

  std::vector<std::byte> memory(4096);
  mr::Region region = server.register_memory(memory, MR_REMOTE_WRITE);
  CHECK(region.length() == memory.size());
  const uint16_t stream = client.open_stream(to_server);
  server.open_stream(accepted, stream);
  mr::Receive receive{};
  receive.connection = accepted;
  receive.stream = stream;
  CHECK(server.post(std::array<mr::Receive, 1>{receive}) == 1);
  const std::vector<std::byte> from(4096, std::byte{7});
  mr::Work work{};
  work.connection = to_server;
  work.stream = stream;
  work.operation = MR_WRITE_IMM;
  work.memory = from.data();
  work.length = from.size();
  work.remote_address = region.address();
  work.remote_key = region.key();
  work.immediate = 5;
  CHECK(client.post(std::array<mr::Work, 1>{work}) == 1);
  CHECK(complete(client).status == MR_OK);
  CHECK(complete(server).immediate == 5);
  CHECK(memory == from);
  client.close_stream(to_server, stream);

  mr::Region moved = std::move(region);
  CHECK(moved.release() == MR_OK);
  CHECK(moved.release() == MR_OK);
  try {
    client.close_stream(to_server, stream);
    CHECK(false);
  } catch (const mr::Error& e) {
    CHECK(e.status() == MR_UNKNOWN_HANDLE);
    CHECK(std::string(e.what()).find("stream") != std::string::npos);
  }
  try {
    mr::Options wrong;
    wrong.settings = {"nonsense=1"};
    mr::Context never(wrong);
    CHECK(false);
  } catch (const mr::Error& e) {
    CHECK(e.status() == MR_INVALID);
  }
  client.arm();
  client.wake();
  client.close(to_server);
  server.abort(accepted);
  const auto second = client.start_connect({"127.0.0.1:" + std::to_string(server.port())});
  client.abort(second);
}

}  // namespace

int main() {
  run();
  return failures == 0 ? 0 : 1;
}
