// One process of the failure matrix (failures.py) and of the mass connect: it connects or listens,
// exchanges messages that say which connection they belong to, and tells every event as a line of
// JSON with the time in milliseconds.
//
//   life_peer listen ADDRESS PORT          until SIGTERM (closes its connections) or SIGKILL
//   life_peer talk ADDRESS PORT idle|busy  connects, connects again whenever the connection ends
//   life_peer mass ADDRESS PORT COUNT      COUNT connects at once, 1 message on each, then ends
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/endpoint.h"
#include "driver/common/clock.h"
#include "driver/common/socket_address.h"
#include "wire/types.h"

namespace {

using namespace metaroce;
using api::ConnectionEventKind;
using api::ConnectionHandle;

constexpr uint64_t kSlot = 16 << 10;
constexpr uint32_t kSlots = 16;
volatile std::sig_atomic_t g_stop = 0;

double ms() { return static_cast<double>(driver::now().ns) / 1e6; }

void say(const char* event, const std::string& status = "", const std::string& text = "") {
  std::printf("{\"event\": \"%s\", \"ms\": %.3f, \"status\": \"%s\", \"text\": \"%s\"}\n", event,
              ms(), status.c_str(), text.c_str());
  std::fflush(stdout);
}

/// First words of each message: the connection of the sender, counted by itself, and the number.
struct Tag {
  uint64_t process;
  uint64_t connection;
  uint64_t number;
};

SocketAddress address_of(const char* host, const char* port) {
  return driver::parse_address(host, static_cast<uint16_t>(std::atoi(port)));
}

std::unique_ptr<api::Endpoint> open_endpoint(api::EndpointOptions options) {
  auto endpoint = api::Endpoint::open(options);
  if (!endpoint) {
    std::fprintf(stderr, "life_peer: %s\n", endpoint.error().text.c_str());
    std::exit(1);
  }
  return std::move(*endpoint);
}

/// The receives of one connection; checks that what arrives is one sender's, in order.
struct Inbox {
  std::vector<std::byte> memory = std::vector<std::byte>(kSlot * kSlots);
  uint64_t next = 0;
  uint64_t process = 0;
  uint64_t connection = 0;

  void post(api::Endpoint& e, ConnectionHandle c, uint64_t slot) {
    api::ReceiveRequest r;
    r.id = slot;
    r.connection = c;
    r.buffer = memory.data() + slot * kSlot;
    r.length = kSlot;
    Status status = Status::kOk;
    e.post_receive({&r, 1}, status);
  }
  bool take(uint64_t slot) {
    Tag tag;
    std::memcpy(&tag, memory.data() + slot * kSlot, sizeof tag);
    if (next == 0) {
      process = tag.process;
      connection = tag.connection;
    }
    return tag.process == process && tag.connection == connection && tag.number == next++;
  }
};

int listen(const SocketAddress& at) {
  api::EndpointOptions o;
  o.local = {at};
  o.port = at.port;
  o.accept = true;
  o.settings.max_connections = 1200;
  o.settings.max_receives = 32768;
  o.settings.max_active_paths = 4096;
  const auto e = open_endpoint(o);
  std::map<ConnectionHandle, Inbox> inboxes;
  say("ready", std::to_string(e->port()));
  uint64_t stale = 0;
  uint64_t messages = 0;
  uint64_t accepted = 0;
  std::vector<api::Completion> done(64);
  while (g_stop == 0) {
    e->wait(milliseconds(100));
    api::ConnectionEvent event;
    while (e->next_event(event)) {
      if (event.kind == ConnectionEventKind::kAccepted) {
        ++accepted;
        Inbox& inbox = inboxes[event.connection];
        for (uint64_t s = 0; s < kSlots; ++s) inbox.post(*e, event.connection, s);
      } else if (event.kind == ConnectionEventKind::kLost ||
                 event.kind == ConnectionEventKind::kClosed) {
        say("ended", to_string(event.status));
        inboxes.erase(event.connection);
      }
    }
    for (size_t n = e->poll(done); n > 0; n = e->poll(done)) {
      for (size_t i = 0; i < n; ++i) {
        const auto at_inbox = inboxes.find(done[i].connection);
        if (at_inbox == inboxes.end() || done[i].status != Status::kOk) continue;
        ++messages;
        if (!at_inbox->second.take(done[i].id)) say("stale", std::to_string(++stale));
        at_inbox->second.post(*e, done[i].connection, done[i].id);
      }
    }
  }
  for (const auto& [handle, inbox] : inboxes) e->close(handle, wire::close_code::kShutdown);
  // Time for CLOSE and its answer; the connections of a dead peer are not waited for.
  const Time end = driver::now() + milliseconds(300);
  while (driver::now() < end) e->wait(milliseconds(20));
  say("over", std::to_string(accepted),
      std::to_string(messages) + " messages, " + std::to_string(stale) + " stale");
  return stale == 0 ? 0 : 1;
}

class Talker {
 public:
  Talker(const SocketAddress& peer, bool busy) : peer_(peer), busy_(busy) {
    api::EndpointOptions o;
    endpoint_ = open_endpoint(o);
    buffer_.resize(kSlot * kSlots);
    free_.resize(kSlots);
    for (uint64_t s = 0; s < kSlots; ++s) free_[s] = s;
  }

  int run() {
    ask();
    std::vector<api::Completion> done(64);
    while (g_stop == 0) {
      endpoint_->wait(milliseconds(20));
      api::ConnectionEvent event;
      while (endpoint_->next_event(event)) on_event(event);
      for (size_t n = endpoint_->poll(done); n > 0; n = endpoint_->poll(done)) {
        for (size_t i = 0; i < n; ++i) on_completion(done[i]);
      }
      if (handle_ == 0 && driver::now() >= ask_at_) ask();
      if (connected_) talk();
    }
    return 0;
  }

 private:
  void ask() {
    const auto h = endpoint_->start_connect({&peer_, 1});
    ask_at_ = driver::now() + milliseconds(20);
    if (h) handle_ = *h;
  }

  void on_event(const api::ConnectionEvent& event) {
    if (event.connection != handle_) return;
    if (event.kind == ConnectionEventKind::kConnected) {
      connected_ = true;
      tag_ = Tag{static_cast<uint64_t>(ms() * 1000), tag_.connection + 1, 0};
      working_told_ = false;
      say("connected");
    } else if (event.kind == ConnectionEventKind::kFailed) {
      handle_ = 0;
      const std::string text = endpoint_->failure(event).text;
      if (text != last_failure_) say("failed", to_string(event.status), text);
      last_failure_ = text;
    } else if (event.kind == ConnectionEventKind::kLost ||
               event.kind == ConnectionEventKind::kClosed) {
      say("lost", to_string(event.status), api::describe_loss(event, seconds(2)));
      handle_ = 0;
      connected_ = false;
      last_failure_.clear();
    }
  }

  void on_completion(const api::Completion& c) {
    free_.push_back(c.id);
    if (c.status != Status::kOk || working_told_ || !connected_) return;
    working_told_ = true;
    say("working");
  }

  void talk() {
    const size_t wanted = busy_ ? kSlots : (working_told_ || tag_.number > 0 ? 0 : 1);
    for (size_t i = 0; i < wanted && !free_.empty(); ++i) {
      const uint64_t slot = free_.back();
      std::memcpy(buffer_.data() + slot * kSlot, &tag_, sizeof tag_);
      api::WorkRequest r;
      r.id = slot;
      r.connection = handle_;
      r.operation = engine::Operation::kSend;
      r.local = buffer_.data() + slot * kSlot;
      r.length = kSlot;
      Status status = Status::kOk;
      if (endpoint_->post({&r, 1}, status) == 0) return;
      free_.pop_back();
      ++tag_.number;
    }
  }

  SocketAddress peer_;
  bool busy_;
  std::unique_ptr<api::Endpoint> endpoint_;
  std::vector<std::byte> buffer_;
  std::vector<uint64_t> free_;
  ConnectionHandle handle_ = 0;
  bool connected_ = false;
  bool working_told_ = false;
  Time ask_at_{0};
  Tag tag_{};
  std::string last_failure_;
};

int mass(const SocketAddress& peer, uint32_t count) {
  api::EndpointOptions o;
  o.settings.max_connections = count;
  o.settings.connect_timeout = 10'000'000'000;
  const auto e = open_endpoint(o);
  std::vector<std::byte> buffer(kSlot);
  const double begin = ms();
  for (uint32_t i = 0; i < count; ++i) {
    const auto h = e->start_connect({&peer, 1});
    if (!h) {
      say("failed", "", h.error().text);
      return 1;
    }
  }
  uint32_t connected = 0;
  uint32_t failed = 0;
  uint32_t done = 0;
  double all_connected = 0;
  std::vector<api::Completion> list(64);
  while (failed == 0 && done < count && ms() - begin < 60'000) {
    e->wait(milliseconds(100));
    api::ConnectionEvent event;
    while (e->next_event(event)) {
      if (event.kind == ConnectionEventKind::kConnected) {
        if (++connected == count) all_connected = ms() - begin;
        const Tag tag{begin > 0 ? static_cast<uint64_t>(begin) : 1, event.connection, 0};
        std::memcpy(buffer.data(), &tag, sizeof tag);
        api::WorkRequest r;
        r.id = event.connection;
        r.connection = event.connection;
        r.operation = engine::Operation::kSend;
        r.local = buffer.data();
        r.length = 1024;
        Status status = Status::kOk;
        if (e->post({&r, 1}, status) != 1) ++failed;
      } else if (event.kind == ConnectionEventKind::kFailed ||
                 event.kind == ConnectionEventKind::kLost) {
        ++failed;
        say("failed", to_string(event.status), e->failure(event).text);
      }
    }
    for (size_t n = e->poll(list); n > 0; n = e->poll(list)) {
      for (size_t i = 0; i < n; ++i) if (list[i].status == Status::kOk) {
          ++done;
        } else if (failed++ == 0) {
          say("failed", to_string(list[i].status), "a message");
        }
    }
  }
  char text[160];
  std::snprintf(text, sizeof text, "connected %u of %u after %.1f ms, messages %u, failed %u",
                connected, count, all_connected, done, failed);
  say("mass", failed == 0 && done == count ? "ok" : "bad", text);
  return failed == 0 && done == count ? 0 : 1;
}

void on_signal(int) { g_stop = 1; }

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, on_signal);
  std::signal(SIGINT, on_signal);
  const std::string word = argc >= 4 ? argv[1] : "";
  if (word == "listen") return listen(address_of(argv[2], argv[3]));
  if (word == "talk" && argc == 5) {
    return Talker(address_of(argv[2], argv[3]), std::string(argv[4]) == "busy").run();
  }
  if (word == "mass" && argc == 5) {
    return mass(address_of(argv[2], argv[3]), static_cast<uint32_t>(std::atoi(argv[4])));
  }
  std::fprintf(stderr,
               "usage: life_peer listen ADDRESS PORT | talk ADDRESS PORT idle|busy | "
               "mass ADDRESS PORT COUNT\n");
  return 2;
}
