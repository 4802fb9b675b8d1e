#include "lab/control.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

namespace metaroce::lab {

namespace {

using nlohmann::json;

constexpr const char* kInside = "/run/metaroce-lab";
constexpr size_t kLongestRequest = 64 * 1024;
constexpr int kPatienceSeconds = 5;  // with who connects and says nothing

std::string reason() { return std::strerror(errno); }

/// "@metaroce-lab/UID/NAME" as /proc/net/unix shows it; the first byte of the real one is 0.
std::string abstract_name(unsigned uid, const std::string& name) {
  return fmt::format("@metaroce-lab/{}/{}", uid, name);
}

socklen_t fill(sockaddr_un& address, const std::string& name) {
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof address.sun_path - 1);
  if (name[0] == '@') address.sun_path[0] = '\0';
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() +
                                (name[0] == '@' ? 0 : 1));
}

Expected<int, std::string> bound(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    const int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return unexpected(reason());
  }
  return fd;
}

ucred peer_of(int fd) {
  ucred peer{};
  peer.pid = -1;
  peer.uid = UINT32_MAX;
  socklen_t size = sizeof peer;
  (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

/// Abstract names are free for all: whoever has ours and is another user must not tell us which
/// process to enter, or to end.
Expected<int, std::string> connected(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    const int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return unexpected(reason());
  }
  const ucred peer = peer_of(fd);
  if (name[0] != '@' || peer.uid == geteuid()) return fd;
  close(fd);
  errno = EPERM;
  return unexpected(fmt::format("user {} has taken this name", peer.uid));
}

void set_patience(int fd, int seconds) {
  const timeval limit{seconds, 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/// Until the other side has said all; false if it took too long or was too long.
bool read_all(int fd, std::string& text, size_t most) {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) return true;
    text.append(buffer.data(), static_cast<size_t>(n));
    if (text.size() > most) return false;
  }
}

bool write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

template <class T>
json outcome(const Expected<T, std::string>& done) {
  if (!done) return {{"error", done.error()}};
  return {{"done", *done}};
}

json answer(Lab& lab, const json& request) {
  const std::string what = request.value("do", "");
  const std::string target = request.value("target", "");
  if (what == "info") return lab.info();
  if (what == "link") return outcome(lab.set_rules(target, request.value("rules", "")));
  if (what == "fail") {
    const std::string how = request.value("how", "down");
    return outcome(lab.fail(target, how == "one-way"  ? Failure::kOneWay
                                    : how == "silent" ? Failure::kSilent
                                                      : Failure::kDown));
  }
  if (what == "heal") return outcome(lab.heal(target));
  if (what == "counters") return outcome(lab.counters(target));
  if (what == "show") {
    const bool svg = request.value("svg", false);
    return {{"done", svg ? draw_svg(lab.plan()) : draw_text(lab.plan())}};
  }
  return {{"error", fmt::format("this lab does not know the request '{}'", what)}};
}

/// False: the lab is to end.
bool serve_one(Lab& lab, int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE) ::usleep(10'000);  // not in circles
    return true;
  }
  set_patience(fd, kPatienceSeconds);
  bool go_on = true;
  // In a user namespace its owner is 0, as we are; the true root has no number there.
  if (peer_of(fd).uid == geteuid()) {
    std::string text;
    json out = {{"error", "a request that makes no sense"}};
    if (read_all(fd, text, kLongestRequest)) {
      const json request = json::parse(text, nullptr, false);
      if (request.is_object()) {
        try {
          go_on = request.value("do", "") != "end";
          out = go_on ? answer(lab, request) : json{{"done", true}};
        } catch (const json::exception& wrong) {
          out = {{"error", wrong.what()}};
        }
      }
      (void)write_all(fd, out.dump());
    }
  }
  close(fd);
  return go_on;
}

/// Those that lost their parent are ours to bury, and wires are missed.
void bury(Lab& lab) {
  for (pid_t pid; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) lab.on_child_end(pid);
}

}  // namespace

Expected<int, std::string> claim_name(const std::string& name) {
  if (!is_lab_name(name)) {
    return unexpected(fmt::format("'{}' is no name for a lab ({})", name, kLabNames));
  }
  const auto fd = bound(abstract_name(geteuid(), name));
  if (fd) return fd;
  if (errno != EADDRINUSE) return unexpected(fmt::format("no socket: {}", fd.error()));
  return unexpected(fmt::format(
      "a lab of the name '{}' is up; give another with --name, or take it down with `metaroce lab "
      "down --name {}`",
      name, name));
}

int serve_lab(Lab& lab, int outside, int lifeline,
              const std::function<bool(const std::string& error)>& ready) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, s);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  const auto inside = bound(kInside);
  if (inside) chmod(kInside, 0600);
  if (signal_fd < 0 || !inside || listen(*inside, 64) != 0 ||
      (outside >= 0 && listen(outside, 64) != 0)) {
    ready(fmt::format("no socket for commands: {}", reason()));
    return 1;
  }
  if (!ready("")) return 1;  // who wanted it has gone
  std::array<pollfd, 4> waits{
      {{signal_fd, POLLIN, 0}, {*inside, POLLIN, 0}, {outside, POLLIN, 0}, {lifeline, POLLIN, 0}}};
  for (;;) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return 1;
    if (waits[3].revents != 0) return 0;
    if ((waits[0].revents & POLLIN) != 0) {
      signalfd_siginfo info{};
      (void)!read(signal_fd, &info, sizeof info);
      if (info.ssi_signo != SIGCHLD) return 0;
      bury(lab);
    }
    for (const size_t i : {size_t{1}, size_t{2}}) {
      if ((waits[i].revents & POLLIN) != 0 && !serve_one(lab, waits[i].fd)) return 0;
    }
  }
}

namespace {

/// Of this user, whether or not somebody listens.
std::set<std::string> bound_labs() {
  std::set<std::string> out;
  std::ifstream sockets("/proc/net/unix");
  const std::string own = " " + abstract_name(geteuid(), "");
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find(own);
    if (at != std::string::npos) out.insert(line.substr(at + own.size()));
  }
  return out;
}

}  // namespace

std::vector<LabAddress> list_labs() {
  std::vector<LabAddress> out;
  for (const std::string& name : bound_labs()) {
    const auto fd = connected(abstract_name(geteuid(), name));
    if (!fd) continue;  // it has just ended, or is of somebody else
    out.push_back({name, peer_of(*fd).pid});
    close(*fd);
  }
  return out;
}

Expected<LabAddress, std::string> find_lab(const std::string& name) {
  const char* own = std::getenv("METAROCE_LAB");
  const bool inside = access(kInside, F_OK) == 0;
  if (inside && (name.empty() || (own != nullptr && name == own))) return LabAddress{};
  if (!name.empty()) {
    const auto fd = connected(abstract_name(geteuid(), name));
    if (fd) {
      const LabAddress lab{name, peer_of(*fd).pid};
      close(*fd);
      return lab;
    }
    if (errno == EPERM) return unexpected(fmt::format("lab '{}': {}", name, fd.error()));
    if (bound_labs().contains(name)) {
      return unexpected(fmt::format("lab '{}' does not listen: it is being built, or ends", name));
    }
  }
  const auto labs = list_labs();
  if (name.empty() && labs.size() == 1) return labs.front();
  std::string names;
  for (const LabAddress& lab : labs) names += (names.empty() ? "" : ", ") + lab.name;
  if (labs.empty()) {
    return unexpected(std::string("no lab is up; `metaroce lab up TOPOLOGY.toml` makes one"));
  }
  if (name.empty()) return unexpected("which lab? --name says it; up are " + names);
  return unexpected(fmt::format("no lab of the name '{}' is up; there are {}", name, names));
}

Expected<json, std::string> ask_lab(const LabAddress& lab, const json& request,
                                    int patience_seconds) {
  const auto fd =
      connected(lab.pid == 0 ? std::string(kInside) : abstract_name(geteuid(), lab.name));
  if (!fd) return unexpected("the lab does not answer: " + fd.error());
  set_patience(*fd, patience_seconds);
  std::string text;
  const bool asked = write_all(*fd, request.dump()) && shutdown(*fd, SHUT_WR) == 0 &&
                     read_all(*fd, text, SIZE_MAX);
  const std::string why = reason();
  close(*fd);
  if (!asked) return unexpected("the lab does not answer: " + why);
  json out = json::parse(text, nullptr, false);
  if (!out.is_object()) return unexpected(std::string("the lab ended before it answered"));
  if (out.contains("error")) return unexpected(out["error"].get<std::string>());
  return out;
}

}  // namespace metaroce::lab
