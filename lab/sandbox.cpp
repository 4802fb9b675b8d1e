#include "lab/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "lab/descriptors.h"

namespace metaroce::lab {

namespace {

std::string reason() { return std::strerror(errno); }

bool write_file(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int why = errno;
  close(fd);
  errno = why;
  return written;
}

std::string become_root(unsigned uid, unsigned gid) {
  if (!write_file("/proc/self/setgroups", "deny") ||
      !write_file("/proc/self/uid_map", fmt::format("0 {} 1", uid)) ||
      !write_file("/proc/self/gid_map", fmt::format("0 {} 1", gid))) {
    return fmt::format("cannot map user {} in a user namespace: {}", uid, reason());
  }
  return "";
}

std::string furnish(const SandboxOptions& options) {
  // What is mounted outside later is seen, and what is unmounted there is not kept busy.
  if (mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
    return fmt::format("cannot make mounts our own: {}", reason());
  }
  if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    return fmt::format("cannot mount /proc: {} (a container that masks parts of /proc does this)",
                       reason());
  }
  if (mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0 ||
      mkdir("/run/netns", 0755) != 0 || mkdir(kPrivateFolder, 0700) != 0) {
    return fmt::format("cannot make a private /run: {}", reason());
  }
  (void)sethostname(options.name.data(), options.name.size());  // for the prompt of a shell
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_flags = IFF_UP;
  const bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  const std::string why = reason();
  if (fd >= 0) close(fd);
  return up ? "" : fmt::format("cannot set the loopback up: {}", why);
}

std::string no_namespaces(bool user) {
  const int why = errno;
  std::string text = fmt::format("no namespaces here: {}", std::strerror(why));
  if (user && (why == EPERM || why == ENOSPC || why == EUSERS)) {
    text +=
        " (an ordinary user needs user namespaces: look at sysctl user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns; or run "
        "it as root)";
  } else if (why == EPERM) {
    text += " (a container needs the capability SYS_ADMIN for it)";
  }
  return text;
}

/// The other side's words until it closes the pipe.
std::string read_all(int fd) {
  std::string text;
  std::array<char, 512> buffer;
  for (;;) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
}

constexpr char kReady = '+', kWrong = '-';
constexpr int kCannotRun = 126, kNotFound = 127;  // as a shell has them

bool tell(int fd, char kind, const std::string& text) {
  const std::string all = kind + text;
  return write(fd, all.data(), all.size()) == static_cast<ssize_t>(all.size());
}

}  // namespace

Expected<Sandbox, std::string> start_sandbox(const SandboxOptions& options,
                                             const std::function<int(SandboxInside&)>& body) {
  int life[2], news[2];
  if (pipe2(life, O_CLOEXEC) != 0 || pipe2(news, O_CLOEXEC) != 0) return unexpected(reason());
  const unsigned uid = geteuid(), gid = getegid();
  unsigned long flags =
      CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | SIGCHLD;
  if (options.user) flags |= CLONE_NEWUSER;
  // Not fork() and unshare(): a new pid namespace begins with the next child, and a process between
  // would have to stay.
  const long pid = syscall(SYS_clone, flags, nullptr, nullptr, nullptr, 0);
  if (pid < 0) {
    const std::string why = no_namespaces(options.user);
    for (const int fd : {life[0], life[1], news[0], news[1]}) close(fd);
    return unexpected(why);
  }
  if (pid == 0) {
    close_all_but({life[0], news[1], options.keep});
    signal(SIGPIPE, SIG_IGN);
    setsid();
    std::string error = options.user ? become_root(uid, gid) : "";
    if (error.empty()) error = furnish(options);
    if (!error.empty()) {
      (void)tell(news[1], kWrong, error);
      _exit(1);
    }
    SandboxInside inside;
    inside.lifeline = life[0];
    inside.ready = [fd = news[1]](const std::string& what) {
      const bool told = tell(fd, what.empty() ? kReady : kWrong, what);
      close(fd);
      return told;
    };
    _exit(body(inside));
  }
  close(life[0]);
  close(news[1]);
  const std::string answer = read_all(news[0]);
  close(news[0]);
  if (!answer.empty() && answer[0] == kReady) return Sandbox{static_cast<int>(pid), life[1]};
  close(life[1]);
  int status = 0;
  while (waitpid(static_cast<pid_t>(pid), &status, 0) < 0 && errno == EINTR) {
  }
  if (!answer.empty()) return unexpected(answer.substr(1));
  return unexpected(fmt::format("the lab ended while it was built ({} {})",
                                WIFSIGNALED(status) ? "signal" : "exit code",
                                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
}

namespace {

bool same_namespace(int fd, const char* own) {
  struct stat a {
  }, b{};
  return fstat(fd, &a) == 0 && stat(own, &b) == 0 && a.st_ino == b.st_ino;
}

/// Of the user namespace first: the others need its powers.
std::string enter_namespaces(int pid) {
  struct Kind {
    const char* name;
    int flag;
    int fd;
  };
  std::array<Kind, 6> kinds{{{"user", CLONE_NEWUSER, -1},
                             {"ipc", CLONE_NEWIPC, -1},
                             {"uts", CLONE_NEWUTS, -1},
                             {"net", CLONE_NEWNET, -1},
                             {"pid", CLONE_NEWPID, -1},
                             {"mnt", CLONE_NEWNS, -1}}};
  for (Kind& k : kinds) {
    k.fd = open(fmt::format("/proc/{}/ns/{}", pid, k.name).c_str(), O_RDONLY | O_CLOEXEC);
    if (k.fd < 0) return fmt::format("cannot look at process {} of the lab: {}", pid, reason());
  }
  for (const Kind& k : kinds) {
    const bool here = same_namespace(k.fd, fmt::format("/proc/self/ns/{}", k.name).c_str());
    if (!here && setns(k.fd, k.flag) != 0) {
      return fmt::format("cannot enter the lab's {} namespace: {}", k.name, reason());
    }
    close(k.fd);
  }
  return "";
}

std::string enter_node(const std::string& node) {
  const int fd = open(("/run/netns/" + node).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fmt::format("there is no '{}' in this lab: {}", node, reason());
  const bool entered = setns(fd, CLONE_NEWNET) == 0;
  const std::string why = reason();
  close(fd);
  if (!entered) return fmt::format("cannot enter {}: {}", node, why);
  // /sys shows the network namespace that it was mounted in.
  if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0) {
    (void)umount2("/sys", MNT_DETACH);
    (void)mount("sysfs", "/sys", "sysfs", 0, nullptr);
  }
  return "";
}

constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
volatile pid_t g_child = -1;

void pass_on(int signal, siginfo_t* info, void*) {
  // From a process; a terminal tells the whole group.
  if (info->si_code <= 0 && g_child > 0) (void)kill(g_child, signal);
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int call_inside(int pid, const std::string& node, const std::function<int()>& work) {
  std::array<char, PATH_MAX> folder{};
  const bool has_folder = getcwd(folder.data(), folder.size()) != nullptr;
  std::string error = pid == 0 ? "" : enter_namespaces(pid);
  if (error.empty() && !node.empty()) error = enter_node(node);
  if (!error.empty()) {
    std::fprintf(stderr, "metaroce lab: %s\n", error.c_str());
    return kCannotRun;
  }
  // A new mount namespace begins at its root. A command that writes somewhere else than it was told
  // to is worse than none.
  if (!has_folder || chdir(folder.data()) != 0) {
    std::fprintf(stderr, "metaroce lab: the folder %s is not there in the lab\n", folder.data());
    return kCannotRun;
  }
  // What signals mean only the child decides: those of the terminal it has got itself.
  struct sigaction pass {
  }, before[std::size(kPassedOn)]{};
  pass.sa_sigaction = pass_on;
  pass.sa_flags = SA_SIGINFO | SA_RESTART;
  sigset_t blocked, unblocked;
  sigemptyset(&blocked);
  for (const int s : kPassedOn) sigaddset(&blocked, s);
  sigprocmask(SIG_BLOCK, &blocked, &unblocked);
  for (size_t i = 0; i < std::size(kPassedOn); ++i) sigaction(kPassedOn[i], &pass, &before[i]);
  const bool foreground = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
  const pid_t child = fork();  // only children are in the pid namespace
  if (child == 0) {
    for (size_t i = 0; i < std::size(kPassedOn); ++i) sigaction(kPassedOn[i], &before[i], nullptr);
    sigprocmask(SIG_SETMASK, &unblocked, nullptr);
    // Whoever kills us means the child: it would go on unseen.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int code = work();
    std::fflush(nullptr);
    _exit(code);
  }
  g_child = child;
  sigprocmask(SIG_SETMASK, &unblocked, nullptr);
  if (child < 0) {
    std::fprintf(stderr, "metaroce lab: cannot start a process: %s\n", reason().c_str());
    return kCannotRun;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (foreground) {
    // A shell has made itself the one the terminal speaks to.
    signal(SIGTTOU, SIG_IGN);
    (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    signal(SIGTTOU, SIG_DFL);
  }
  for (size_t i = 0; i < std::size(kPassedOn); ++i) sigaction(kPassedOn[i], &before[i], nullptr);
  return exit_code(status);
}

int run_inside(int pid, const std::string& node, const std::vector<std::string>& command,
               const std::vector<std::pair<std::string, std::string>>& environment) {
  return call_inside(pid, node, [&] {
    for (const auto& [key, value] : environment) setenv(key.c_str(), value.c_str(), 1);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const int why = errno;
    std::fprintf(stderr, "metaroce lab: cannot run %s: %s\n", arguments[0], std::strerror(why));
    return why == ENOENT ? kNotFound : kCannotRun;
  });
}

}  // namespace metaroce::lab
