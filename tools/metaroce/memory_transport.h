// Two transports joined in memory: for tests of everything above the network.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/rng.h"
#include "transport.h"

namespace metaroce::tool {

/// The network between transports. Streams overtake each other at random, as on many paths.
class MemoryNetwork {
 public:
  explicit MemoryNetwork(uint64_t seed) : rng_(seed) {}

  std::mutex mutex;
  Rng& rng() { return rng_; }

 private:
  Rng rng_;
};

class MemoryTransport : public Transport {
 public:
  explicit MemoryTransport(std::shared_ptr<MemoryNetwork> network) : network_(std::move(network)) {}

  /// Joins two transports with one link; returns its number, the same on both sides.
  static Link join(MemoryTransport& a, MemoryTransport& b) {
    const std::lock_guard lock(a.network_->mutex);
    const Link link = std::max(a.next_link_, b.next_link_);
    a.next_link_ = b.next_link_ = link + 1;
    a.peers_[link] = &b;
    b.peers_[link] = &a;
    Event up;
    up.kind = EventKind::kLinkUp;
    up.link = link;
    up.text = "memory";
    b.deliver(up, kUpQueue);
    return link;
  }

  void send(Link link, uint16_t stream, Bytes message) override {
    const std::lock_guard lock(network_->mutex);
    const auto peer = peers_.find(link);
    if (peer == peers_.end()) return;
    Event event;
    event.kind = EventKind::kMessage;
    event.link = link;
    event.stream = stream;
    event.message = std::move(message);
    peer->second->deliver(std::move(event), stream);
  }

  void write(Link link, uint16_t stream, std::span<const std::byte> from, uint32_t key,
             uint64_t address, uint64_t id) override {
    const std::lock_guard lock(network_->mutex);
    Event done;
    done.kind = EventKind::kWritten;
    done.link = link;
    done.stream = stream;
    done.id = id;
    const auto peer = peers_.find(link);
    if (peer == peers_.end()) {
      done.status = Status::kFlushed;
    } else {
      done.status = peer->second->place(from, key, address);
    }
    deliver(done, stream);
  }

  Expected<SharedMemory, std::string> share(std::span<std::byte> memory) override {
    const std::lock_guard lock(network_->mutex);
    const uint32_t key = next_key_++;
    regions_[key] = memory;
    return SharedMemory{key, uint64_t{0x1000} * key, key};
  }

  void unshare(const SharedMemory& memory) override {
    const std::lock_guard lock(network_->mutex);
    regions_.erase(memory.handle);
  }

  bool next(Event& event) override {
    const std::lock_guard lock(network_->mutex);
    if (queues_.empty()) return false;
    auto queue = queues_.begin();
    if (queue->first != kUpQueue) {
      // The end of a link comes after all its messages; it stands last in the map.
      const size_t others = queues_.size() - queues_.count(kDownQueue);
      if (others != 0) std::advance(queue, static_cast<long>(network_->rng().below(others)));
    }
    event = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
    return true;
  }

  void wait(Duration timeout) override {
    std::unique_lock lock(network_->mutex);
    changed_.wait_for(lock, std::chrono::nanoseconds(timeout.ns),
                      [this] { return woken_ || !queues_.empty(); });
    woken_ = false;
  }

  void wake() override {
    const std::lock_guard lock(network_->mutex);
    woken_ = true;
    changed_.notify_all();
  }

  bool flushed(Link) const override { return true; }

  void close(Link link) override {
    const std::lock_guard lock(network_->mutex);
    down(link, Status::kClosed, "closed");
  }

  /// The link dies as if the network were cut.
  void cut(Link link, const std::string& why) {
    const std::lock_guard lock(network_->mutex);
    down(link, Status::kUnresponsive, why);
  }

 private:
  static constexpr int kUpQueue = -1;
  static constexpr int kDownQueue = 1 << 20;

  void deliver(Event event, int queue) {
    queues_[queue].push_back(std::move(event));
    changed_.notify_all();
  }

  Status place(std::span<const std::byte> from, uint32_t key, uint64_t address) {
    const auto region = regions_.find(key);
    if (region == regions_.end()) return Status::kAccess;
    const uint64_t base = uint64_t{0x1000} * key;
    if (address < base || address - base + from.size() > region->second.size()) {
      return Status::kAccess;
    }
    std::memcpy(region->second.data() + (address - base), from.data(), from.size());
    return Status::kOk;
  }

  void down(Link link, Status status, const std::string& why) {
    const auto found = peers_.find(link);
    if (found == peers_.end()) return;
    MemoryTransport* peer = found->second;
    Event event;
    event.kind = EventKind::kLinkDown;
    event.link = link;
    event.status = status;
    event.text = why;
    peer->peers_.erase(link);
    peers_.erase(link);
    peer->deliver(event, kDownQueue);
    deliver(event, kDownQueue);
  }

  std::shared_ptr<MemoryNetwork> network_;
  std::condition_variable changed_;
  std::map<Link, MemoryTransport*> peers_;
  std::map<uint32_t, std::span<std::byte>> regions_;
  std::map<int, std::deque<Event>> queues_;
  Link next_link_ = 1;
  uint32_t next_key_ = 1;
  bool woken_ = false;
};

}  // namespace metaroce::tool
