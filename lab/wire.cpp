#include "lab/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>
#include <type_traits>
#include <utility>

#include "driver/common/clock.h"
#include "driver/common/descriptor.h"
#include "lab/descriptors.h"
#include "lab/wire_link.h"

namespace metaroce::lab {

namespace {

constexpr uint32_t kBatch = 64;
constexpr int kReceiveBuffer = 8 << 20;
constexpr int kSendBuffer = 2 << 20;
constexpr int kSendTries = 4;
constexpr Duration kBetweenTries = microseconds(100);

/// An object as words that two processes can share.
template <class T>
class Words {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  void store(const T& value) {
    std::array<uint64_t, kCount> plain{};
    std::memcpy(plain.data(), &value, sizeof value);
    for (size_t i = 0; i < kCount; ++i) words_[i].store(plain[i], std::memory_order_relaxed);
  }
  T load() const {
    std::array<uint64_t, kCount> plain{};
    for (size_t i = 0; i < kCount; ++i) plain[i] = words_[i].load(std::memory_order_relaxed);
    T value;
    std::memcpy(static_cast<void*>(&value), plain.data(), sizeof value);
    return value;
  }

 private:
  static constexpr size_t kCount = (sizeof(T) + 7) / 8;
  std::array<std::atomic<uint64_t>, kCount> words_{};
};

/// One direction, in the memory that the calling and the carrying process share.
struct Shared {
  alignas(64) std::atomic<uint32_t> version{0};  ///< of the rules; odd while they are written
  Words<LinkRules> rules;
  alignas(64) Words<LinkCounts> counts;
};

struct Page {
  Shared directions[2];  ///< from a, from b
};

using driver::Descriptor;

timespec timespec_of(Duration d) {
  timespec t{};
  t.tv_sec = static_cast<time_t>(d.ns / 1'000'000'000);
  t.tv_nsec = static_cast<long>(d.ns % 1'000'000'000);
  return t;
}

// By number: their header is no C++ in the C library of Debian 12.
int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
void send_signal(int pidfd, int signal) {
  (void)syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0);
}

std::string system_error() { return std::strerror(errno); }

/// A packet socket at this interface of the namespace this thread is in.
Expected<Descriptor, std::string> open_port(const std::string& name, uint32_t mtu) {
  const unsigned index = if_nametoindex(name.c_str());
  if (index == 0) {
    return unexpected(
        fmt::format("no interface '{}' in the wire's namespace: {}", name, system_error()));
  }
  // Without a protocol nothing comes in before it is bound to its interface.
  Descriptor port(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (port.get() < 0) {
    return unexpected(fmt::format("{}: no packet socket: {}", name, system_error()));
  }
  ifreq request{};
  std::copy_n(name.data(), std::min<size_t>(name.size(), IFNAMSIZ - 1), request.ifr_name);
  if (ioctl(port.get(), SIOCGIFMTU, &request) != 0) {
    return unexpected(fmt::format("{}: its MTU: {}", name, system_error()));
  }
  if (static_cast<uint32_t>(request.ifr_mtu) < mtu) {
    return unexpected(
        fmt::format("{}: its MTU is {}, the cable carries {}", name, request.ifr_mtu, mtu));
  }
  const auto set = [&port](int level, int option, const auto& value) {
    return setsockopt(port.get(), level, option, &value, sizeof value) == 0;
  };
  const int on = 1;
  packet_mreq promiscuous{};  // the packets are for the interface at the other end of the cable
  promiscuous.mr_ifindex = static_cast<int>(index);
  promiscuous.mr_type = PACKET_MR_PROMISC;
  // Past the queue of the interface, which takes packets only some time after it has come up.
  if (!set(SOL_PACKET, PACKET_VNET_HDR, on) || !set(SOL_PACKET, PACKET_IGNORE_OUTGOING, on) ||
      !set(SOL_PACKET, PACKET_QDISC_BYPASS, on) ||
      !set(SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous)) {
    return unexpected(fmt::format("{}: options of its packet socket: {}", name, system_error()));
  }
  // Beyond the limit of the machine only for root.
  if (!set(SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBuffer)) set(SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
  if (!set(SOL_SOCKET, SO_SNDBUFFORCE, kSendBuffer)) set(SOL_SOCKET, SO_SNDBUF, kSendBuffer);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  if (bind(port.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return unexpected(fmt::format("{}: cannot listen there: {}", name, system_error()));
  }
  return port;
}

/// The carrying process.
class Carrier {
 public:
  Carrier(Page& page, uint64_t seed)
      : page_(page),
        links_{WireLink(Rng(seed).fork("wire", 0).next()),
               WireLink(Rng(seed).fork("wire", 1).next())},
        buffers_(size_t{kBatch} * kBuffer) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      into_[i][0] = {&headers_[i], sizeof headers_[i]};
      into_[i][1] = {&buffers_[size_t{i} * kBuffer], kBuffer};
      incoming_[i].msg_hdr.msg_iov = into_[i];
      incoming_[i].msg_hdr.msg_iovlen = 2;
      outgoing_[i].msg_hdr.msg_iov = from_[i];
      outgoing_[i].msg_hdr.msg_iovlen = 2;
    }
  }

  Expected<bool, std::string> open(int netns, const std::string& a, const std::string& b,
                                   uint32_t mtu) {
    if (setns(netns, CLONE_NEWNET) != 0) {
      return unexpected(fmt::format("cannot enter the wire's namespace: {}", system_error()));
    }
    for (const auto& [port, name] : {std::pair(&ports_[0], &a), std::pair(&ports_[1], &b)}) {
      auto opened = open_port(*name, mtu);
      if (!opened) return unexpected(opened.error());
      *port = std::move(*opened);
    }
    return true;
  }

  /// Until the process behind the pidfd `owner` ends.
  void run(int owner) {
    pollfd wait[3] = {
        {ports_[0].get(), POLLIN, 0}, {ports_[1].get(), POLLIN, 0}, {owner, POLLIN, 0}};
    while (wait[2].revents == 0) {
      const Time next = earlier(links_[0].next_departure(), links_[1].next_departure());
      const Time now = driver::now();
      const timespec left = timespec_of(next > now && next != kNever ? next - now : Duration{});
      if (ppoll(wait, 3, next == kNever ? nullptr : &left, nullptr) < 0) continue;
      for (uint32_t d = 0; d < 2; ++d) {
        if (wait[d].revents != 0) receive(d);
      }
      for (uint32_t d = 0; d < 2; ++d) send(d);
    }
  }

 private:
  /// One byte more than the link carries, so that it sees when a packet did not fit.
  static constexpr size_t kBuffer = WireLink::kMostPacket + 1;

  /// False while they are just being written: then set() has not returned, and the old ones hold.
  void take_rules(uint32_t d) {
    Shared& shared = page_.directions[d];
    const uint32_t before = shared.version.load(std::memory_order_acquire);
    if (before == versions_[d] || before % 2 != 0) return;
    const LinkRules rules = shared.rules.load();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (shared.version.load(std::memory_order_relaxed) != before) return;
    versions_[d] = before;
    links_[d].set(rules);
  }

  void receive(uint32_t d) {
    const int port = ports_[d].get();
    const int n = recvmmsg(port, incoming_, kBatch, MSG_DONTWAIT, nullptr);
    if (n <= 0) return;  // an interface that is down says so once
    // Read behind the packets: none of them is to leave before its delay is over.
    const Time now = driver::now();
    take_rules(d);
    for (int i = 0; i < n; ++i) {
      const size_t bytes = incoming_[i].msg_len - sizeof headers_[i];
      links_[d].offer(now,
                      std::as_bytes(std::span(static_cast<char*>(into_[i][1].iov_base), bytes)),
                      headers_[i]);
    }
    // Without root's buffers there is room for less than a batch: whatever came may be what was
    // left.
    tpacket_stats stats{};
    socklen_t size = sizeof stats;
    if (getsockopt(port, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0) {
      links_[d].overrun(stats.tp_drops);
    }
    // Before they are sent: who gets a packet finds it counted.
    page_.directions[d].counts.store(links_[d].counts());
  }

  void send(uint32_t d) {
    WireLink& link = links_[d];
    while (link.next_departure() != kNever) {
      const Time now = driver::now();
      uint32_t n = 0;
      for (; n < kBatch; ++n) {
        auto packet = link.take(now);
        if (!packet) break;
        packets_[n] = std::move(*packet);
        from_[n][0] = {&packets_[n].vnet, sizeof packets_[n].vnet};
        from_[n][1] = {packets_[n].bytes.data(), packets_[n].bytes.size()};
      }
      if (n == 0) return;
      send_batch(d, n);
    }
  }

  void send_batch(uint32_t d, uint32_t n) {
    const pollfd room{ports_[1 - d].get(), POLLOUT, 0};
    int tries = 0;
    bool refused = false;
    for (uint32_t done = 0; done < n;) {
      const int sent = sendmmsg(room.fd, outgoing_ + done, n - done, MSG_DONTWAIT);
      if (sent > 0) {
        done += static_cast<uint32_t>(sent);
        tries = 0;
        continue;
      }
      if (errno == EINTR) continue;
      if ((errno == EAGAIN || errno == ENOBUFS) && tries++ < kSendTries) {
        // ENOBUFS comes from the queue behind the socket, whose room nobody announces.
        const timespec pause = timespec_of(kBetweenTries);
        pollfd asked = room;
        ppoll(&asked, errno == EAGAIN ? 1 : 0, &pause, nullptr);
        continue;
      }
      // The tries are used up for the rest of the batch as well: the cable does not stand still.
      links_[d].refused(packets_[done++]);
      refused = true;
    }
    if (refused) page_.directions[d].counts.store(links_[d].counts());
  }

  Page& page_;
  Descriptor ports_[2];
  WireLink links_[2];
  uint32_t versions_[2] = {0, 0};

  std::vector<char> buffers_;
  VnetHeader headers_[kBatch];
  iovec into_[kBatch][2] = {};
  mmsghdr incoming_[kBatch] = {};
  WirePacket packets_[kBatch];
  iovec from_[kBatch][2] = {};
  mmsghdr outgoing_[kBatch] = {};
};

/// Closes what the calling process had open, but for errors and these.
void keep_only(std::array<int, 3> kept) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 2 && null >= 0; ++fd) {
    if (std::find(kept.begin(), kept.end(), fd) == kept.end()) dup2(null, fd);
  }
  close_all_but(kept);
}

struct Job {
  int netns, owner, report;
  const std::string &a, &b;
  uint32_t mtu;
  uint64_t seed;
};

[[noreturn]] void carry(const Job& job, Page& page) {
  // Ctrl-C goes to all processes of a terminal; when the owner has a use for it, the cable stays.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_NAME, "metaroce-wire");
  prctl(PR_SET_TIMERSLACK, 1);
  keep_only({job.netns, job.owner, job.report});
  // On the heap: it is too large for a stack of unknown size.
  const auto carrier = std::make_unique<Carrier>(page, job.seed);
  const auto opened = carrier->open(job.netns, job.a, job.b, job.mtu);
  close(job.netns);
  const std::string answer = opened ? "+" : opened.error();
  // One write of less than PIPE_BUF is read as a whole.
  const bool told = write(job.report, answer.data(), answer.size()) > 0;
  close(job.report);
  if (opened && told) carrier->run(job.owner);
  _exit(0);
}

}  // namespace

struct Wire::State {
  Page* page = nullptr;
  int pid = -1;
  Descriptor process;  // a pidfd: should somebody else reap the child, its number can be another's

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (process.get() >= 0) {
      send_signal(process.get(), SIGKILL);
      siginfo_t info;
      while (waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process.get()), &info,
                    WEXITED) < 0 &&
             errno == EINTR) {
      }
    }
    if (page != nullptr) munmap(page, sizeof *page);
  }
};

Wire::~Wire() = default;

Expected<std::unique_ptr<Wire>, std::string> Wire::start(int netns, const std::string& a,
                                                         const std::string& b, uint32_t mtu,
                                                         uint64_t seed) {
  const auto failed = [&](const std::string& why) {
    return unexpected(fmt::format("cable between {} and {}: {}", a, b, why));
  };
  auto state = std::make_unique<State>();
  void* memory =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return failed(system_error());
  state->page = new (memory) Page;
  // Not PR_SET_PDEATHSIG: that one strikes when the calling thread ends, not the process.
  const Descriptor owner(open_pidfd(getpid()));
  if (owner.get() < 0) return failed(fmt::format("no pidfd: {}", system_error()));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed(system_error());
  const Descriptor answers(ends[0]);
  Descriptor report(ends[1]);
  const pid_t child = fork();
  if (child < 0) return failed(fmt::format("no process: {}", system_error()));
  if (child == 0) {
    carry({netns, owner.get(), report.get(), a, b, mtu, seed}, *state->page);
  }
  report = Descriptor();
  state->pid = child;
  state->process = Descriptor(open_pidfd(child));
  char answer[4096];
  ssize_t n = 0;
  do n = read(answers.get(), answer, sizeof answer);
  while (n < 0 && errno == EINTR);
  if (n <= 0) return failed("its process ended at once");
  if (answer[0] != '+') return failed(std::string(answer, static_cast<size_t>(n)));
  std::unique_ptr<Wire> wire(new Wire);
  wire->state_ = std::move(state);
  return wire;
}

void Wire::set(bool from_a, const LinkRules& rules) {
  Shared& shared = state_->page->directions[from_a ? 0 : 1];
  const uint32_t version = shared.version.load(std::memory_order_relaxed);
  shared.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  shared.rules.store(rules);
  shared.version.store(version + 2, std::memory_order_release);
}

LinkCounts Wire::counts(bool from_a) const {
  return state_->page->directions[from_a ? 0 : 1].counts.load();
}

int Wire::pid() const { return state_->pid; }

}  // namespace metaroce::lab
