#include "sender.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "file_names.h"
#include "file_sink.h"

namespace metaroce::tool {
namespace {

constexpr Duration kGoodbye = milliseconds(500);
constexpr int kPollMs = 100;  // how soon a reader blocked on standard input notices the end

}  // namespace

Sender::Sender(SenderOptions options, std::vector<SourceItem> items,
               std::vector<Connection> connections)
    : options_(std::move(options)) {
  for (const Connection& connection : connections) {
    ports_.push_back(std::make_unique<Port>());
    ports_.back()->connection = connection;
  }
  for (SourceItem& source : items) {
    source.offer.item = static_cast<uint32_t>(items_.size());
    if (source.offer.size == kUnknownSize || bytes_total_ == kUnknownSize) {
      bytes_total_ = kUnknownSize;
    } else {
      bytes_total_ += source.offer.size;
    }
    Item item;
    item.sent.name = source.offer.name;
    item.source = std::move(source);
    items_.push_back(std::move(item));
  }
  const size_t buffers = size_t{options_.buffers} * ports_.size();
  memory_.resize(buffers * options_.chunk_bytes);
  for (size_t i = buffers; i-- > 0;) free_buffers_.push_back(static_cast<uint32_t>(i));
}

Sender::~Sender() {
  fail("the sender ended");
  join();
}

std::span<std::byte> Sender::buffer(uint32_t index) {
  return std::span(memory_).subspan(size_t{index} * options_.chunk_bytes, options_.chunk_bytes);
}

void Sender::start() {
  begin_ = options_.now();
  for (size_t i = 0; i < ports_.size(); ++i) {
    ports_[i]->thread = std::thread([this, i] { run_port(i); });
  }
  reader_ = std::thread([this] { run_reader(); });
}

void Sender::stop(const std::string& why) { fail(why); }

void Sender::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (finished_.load()) return;
  failure_ = why;
  finish_locked();
}

void Sender::finish_locked() {
  end_ = options_.now();
  finished_.store(true);
  reader_wakes_.notify_all();
  finished_changed_.notify_all();
  wake_all();
}

void Sender::wake_all() {
  for (auto& port : ports_) port->connection.transport->wake();
}

bool Sender::wait_finished(Duration timeout) {
  std::unique_lock lock(mutex_);
  return finished_changed_.wait_for(lock, std::chrono::nanoseconds(timeout.ns),
                                    [this] { return finished_.load(); });
}

SendResult Sender::join() {
  for (auto& port : ports_) {
    if (port->thread.joinable()) port->thread.join();
  }
  if (reader_.joinable()) reader_.join();
  SendResult result;
  result.begin = begin_;
  result.end = end_;
  for (Item& item : items_) {
    if (item.sent.stored) {
      ++result.stored;
      if (item.source.offer.kind == ItemKind::kFile) result.bytes += item.sent.bytes;
    } else {
      ++result.failed;
      if (item.sent.text.empty()) item.sent.text = failure_;
    }
    result.items.push_back(item.sent);
  }
  result.text = failure_;
  if (failure_.empty() && result.failed != 0) {
    result.text = std::to_string(result.failed) + " of " + std::to_string(items_.size()) +
                  " items were not stored";
  }
  result.complete = complete_ && result.failed == 0;
  return result;
}

// ---- the thread of a connection -----------------------------------------------------------------

void Sender::run_port(size_t index) {
  Port& port = *ports_[index];
  Transport& transport = *port.connection.transport;
  transport.send(port.connection.link, kControlStream,
                 encode(Hello{kFileProtocolVersion, options_.session_high, options_.session_low,
                              static_cast<uint16_t>(index),
                              static_cast<uint16_t>(ports_.size())}));
  while (!finished_.load()) {
    Event event;
    while (transport.next(event)) handle_event(index, event);
    if (index == 0) drain_control();
    if (!send_chunks(index)) transport.wait(milliseconds(50));
  }
  if (!port.down) say_goodbye(index);
}

void Sender::say_goodbye(size_t index) {
  Port& port = *ports_[index];
  Transport& transport = *port.connection.transport;
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    why = failure_;
  }
  transport.note_end(port.connection.link);
  if (!why.empty()) {
    transport.send(port.connection.link, kControlStream, encode(Abort{why}));
  }
  const Time end = options_.now() + kGoodbye;
  while (!port.down && options_.now() < end && !transport.flushed(port.connection.link)) {
    Event event;
    while (transport.next(event)) port.down |= event.kind == EventKind::kLinkDown;
    transport.wait(milliseconds(5));
  }
  if (port.down) return;
  transport.close(port.connection.link);
  // The close has to leave, and its acknowledgement to come, before the process may end.
  while (!port.down && options_.now() < end) {
    Event event;
    while (transport.next(event)) port.down |= event.kind == EventKind::kLinkDown;
    if (!port.down) transport.wait(milliseconds(5));
  }
}

void Sender::drain_control() {
  std::deque<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    if (!ports_[0]->welcome) return;
    messages.swap(control_);
  }
  const Connection& connection = ports_[0]->connection;
  for (const Message& message : messages) {
    connection.transport->send(connection.link, kControlStream, encode(message));
  }
}

// True when something was posted, so that the caller looks again before it waits.
bool Sender::send_chunks(size_t index) {
  Port& port = *ports_[index];
  bool posted = false;
  while (!port.free_slots.empty()) {
    Chunk chunk;
    {
      const std::lock_guard lock(mutex_);
      if (ready_.empty() || finished_.load()) break;
      chunk = ready_.front();
      ready_.pop_front();
    }
    const uint16_t slot = port.free_slots.back();
    port.free_slots.pop_back();
    // A slot keeps its stream, so that a stream never holds more messages than it has slots.
    const auto stream = static_cast<uint16_t>(1 + slot % kDataStreams);
    Transport& transport = *port.connection.transport;
    transport.write(port.connection.link, stream, buffer(chunk.buffer).first(chunk.length),
                    port.memory.key, port.memory.address + uint64_t{slot} * port.memory.slot_bytes,
                    chunk.buffer);
    transport.send(port.connection.link, stream,
                   encode(Data{chunk.item, chunk.offset, chunk.length, slot}));
    posted = true;
  }
  return posted;
}

void Sender::handle_event(size_t index, Event& event) {
  Port& port = *ports_[index];
  if (event.link != port.connection.link) return;
  switch (event.kind) {
    case EventKind::kLinkUp: break;
    case EventKind::kMessage: handle_message(index, event); break;
    case EventKind::kLinkDown:
      port.down = true;
      fail("the connection to the receiver ended: " + event.text);
      break;
    case EventKind::kWritten:
      if (event.status == Status::kOk) {
        const std::lock_guard lock(mutex_);
        free_buffers_.push_back(static_cast<uint32_t>(event.id));
        reader_wakes_.notify_one();
      } else if (event.status == Status::kAccess || event.status == Status::kLength ||
                 event.status == Status::kInvalid || event.status == Status::kUnsupported) {
        fail(std::string("a write to the receiver failed: ") + metaroce::to_string(event.status));
      }
      // Any other status is the end of the link, and its event says who and why.
      break;
  }
}

void Sender::handle_message(size_t index, Event& event) {
  Port& port = *ports_[index];
  auto decoded = decode(event.message);
  if (!decoded) return fail("the receiver sent " + decoded.error());
  if (const auto* welcome = std::get_if<Welcome>(&*decoded)) return handle_welcome(index, *welcome);
  if (const auto* abort = std::get_if<Abort>(&*decoded)) {
    return fail("the receiver ended the transfer: " + printable(abort->text));
  }
  if (const auto* free = std::get_if<Free>(&*decoded)) {
    if (free->slot >= port.memory.slots || port.free_slots.size() >= port.memory.slots) {
      return fail("the receiver freed a slot that does not exist");
    }
    port.free_slots.push_back(free->slot);
    return;
  }
  if (const auto* answer = std::get_if<Answer>(&*decoded)) return handle_answer(*answer);
  if (const auto* verdict = std::get_if<Verdict>(&*decoded)) return handle_verdict(*verdict);
  if (std::holds_alternative<Bye>(*decoded)) {
    const std::lock_guard lock(mutex_);
    if (!bye_sent_ || finished_.load()) return;
    complete_ = true;
    finish_locked();
    return;
  }
  fail("the receiver sent a message that only senders send");
}

void Sender::handle_welcome(size_t index, const Welcome& welcome) {
  Port& port = *ports_[index];
  if (welcome.version != kFileProtocolVersion) {
    return fail("the receiver speaks version " + std::to_string(welcome.version) +
                " of the file protocol, this sender version " +
                std::to_string(kFileProtocolVersion));
  }
  if (welcome.slots == 0 || welcome.slot_bytes < options_.chunk_bytes || port.welcome) {
    return fail("the receiver offered memory that does not fit");
  }
  port.memory = welcome;
  for (uint16_t slot = welcome.slots; slot-- > 0;) port.free_slots.push_back(slot);
  const std::lock_guard lock(mutex_);
  port.welcome = true;
  if (index == 0) offer_more_locked();
}

void Sender::handle_answer(const Answer& answer) {
  {
    const std::lock_guard lock(mutex_);
    if (answer.item < next_offer_ && !items_[answer.item].answered) {
      Item& item = items_[answer.item];
      item.answered = true;
      item.accepted = answer.accepted && item.source.offer.kind == ItemKind::kFile;
      if (item.accepted) {
        accepted_.push_back(answer.item);
        reader_wakes_.notify_one();
      } else {
        item.closed_by_us = true;
      }
      return;
    }
  }
  fail("the receiver answered an offer that was not open");
}

void Sender::handle_verdict(const Verdict& verdict) {
  std::string line;
  bool known = false;
  {
    const std::lock_guard lock(mutex_);
    if (verdict.item < next_offer_ && items_[verdict.item].answered &&
        !items_[verdict.item].has_verdict) {
      known = true;
      Item& item = items_[verdict.item];
      item.has_verdict = true;
      item.sent.stored = verdict.stored;
      // What this side gave up itself has its reason already.
      if (item.sent.text.empty()) item.sent.text = verdict.text;
      if (!verdict.stored) line = "not stored: " + printable(item.sent.text);
      count_closed_locked(item);
      reader_wakes_.notify_one();
    }
  }
  if (!known) return fail("the receiver judged an item that was not open");
  if (!line.empty() && options_.log) options_.log(line);
}

void Sender::count_closed_locked(Item& item) {
  if (!item.has_verdict || !item.closed_by_us) return;
  --open_items_;
  ++closed_items_;
  offer_more_locked();
}

void Sender::offer_more_locked() {
  while (open_items_ < kMaxOpenItems && next_offer_ < items_.size()) {
    control_.push_back(items_[next_offer_].source.offer);
    ++next_offer_;
    ++open_items_;
  }
  if (closed_items_ == items_.size() && !bye_sent_) {
    bye_sent_ = true;
    uint64_t bytes = 0;
    for (const Item& item : items_) bytes += item.sent.stored ? item.sent.bytes : 0;
    control_.push_back(Bye{closed_items_, bytes});
  }
  ports_[0]->connection.transport->wake();
}

// ---- the thread that reads and hashes -----------------------------------------------------------

void Sender::run_reader() {
  for (;;) {
    uint32_t id = 0;
    {
      std::unique_lock lock(mutex_);
      reader_wakes_.wait(lock, [this] { return !accepted_.empty() || finished_.load(); });
      if (finished_.load()) return;
      id = accepted_.front();
      accepted_.pop_front();
    }
    read_item(id);
  }
}

void Sender::read_item(uint32_t id) {
  const SourceItem& source = items_[id].source;
  const bool is_stdin = source.path == "-";
  // O_NONBLOCK: a FIFO that took the place of a file since it was listed must not block.
  Descriptor file(is_stdin ? ::dup(STDIN_FILENO)
                           : ::open(source.path.c_str(),
                                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  std::string why;
  Sha256 digest{};
  uint64_t size = 0;
  struct stat info {};
  if (!file.valid()) {
    why = system_error("cannot read " + printable(source.path), errno);
  } else if (!is_stdin && (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))) {
    why = printable(source.path) + " is not a file any more";
  } else {
    if (!is_stdin) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    why = read_chunks(id, file.get(), digest, size);
  }
  if (finished_.load()) return;
  {
    const std::lock_guard lock(mutex_);
    items_[id].sent.bytes = size;
    items_[id].sent.sha256 = digest;
    if (!why.empty()) items_[id].sent.text = why;
  }
  if (why.empty()) {
    close_item(id, Done{id, size, digest});
  } else {
    close_item(id, Cancel{id, why});
  }
}

void Sender::close_item(uint32_t id, const Message& message) {
  const std::lock_guard lock(mutex_);
  control_.push_back(message);
  items_[id].closed_by_us = true;
  count_closed_locked(items_[id]);
  ports_[0]->connection.transport->wake();
}

// The buffer, or -1 when the item needs no more data.
int Sender::take_buffer(uint32_t id) {
  std::unique_lock lock(mutex_);
  reader_wakes_.wait(lock, [&] {
    return !free_buffers_.empty() || finished_.load() || items_[id].has_verdict;
  });
  if (finished_.load() || items_[id].has_verdict) return -1;
  const uint32_t index = free_buffers_.back();
  free_buffers_.pop_back();
  return static_cast<int>(index);
}

void Sender::push_chunk(const Chunk& chunk) {
  const std::lock_guard lock(mutex_);
  ready_.push_back(chunk);
  wake_all();
}

void Sender::give_back(int index) {
  const std::lock_guard lock(mutex_);
  free_buffers_.push_back(static_cast<uint32_t>(index));
}

// Fills the buffer as far as the file goes; `filled` less than its size means the end.
std::string Sender::fill(const SourceItem& source, int fd, std::span<std::byte> into,
                         size_t& filled) {
  filled = 0;
  while (filled < into.size() && !finished_.load()) {
    pollfd readable{fd, POLLIN, 0};
    if (source.path == "-" && ::poll(&readable, 1, kPollMs) == 0) continue;
    const ssize_t n = ::read(fd, into.data() + filled, into.size() - filled);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return system_error("cannot read " + printable(source.path), errno);
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  return {};
}

std::string Sender::read_chunks(uint32_t id, int fd, Sha256& digest, uint64_t& size) {
  const SourceItem& source = items_[id].source;
  const uint64_t expected = source.offer.size;
  Hasher hasher;
  for (bool at_end = false; !at_end;) {
    const int index = take_buffer(id);
    if (index < 0) return "the receiver could not store it";
    const std::span<std::byte> into = buffer(static_cast<uint32_t>(index));
    size_t filled = 0;
    std::string why = fill(source, fd, into, filled);
    if (why.empty() && filled > expected - size) {
      why = printable(source.path) + " grew while it was sent";
    }
    at_end = filled < into.size();
    if (!why.empty() || filled == 0 || finished_.load()) give_back(index);
    if (!why.empty() || finished_.load()) return why;
    if (filled == 0) break;
    hasher.update(into.first(filled));
    push_chunk({id, size, static_cast<uint32_t>(filled), static_cast<uint32_t>(index)});
    size += filled;
    bytes_sent_ += filled;
  }
  if (expected != kUnknownSize && size != expected) {
    return printable(source.path) + " shrank while it was sent";
  }
  digest = hasher.finish();
  return {};
}

}  // namespace metaroce::tool
