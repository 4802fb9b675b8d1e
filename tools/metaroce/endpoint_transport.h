// The file transfer's transport over api::Endpoint.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "api/endpoint.h"
#include "transport.h"

namespace metaroce::tool {

/// One point of the time series: CLOCK_MONOTONIC, payload bytes so far, packets the fault injectors
/// took so far.
struct Sample {
  Time when{};
  uint64_t bytes = 0;
  uint64_t lost = 0;
};

/// The last figures of a link, kept after its end.
struct LinkFigures {
  api::ConnectionStatus connection;
  std::vector<api::PathStatus> paths;
};

class EndpointTransport : public Transport {
 public:
  enum class Role { kSender, kReceiver };
  EndpointTransport(std::unique_ptr<api::Endpoint> endpoint, Role role, Duration death_timeout);
  ~EndpointTransport() override;

  /// Connects and makes the link ready.
  Expected<Link, api::Error> connect(std::span<const SocketAddress> peer, Duration timeout);
  /// Keeps a sample every `interval` from now on.
  void record(Duration interval);

  void send(Link link, uint16_t stream, Bytes message) override;
  void write(Link link, uint16_t stream, std::span<const std::byte> from, uint32_t key,
             uint64_t address, uint64_t id) override;
  Expected<SharedMemory, std::string> share(std::span<std::byte> memory) override;
  void unshare(const SharedMemory& memory) override;
  bool next(Event& event) override;
  void wait(Duration timeout) override;
  void wake() override { endpoint_->wake(); }
  bool flushed(Link link) const override;
  void close(Link link) override;
  void note_end(Link link) override;

  api::Endpoint& endpoint() { return *endpoint_; }
  const std::vector<Sample>& samples() const { return samples_; }
  /// Of the last link that carried something; valid once its thread is done.
  const LinkFigures& figures() const { return figures_; }

 private:
  struct Request {
    bool used = false;
    bool is_write = false;
    uint64_t user_id = 0;
    Bytes message;
  };
  struct Receive {
    Link link = 0;
    uint16_t stream = 0;
    std::byte* buffer = nullptr;
    uint32_t length = 0;
  };
  struct LinkState {
    uint32_t unfinished = 0;
    std::vector<std::byte> memory;
    bool closing = false;
  };

  uint64_t new_request(Request request);
  void post(const api::WorkRequest& work);
  void drain_backlog();
  void open_link(Link link);
  void post_receive(uint64_t id);
  void take_completion(const api::Completion& completion);
  void take_connection_event(const api::ConnectionEvent& event);
  void sample_now(Time now);

  std::unique_ptr<api::Endpoint> endpoint_;
  Role role_;
  Duration death_timeout_;
  std::map<Link, LinkState> links_;
  std::vector<Request> requests_;
  std::vector<uint64_t> free_requests_;
  std::vector<Receive> receives_;
  std::deque<api::WorkRequest> backlog_;
  std::deque<uint64_t> receive_backlog_;
  std::deque<Event> events_;
  Duration interval_{};
  Time next_sample_ = kNever;
  std::vector<Sample> samples_;
  LinkFigures figures_;
};

}  // namespace metaroce::tool
