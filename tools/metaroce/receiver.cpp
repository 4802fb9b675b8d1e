#include "receiver.h"

#include <sys/mman.h>

#include <algorithm>

#include "file_names.h"

namespace metaroce::tool {
namespace {

constexpr Duration kGoodbye = milliseconds(500);
constexpr uint16_t kMaxLinks = 64;

/// Receive memory of one link.
class Arena {
 public:
  explicit Arena(size_t bytes) : bytes_(bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  ~Arena() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::span<std::byte> bytes() const { return {base_, base_ == nullptr ? 0 : bytes_}; }

 private:
  std::byte* base_;
  size_t bytes_;
};

}  // namespace

struct Receiver::Session {
  std::pair<uint64_t, uint64_t> id;
  uint16_t links_expected = 1;
  std::string peer;
  Time begin{};
  // The sink's thread only:
  std::vector<LinkAddress> links;
  std::unique_ptr<SessionSink> sink;
  bool reported = false;
};

struct Receiver::LinkState {
  std::string peer;
  std::shared_ptr<Session> session;
  std::shared_ptr<Arena> arena;
  SharedMemory memory;
  bool refused = false;
};

struct Receiver::Port {
  Transport* transport = nullptr;
  std::thread thread;
  std::map<Link, LinkState> links;  // the port's thread only
  std::mutex mutex;
  std::vector<std::pair<Link, Bytes>> outbox;
};

/// Work for the sink: a message, or the arrival or end of a link.
struct Receiver::Job {
  enum class Kind { kMessage, kLinkUp, kLinkDown };
  Kind kind = Kind::kMessage;
  std::shared_ptr<Session> session;
  LinkAddress from;
  Message message;
  Chunk chunk;
  std::string why;
};

Receiver::Receiver(ReceiverOptions options, TargetFolder folder, std::vector<Transport*> transports)
    : options_(std::move(options)), folder_(std::move(folder)) {
  for (Transport* transport : transports) {
    ports_.push_back(std::make_unique<Port>());
    ports_.back()->transport = transport;
  }
}

Receiver::~Receiver() {
  if (!finished_.load()) stop("the receiver ended");
  join();
}

void Receiver::start() {
  sink_thread_ = std::thread([this] { run_sink(); });
  for (size_t i = 0; i < ports_.size(); ++i) {
    ports_[i]->thread = std::thread([this, i] { run_port(i); });
  }
}

void Receiver::stop(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_text_.empty()) stop_text_ = why;
  }
  stopping_.store(true);
  for (auto& port : ports_) port->transport->wake();
}

bool Receiver::wait_finished(Duration timeout) {
  std::unique_lock lock(mutex_);
  return finished_changed_.wait_for(lock, std::chrono::nanoseconds(timeout.ns),
                                    [this] { return finished_.load(); });
}

void Receiver::finish() {
  const std::lock_guard lock(mutex_);
  finished_.store(true);
  finished_changed_.notify_all();
}

void Receiver::join() {
  for (auto& port : ports_) {
    if (port->thread.joinable()) port->thread.join();
  }
  {
    const std::lock_guard lock(mutex_);
    quit_.store(true);
    jobs_ready_.notify_all();
  }
  if (sink_thread_.joinable()) sink_thread_.join();
}

uint32_t Receiver::open_sessions() {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(sessions_.size());
}

std::vector<SessionResult> Receiver::take_results() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

void Receiver::log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

// ---- the thread of a transport ------------------------------------------------------------------

void Receiver::run_port(size_t index) {
  Port& port = *ports_[index];
  while (!stopping_.load() && !finished_.load()) {
    Event event;
    while (port.transport->next(event)) handle_event(index, event);
    drain_outbox(index);
    port.transport->wait(milliseconds(50));
  }
  if (stopping_.load()) say_goodbye(index);
  for (auto& [link, state] : port.links) {
    if (state.arena) port.transport->unshare(state.memory);
  }
  if (stopping_.load()) finish();
}

void Receiver::say_goodbye(size_t index) {
  Port& port = *ports_[index];
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    why = stop_text_;
  }
  for (auto& [link, state] : port.links) {
    port.transport->send(link, kControlStream, encode(Abort{why}));
  }
  const Time end = options_.now() + kGoodbye;
  while (options_.now() < end) {
    Event event;
    while (port.transport->next(event)) {
      if (event.kind == EventKind::kLinkDown) link_down(index, event.link, event.text);
    }
    const auto told = [&](const auto& entry) { return port.transport->flushed(entry.first); };
    if (std::all_of(port.links.begin(), port.links.end(), told)) break;
    port.transport->wait(milliseconds(5));
  }
  std::vector<Link> open;
  for (auto& [link, state] : port.links) open.push_back(link);
  for (const Link link : open) {
    port.transport->close(link);
    link_down(index, link, why);
  }
  port.transport->wait(milliseconds(5));
}

void Receiver::drain_outbox(size_t index) {
  Port& port = *ports_[index];
  std::vector<std::pair<Link, Bytes>> messages;
  {
    const std::lock_guard lock(port.mutex);
    messages.swap(port.outbox);
  }
  for (auto& [link, message] : messages) {
    if (port.links.count(link) != 0) {
      port.transport->send(link, kControlStream, std::move(message));
    }
  }
}

void Receiver::handle_event(size_t index, Event& event) {
  Port& port = *ports_[index];
  switch (event.kind) {
    case EventKind::kLinkUp: port.links[event.link].peer = event.text; break;
    case EventKind::kLinkDown: link_down(index, event.link, event.text); break;
    case EventKind::kWritten: break;
    case EventKind::kMessage: {
      const auto found = port.links.find(event.link);
      if (found != port.links.end() && !found->second.refused) {
        handle_message(index, found->second, event.link, event);
      }
      break;
    }
  }
}

void Receiver::handle_message(size_t index, LinkState& state, Link link, Event& event) {
  auto decoded = decode(event.message);
  if (!decoded) return refuse(index, link, "the sender sent " + decoded.error());
  if (const auto* hello = std::get_if<Hello>(&*decoded)) {
    return handle_hello(index, state, link, *hello);
  }
  if (!state.session) return refuse(index, link, "the sender did not say HELLO first");
  Job job;
  job.session = state.session;
  job.from = {index, link};
  if (const auto* data = std::get_if<Data>(&*decoded)) {
    if (data->slot >= options_.slots || data->length > options_.slot_bytes) {
      return refuse(index, link, "the sender named a slot that does not exist");
    }
    job.chunk = {job.from, data->slot,
                 state.arena->bytes().subspan(size_t{data->slot} * options_.slot_bytes,
                                              data->length),
                 state.arena};
  } else if (event.stream != kControlStream) {
    return refuse(index, link, "the sender sent a control message on a data stream");
  }
  if (std::holds_alternative<Bye>(*decoded)) ports_[index]->transport->note_end(link);
  job.message = std::move(*decoded);
  push(std::move(job));
}

void Receiver::handle_hello(size_t index, LinkState& state, Link link, const Hello& hello) {
  if (state.session) return refuse(index, link, "the sender said HELLO twice");
  if (hello.version != kFileProtocolVersion) {
    return refuse(index, link,
                  "the sender speaks version " + std::to_string(hello.version) +
                      " of the file protocol, the receiver version " +
                      std::to_string(kFileProtocolVersion));
  }
  if (hello.links == 0 || hello.links > kMaxLinks || hello.link >= hello.links) {
    return refuse(index, link, "the sender named an impossible number of connections");
  }
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    auto& entry = sessions_[{hello.session_high, hello.session_low}];
    if (!entry && sessions_.size() > options_.max_sessions) {
      sessions_.erase({hello.session_high, hello.session_low});
    } else if (!entry) {
      entry = std::make_shared<Session>();
      entry->id = {hello.session_high, hello.session_low};
      entry->links_expected = hello.links;
      entry->peer = state.peer;
      entry->begin = options_.now();
      entry->sink = std::make_unique<SessionSink>(
          folder_, options_.overwrite,
          std::to_string(hello.session_high & 0xFFFFFFFF) + std::to_string(++session_count_),
          size_t{options_.slots} * hello.links,
          [this](const LinkAddress& to, const Message& message) { post(to, message); },
          [this](const ReceivedItem& item) {
            if (!item.stored) log("not stored: " + item.text);
          });
      session = entry;
    } else {
      session = entry;
    }
  }
  if (!session) {
    return refuse(index, link,
                  "the receiver is busy with " + std::to_string(options_.max_sessions) +
                      " transfers");
  }
  auto arena = std::make_shared<Arena>(size_t{options_.slots} * options_.slot_bytes);
  if (arena->bytes().empty()) return refuse(index, link, "the receiver is out of memory");
  const auto shared = ports_[index]->transport->share(arena->bytes());
  if (!shared) return refuse(index, link, "the receiver: " + shared.error());
  state.session = session;
  state.arena = std::move(arena);
  state.memory = *shared;
  Job job;
  job.kind = Job::Kind::kLinkUp;
  job.session = session;
  job.from = {index, link};
  push(std::move(job));
  ports_[index]->transport->send(
      link, kControlStream,
      encode(Welcome{kFileProtocolVersion, shared->key, shared->address, options_.slot_bytes,
                     options_.slots}));
}

// The link stays until the peer has read why; what else it sends is ignored.
void Receiver::refuse(size_t index, Link link, const std::string& why) {
  Port& port = *ports_[index];
  LinkState& state = port.links[link];
  log("refused " + state.peer + ": " + why);
  state.refused = true;
  port.transport->send(link, kControlStream, encode(Abort{why}));
  if (state.session) {
    Job job;
    job.kind = Job::Kind::kLinkDown;
    job.session = std::exchange(state.session, nullptr);
    job.from = {index, link};
    job.why = why;
    push(std::move(job));
  }
}

void Receiver::link_down(size_t index, Link link, const std::string& why) {
  Port& port = *ports_[index];
  const auto found = port.links.find(link);
  if (found == port.links.end()) return;
  if (found->second.arena) port.transport->unshare(found->second.memory);
  if (found->second.session) {
    Job job;
    job.kind = Job::Kind::kLinkDown;
    job.session = found->second.session;
    job.from = {index, link};
    job.why = why;
    push(std::move(job));
  }
  port.links.erase(found);
}

// ---- the thread that hashes and writes ----------------------------------------------------------

void Receiver::push(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  jobs_ready_.notify_one();
}

void Receiver::post(const LinkAddress& to, const Message& message) {
  Port& port = *ports_[to.port];
  {
    const std::lock_guard lock(port.mutex);
    port.outbox.emplace_back(to.link, encode(message));
  }
  port.transport->wake();
}

void Receiver::run_sink() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      jobs_ready_.wait(lock, [this] { return !jobs_.empty() || quit_.load(); });
      if (jobs_.empty()) break;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    do_job(job);
  }
}

void Receiver::do_job(Job& job) {
  Session& session = *job.session;
  switch (job.kind) {
    case Job::Kind::kLinkUp:
      session.links.push_back(job.from);
      if (session.links.size() == 1) log("connected: " + session.peer);
      break;
    case Job::Kind::kLinkDown: do_link_down(job.session, job.from, job.why); break;
    case Job::Kind::kMessage: {
      if (session.sink->ended()) return;
      const uint64_t before = session.sink->appended();
      const std::string wrong = do_message(session, job);
      bytes_ += session.sink->appended() - before;
      if (!wrong.empty()) abort_session(session, "the sender sent " + wrong);
      break;
    }
  }
}

std::string Receiver::do_message(Session& session, Job& job) {
  SessionSink& sink = *session.sink;
  if (const auto* m = std::get_if<Data>(&job.message)) return sink.data(*m, std::move(job.chunk));
  if (const auto* m = std::get_if<Offer>(&job.message)) return sink.offer(job.from, *m);
  if (const auto* m = std::get_if<Done>(&job.message)) return sink.done(*m);
  if (const auto* m = std::get_if<Cancel>(&job.message)) return sink.cancel(*m);
  if (const auto* m = std::get_if<Bye>(&job.message)) {
    std::string wrong = sink.bye(job.from, *m);
    if (wrong.empty()) sink.end({}, options_.now());
    return wrong;
  }
  if (const auto* m = std::get_if<Abort>(&job.message)) {
    sink.end("the sender ended the transfer: " + printable(m->text), options_.now());
    return {};
  }
  return "a message that only receivers send";
}

void Receiver::abort_session(Session& session, const std::string& why) {
  session.sink->end(why, options_.now());
  for (const LinkAddress& link : session.links) post(link, Abort{why});
}

void Receiver::do_link_down(const std::shared_ptr<Session>& session, const LinkAddress& from,
                            const std::string& why) {
  std::erase(session->links, from);
  if (!session->sink->ended()) abort_session(*session, why);
  if (!session->links.empty() || session->reported) return;
  session->reported = true;
  SessionResult result = std::move(session->sink->result());
  result.peer = session->peer;
  result.begin = session->begin;
  {
    const std::lock_guard lock(mutex_);
    sessions_.erase(session->id);
    results_.push_back(std::move(result));
    finished_changed_.notify_all();
  }
  if (options_.once && !stopping_.load()) {
    finish();
    for (auto& port : ports_) port->transport->wake();
  }
}

}  // namespace metaroce::tool
