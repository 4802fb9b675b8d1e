// A process in namespaces of its own (mount, network, pid, host name; user as well when it is not
// root): what it makes is seen by nobody else and goes with it, however it ends.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/expected.h"

namespace metaroce::lab {

/// Of a sandbox alone; for files that are to go with it.
inline constexpr const char* kPrivateFolder = "/run/metaroce";

struct SandboxOptions {
  std::string name;   ///< host name inside
  int keep = -1;      ///< a descriptor that stays open inside; others above 2 do not
  bool user = false;  ///< with a user namespace, in which the caller's user is root
};

/// What the sandboxed process is given.
struct SandboxInside {
  int lifeline = -1;  ///< readable (end of file) when whoever started it has gone; see below
  /// Tells the starter that everything is there ("") or what is wrong; once. False: it has gone.
  std::function<bool(const std::string& error)> ready;
};

struct Sandbox {
  int pid = -1;       ///< as seen from outside; inside it is 1
  int lifeline = -1;  ///< closing it, or ending, tells the sandbox that we have gone
};

/// Starts `body` as the first process of new namespaces: its return value is the exit code, and
/// when it ends all processes in them are killed. Returns after ready() was called; the error is
/// its text, or why there can be no namespaces here and what would help. The caller must be
/// single-threaded. A private /proc, /run and /run/netns are there, the loopback is up.
Expected<Sandbox, std::string> start_sandbox(const SandboxOptions& options,
                                             const std::function<int(SandboxInside&)>& body);

/// Enters the namespaces of a sandbox whose first process is `pid` (0: this process is inside
/// already), and the network namespace of one of its nodes ("": that of the sandbox), and calls
/// `work` in a child there; returns its exit code, or 128 + signal. This process stays there.
/// Programs see the interfaces of the node under /sys/class/net, as under `ip netns exec`.
int call_inside(int pid, const std::string& node, const std::function<int()>& work);
/// The same with a command; 126 and 127 as in a shell: it cannot be run, it is not there.
int run_inside(int pid, const std::string& node, const std::vector<std::string>& command,
               const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace metaroce::lab
