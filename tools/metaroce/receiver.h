// The receiving side of file transfers: one thread a transport and one that hashes and writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "session_sink.h"

namespace metaroce::tool {

struct ReceiverOptions {
  Overwrite overwrite = Overwrite::kNever;
  bool once = false;  ///< end after the first session
  uint32_t slot_bytes = 1u << 20;
  uint16_t slots = 32;  ///< a connection; slots x slot_bytes are registered for it
  uint32_t max_sessions = 16;
  std::function<void(const std::string&)> log;  ///< lines for a person; called by any thread
  std::function<Time()> now;
};

class Receiver {
 public:
  /// The transports outlive the receiver.
  Receiver(ReceiverOptions options, TargetFolder folder, std::vector<Transport*> transports);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  void start();
  /// Tells the senders why and ends. Any thread.
  void stop(const std::string& why);
  /// A session ended in `once` mode, or everybody was told after stop().
  bool finished() const { return finished_.load(); }
  /// Waits for finished(), at most `timeout`.
  bool wait_finished(Duration timeout);
  void join();

  uint64_t bytes() const { return bytes_.load(); }
  uint32_t open_sessions();
  /// Sessions that ended since the last call.
  std::vector<SessionResult> take_results();

 private:
  struct Session;
  struct LinkState;
  struct Port;
  struct Job;

  void run_port(size_t index);
  void handle_event(size_t index, Event& event);
  void handle_message(size_t index, LinkState& state, Link link, Event& event);
  void handle_hello(size_t index, LinkState& state, Link link, const Hello& hello);
  void link_down(size_t index, Link link, const std::string& why);
  void refuse(size_t index, Link link, const std::string& why);
  void drain_outbox(size_t index);
  void say_goodbye(size_t index);

  void run_sink();
  void do_job(Job& job);
  std::string do_message(Session& session, Job& job);
  void do_link_down(const std::shared_ptr<Session>& session, const LinkAddress& from,
                    const std::string& why);
  void abort_session(Session& session, const std::string& why);
  void post(const LinkAddress& to, const Message& message);
  void push(Job job);
  void finish();
  void log(const std::string& line) const;

  ReceiverOptions options_;
  TargetFolder folder_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::thread sink_thread_;

  std::mutex mutex_;
  std::condition_variable jobs_ready_;
  std::condition_variable finished_changed_;
  std::deque<Job> jobs_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Session>> sessions_;
  std::vector<SessionResult> results_;
  uint64_t session_count_ = 0;
  std::string stop_text_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> quit_{false};
  std::atomic<bool> finished_{false};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace metaroce::tool
