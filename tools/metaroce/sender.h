// The sending side of a file transfer: one thread a transport and one that reads and hashes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "source.h"
#include "transport.h"

namespace metaroce::tool {

struct SenderOptions {
  uint64_t session_high = 0;  ///< random
  uint64_t session_low = 0;
  uint32_t chunk_bytes = 1u << 20;  ///< one Write; at most the receiver's slot
  uint16_t buffers = 40;            ///< chunks read ahead, a connection
  std::function<void(const std::string&)> log;  ///< lines for a person; called by any thread
  std::function<Time()> now;
};

struct SentItem {
  std::string name;
  uint64_t bytes = 0;
  bool stored = false;
  Sha256 sha256{};
  std::string text;  ///< the name at the receiver, or why it is not there
};

struct SendResult {
  bool complete = false;  ///< every item was stored
  std::string text;       ///< why not
  uint64_t bytes = 0;     ///< of stored files
  uint32_t stored = 0;
  uint32_t failed = 0;
  Time begin{};
  Time end{};
  std::vector<SentItem> items;
};

class Sender {
 public:
  struct Connection {
    Transport* transport = nullptr;
    Link link = 0;
  };
  /// `connections[0]` carries the control messages. The transports outlive the sender.
  Sender(SenderOptions options, std::vector<SourceItem> items,
         std::vector<Connection> connections);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  void start();
  /// Tells the receiver why and ends. Any thread.
  void stop(const std::string& why);
  bool wait_finished(Duration timeout);
  SendResult join();

  uint64_t bytes_sent() const { return bytes_sent_.load(); }
  uint64_t bytes_total() const { return bytes_total_; }  ///< kUnknownSize with standard input

 private:
  struct Item {
    SourceItem source;
    SentItem sent;
    bool answered = false;
    bool accepted = false;
    bool closed_by_us = false;  // DONE or CANCEL is sent
    bool has_verdict = false;
  };
  struct Chunk {
    uint32_t item = 0;
    uint64_t offset = 0;
    uint32_t length = 0;
    uint32_t buffer = 0;
  };
  struct Port {
    Connection connection;
    std::thread thread;
    bool welcome = false;  // the rest: the port's thread only
    Welcome memory;
    std::vector<uint16_t> free_slots;
    bool down = false;
  };

  void run_port(size_t index);
  void handle_event(size_t index, Event& event);
  void handle_message(size_t index, Event& event);
  void handle_welcome(size_t index, const Welcome& welcome);
  void handle_answer(const Answer& answer);
  void handle_verdict(const Verdict& verdict);
  bool send_chunks(size_t index);
  void drain_control();
  void say_goodbye(size_t index);

  void run_reader();
  void read_item(uint32_t id);
  std::string read_chunks(uint32_t id, int fd, Sha256& digest, uint64_t& size);
  std::string fill(const SourceItem& source, int fd, std::span<std::byte> into, size_t& filled);
  int take_buffer(uint32_t id);
  void give_back(int index);
  void push_chunk(const Chunk& chunk);
  void close_item(uint32_t id, const Message& message);

  void offer_more_locked();
  void count_closed_locked(Item& item);
  void fail(const std::string& why);
  void finish_locked();
  void wake_all();
  std::span<std::byte> buffer(uint32_t index);

  SenderOptions options_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::thread reader_;
  std::vector<std::byte> memory_;
  uint64_t bytes_total_ = 0;
  std::atomic<uint64_t> bytes_sent_{0};

  std::mutex mutex_;
  std::condition_variable reader_wakes_;
  std::condition_variable finished_changed_;
  std::vector<Item> items_;
  std::deque<uint32_t> accepted_;  // to be read, in order
  std::deque<Chunk> ready_;
  std::vector<uint32_t> free_buffers_;
  std::deque<Message> control_;
  uint32_t next_offer_ = 0;
  uint32_t open_items_ = 0;
  uint32_t closed_items_ = 0;
  bool bye_sent_ = false;
  bool complete_ = false;
  std::string failure_;
  Time begin_{};
  Time end_{};
  std::atomic<bool> finished_{false};
};

}  // namespace metaroce::tool
