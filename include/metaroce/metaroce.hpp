// softmetaroce for C++20: owners for the handles of metaroce.h, and exceptions for its statuses.
// Header only and thin: each function calls the one of the same name, whose manual page holds.
#ifndef METAROCE_METAROCE_HPP
#define METAROCE_METAROCE_HPP

#include <metaroce/metaroce.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace mr {

using Connection = mr_connection;
using Work = mr_work;
using Receive = mr_receive;
using Completion = mr_completion;
using Segment = mr_segment;
using StreamOptions = mr_stream_options;
using Event = mr_event;

/// A call that failed: its status, and the line of mr_last_error.
class Error : public std::runtime_error {
 public:
  Error(mr_status status, const std::string& text)
      : std::runtime_error(text.empty() ? mr_status_text(status) : text), status_(status) {}
  mr_status status() const { return status_; }

 private:
  mr_status status_;
};

/// What mr_context_open takes.
struct Options {
  std::vector<std::string> addresses;
  std::vector<std::string> settings;  ///< "name=value"
  uint16_t port = 0;
  bool accept = false;
  bool progress_thread = false;
  std::string faults;
};

class Context;

/// Registered memory; deregistered at the end. The context has to live longer.
class Region {
 public:
  Region() = default;
  Region(Region&& o) noexcept
      : context_(std::exchange(o.context_, nullptr)), info_(o.info_) {}
  Region& operator=(Region&& o) noexcept {
    if (this != &o) {
      release();
      context_ = std::exchange(o.context_, nullptr);
      info_ = o.info_;
    }
    return *this;
  }
  ~Region() { release(); }

  mr_region handle() const { return info_.region; }
  uint64_t address() const { return info_.address; }
  uint32_t key() const { return info_.key; }
  uint64_t length() const { return info_.length; }
  /// MR_BUSY while work names it or a window of it is open: the key stays good then, and the
  /// destructor cannot say so. Poll completions, and end windows, before the memory goes.
  mr_status release() noexcept {
    if (context_ == nullptr) return MR_OK;
    const mr_status status = mr_region_deregister(context_, info_.region);
    if (status == MR_OK) context_ = nullptr;
    return status;
  }

 private:
  friend class Context;
  Region(mr_context* context, const mr_region_info& info) : context_(context), info_(info) {}
  mr_context* context_ = nullptr;
  mr_region_info info_{};
};

/// Owns an mr_context. Timeouts that are not given are for ever.
class Context {
 public:
  using Timeout = std::optional<std::chrono::nanoseconds>;

  explicit Context(const Options& options = {}) {
    std::vector<const char*> addresses = pointers(options.addresses);
    std::vector<const char*> settings = pointers(options.settings);
    mr_context_options o{};
    o.size = sizeof o;
    if (options.accept) o.flags |= MR_CONTEXT_ACCEPT;
    if (options.progress_thread) o.flags |= MR_CONTEXT_PROGRESS_THREAD;
    o.port = options.port;
    o.addresses = addresses.data();
    o.address_count = addresses.size();
    o.settings = settings.data();
    o.setting_count = settings.size();
    o.faults = options.faults.empty() ? nullptr : options.faults.c_str();
    mr_context* made = nullptr;
    const mr_status status = mr_context_open(&o, &made);
    if (status != MR_OK) throw Error(status, last_error(nullptr));
    context_.reset(made);
  }

  /// For calls that have no function here.
  mr_context* get() const { return context_.get(); }
  uint16_t port() const { return mr_context_port(get()); }
  int fd() const { return mr_context_fd(get()); }
  void arm() { check(mr_context_arm(get())); }
  void wake() noexcept { mr_context_wake(get()); }

  Region register_memory(std::span<std::byte> memory, uint32_t rights) {
    mr_region_info info{};
    info.size = sizeof info;
    check(mr_region_register(get(), memory.data(), memory.size(), rights, &info));
    return Region(get(), info);
  }

  /// The names of keys are those of mr_connect_options; "": as the context has them.
  Connection connect(const std::vector<std::string>& peers, Timeout timeout = {},
                     const std::string& peer_key_name = {}, const std::string& identity = {}) {
    Connection connection = 0;
    const std::vector<const char*> list = pointers(peers);
    const mr_connect_options o = connect_options(list, peer_key_name, identity);
    check(mr_connect(get(), &o, ns(timeout), &connection));
    return connection;
  }
  Connection start_connect(const std::vector<std::string>& peers,
                           const std::string& peer_key_name = {},
                           const std::string& identity = {}) {
    Connection connection = 0;
    const std::vector<const char*> list = pointers(peers);
    const mr_connect_options o = connect_options(list, peer_key_name, identity);
    check(mr_connect_start(get(), &o, &connection));
    return connection;
  }
  /// Nothing when nobody came in time.
  std::optional<Connection> accept(Timeout timeout = {}) {
    Connection connection = 0;
    const mr_status status = mr_accept(get(), ns(timeout), &connection);
    if (status == MR_TIMEOUT) return std::nullopt;
    check(status);
    return connection;
  }
  void close(Connection connection, uint32_t code = 0) {
    check(mr_close(get(), connection, code));
  }
  void abort(Connection connection, uint32_t code = 0) {
    check(mr_abort(get(), connection, code));
  }

  uint16_t open_stream(Connection connection, uint32_t wanted = MR_ANY_STREAM) {
    uint16_t stream = 0;
    check(mr_stream_open(get(), connection, wanted, &stream));
    return stream;
  }
  void close_stream(Connection connection, uint16_t stream) {
    check(mr_stream_close(get(), connection, stream));
  }

  void set_stream(Connection connection, uint16_t stream, StreamOptions options) {
    options.size = sizeof options;
    check(mr_stream_set(get(), connection, stream, &options));
  }
  void reset_stream(Connection connection, uint16_t stream) {
    check(mr_stream_reset(get(), connection, stream));
  }
  void drain_stream(Connection connection, uint16_t stream) {
    check(mr_stream_drain(get(), connection, stream));
  }
  void set_domain(Connection connection, uint32_t domain) {
    check(mr_connection_set_domain(get(), connection, domain));
  }
  /// A key of its own for a part of a region.
  Region open_window(const Region& region, uint64_t offset, uint64_t length, uint32_t rights,
                     uint32_t domain = 0) {
    mr_region_info info{};
    info.size = sizeof info;
    check(mr_window_open(get(), region.handle(), offset, length, rights, domain, &info));
    return Region(get(), info);
  }
  mr_queue create_queue() {
    mr_queue queue = 0;
    check(mr_queue_create(get(), &queue));
    return queue;
  }
  void destroy_queue(mr_queue queue) { check(mr_queue_destroy(get(), queue)); }
  void arm_queue(mr_queue queue, uint32_t count) { check(mr_queue_arm(get(), queue, count)); }

  /// How many were taken; less than all only when the context is full.
  size_t post(std::span<const Work> work) {
    size_t taken = 0;
    settle(mr_post(get(), work.data(), work.size(), sizeof(Work), &taken));
    return taken;
  }
  size_t post(std::span<const Receive> receives) {
    size_t taken = 0;
    settle(mr_post_receive(get(), receives.data(), receives.size(), sizeof(Receive), &taken));
    return taken;
  }
  /// The completions fetched, in the front of `room`.
  std::span<Completion> poll(std::span<Completion> room) {
    size_t got = 0;
    check(mr_poll(get(), room.data(), room.size(), sizeof(Completion), &got));
    return room.first(got);
  }
  std::optional<Event> next_event() {
    Event event{};
    event.size = sizeof event;
    const mr_status status = mr_next_event(get(), &event);
    if (status == MR_EMPTY) return std::nullopt;
    check(status);
    return event;
  }
  /// True when there is something to fetch.
  bool wait(Timeout timeout = {}) {
    const mr_status status = mr_context_wait(get(), ns(timeout));
    if (status == MR_TIMEOUT || status == MR_WOKEN) return false;
    check(status);
    return true;
  }

 private:
  struct Close {
    void operator()(mr_context* context) const noexcept { mr_context_close(context); }
  };

  static std::vector<const char*> pointers(const std::vector<std::string>& list) {
    std::vector<const char*> out;
    for (const std::string& text : list) out.push_back(text.c_str());
    return out;
  }
  static mr_connect_options connect_options(const std::vector<const char*>& peers,
                                            const std::string& peer_key_name,
                                            const std::string& identity) {
    mr_connect_options o{};
    o.size = sizeof o;
    o.peers = peers.data();
    o.peer_count = peers.size();
    if (!peer_key_name.empty()) o.peer_key_name = peer_key_name.c_str();
    if (!identity.empty()) o.identity = identity.c_str();
    return o;
  }
  static int64_t ns(Timeout timeout) { return timeout ? timeout->count() : -1; }
  static std::string last_error(mr_context* context) {
    char text[512] = "";
    mr_last_error(context, text, sizeof text);
    return text;
  }
  void check(mr_status status) const {
    if (status != MR_OK) throw Error(status, last_error(get()));
  }
  void settle(mr_status status) const {
    if (status != MR_FULL) check(status);
  }

  std::unique_ptr<mr_context, Close> context_;
};

}  // namespace mr

#endif
