#include "lab_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "cli_common.h"
#include "lab/capture.h"
#include "lab/control.h"
#include "lab/lab.h"
#include "lab/sandbox.h"
#include "lab/topology.h"

namespace metaroce::tool {

using lab::LabAddress;
using nlohmann::json;

struct LabOptions {
  std::string topology;
  std::string name;
  std::string node;
  std::string target;
  std::string file = "-";
  std::string svg;
  std::vector<std::string> rules;
  std::vector<std::string> command;  ///< behind "--"
  uint32_t snap = 0;
  uint64_t packets = 0;
  bool rootless = false;
  bool one_way = false;
  bool silent = false;
  bool json = false;
};

namespace {

constexpr const char* kExamples = R"(
Examples:
  metaroce lab run examples/lab/two-planes.toml -- metaroce lab exec h0 ping -c 3 10.0.1.1
  metaroce lab up examples/lab/two-planes.toml
  metaroce lab link p0s1:p0l1 loss=1% corrupt=0.01%      this direction
  metaroce lab link 'p0s*=p0l*' rate=100mbit mark=30k    all of them, both directions
  metaroce lab fail p0s1; metaroce lab fail plane1 --one-way; metaroce lab heal '*'
  metaroce lab exec h1 metaroce recv --listen 10.0.1.1 --listen 10.1.1.1
  metaroce lab counters --json; metaroce lab pcap p0l0:p0s1 -o s1.pcap; metaroce lab down

NAMES: hosts h0, h1, ...; leaves p0l0, ...; spines p0s0, ... of plane 0; FROM:TO is one direction
of a link, A=B both; a node means all its links, plane0 all of a plane; * stands for anything.
RULES: loss=1% ge=BEGIN/END corrupt=1% dup=1% reorder=1%:500us delay=1ms jitter=100us
rate=100mbit queue=BYTES mark=BYTES dark=on bleach=on trim=on flap=100ms, or none.
Without root everything is carried by a process for each link with rules (slower); as root that
is so for delay, jitter and reorder, the rest is BPF and a token bucket.)";

constexpr int kPatienceOfDown = 5;  // seconds
constexpr int kPatienceOfEnd = 120;
constexpr int kPatienceOfList = 2;

int wrong(const std::string& text) {
  say("metaroce lab: " + text);
  return kExitFailed;
}

lab::Topology topology_or_throw(const std::string& file) {
  auto topology = lab::read_topology(file);
  if (!topology) throw UsageError{topology.error()};
  return *topology;
}

/// In a user namespace, where BPF cannot be.
bool sandboxed_without_bpf(const LabOptions& options) { return options.rootless || geteuid() != 0; }

/// A large fabric has more namespaces than the usual limit allows.
void raise_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

bool leave_terminal() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  bool done = null >= 0;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    done = done && dup2(null, fd) >= 0;
  }
  if (null > STDERR_FILENO) close(null);
  return done;
}

/// The first process of a lab.
int hold(const lab::Topology& topology, int outside, bool for_somebody,
         lab::SandboxInside& inside) {
  raise_descriptors();
  // Nothing of its starter is kept busy: no folder, no terminal, no pipe, by its children either.
  if (chdir("/") != 0 || (!for_somebody && !leave_terminal())) {
    (void)inside.ready("cannot let go of the folder and the terminal");
    return kExitFailed;
  }
  auto built = lab::Lab::build(topology);
  if (!built) {
    (void)inside.ready(built.error());
    return kExitFailed;
  }
  return lab::serve_lab(**built, outside, for_somebody ? inside.lifeline : -1, inside.ready);
}

struct Started {
  lab::Sandbox sandbox;
  double seconds = 0;
};

Started start(const LabOptions& options, const lab::Topology& topology, int outside,
              bool for_somebody) {
  const auto begin = std::chrono::steady_clock::now();
  lab::SandboxOptions sandbox;
  sandbox.name = topology.name;
  sandbox.user = sandboxed_without_bpf(options);
  sandbox.keep = outside;
  const auto started = lab::start_sandbox(sandbox, [&](lab::SandboxInside& inside) {
    return hold(topology, outside, for_somebody, inside);
  });
  if (outside >= 0) close(outside);
  if (!started) throw std::runtime_error(started.error());
  return {*started,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

void tell_what_is_missing(const json& info) {
  for (const json& note : info.value("notes", json::array())) {
    say("metaroce lab: " + note.get<std::string>());
  }
  if (info["bpf"].get<bool>()) return;
  say("metaroce lab: no BPF, links with rules are carried by processes: " +
      info["no_bpf"].get<std::string>());
}

std::vector<std::pair<std::string, std::string>> environment_of(const std::string& name,
                                                                const std::string& node) {
  // What `metaroce stat` shows goes with the lab, too.
  return {{"METAROCE_LAB", name},
          {"METAROCE_LAB_NODE", node},
          {"METAROCE_STAT_DIR", lab::kPrivateFolder}};
}

int run_run(const LabOptions& options, const std::vector<std::string>& command) {
  const lab::Topology topology = topology_or_throw(options.topology);
  if (!options.node.empty()) {
    const lab::Plan plan = lab::make_plan(topology);
    if (plan.find_node(options.node) == plan.nodes.size()) {
      throw UsageError{
          fmt::format("--on {}: there is no such node in {}", options.node, options.topology)};
    }
  }
  const Started started = start(options, topology, -1, true);
  if (sandboxed_without_bpf(options) && !topology.links.empty()) {
    say("metaroce lab: no root, no BPF: links with rules are carried by processes");
  }
  const int code = lab::run_inside(started.sandbox.pid, options.node, command,
                                   environment_of(topology.name, options.node));
  close(started.sandbox.lifeline);
  while (waitpid(started.sandbox.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return code;
}

int run_up(const LabOptions& options) {
  lab::Topology topology = topology_or_throw(options.topology);
  const std::string name = options.name.empty() ? topology.name : options.name;
  topology.name = name;
  const auto outside = lab::claim_name(name);
  if (!outside) return wrong(outside.error());
  const Started started = start(options, topology, *outside, false);
  const auto info = lab::ask_lab({name, started.sandbox.pid}, {{"do", "info"}});
  if (!info) return wrong(info.error());
  if (options.json) {
    json out = *info;
    out["pid"] = started.sandbox.pid;
    out["seconds"] = started.seconds;
    std::printf("%s\n", out.dump(2).c_str());
    return kExitOk;
  }
  tell_what_is_missing(*info);
  std::printf("%s is up (process %d, %.2f s): %u planes, %u leaves and %u spines each, %u hosts\n",
              name.c_str(), started.sandbox.pid, started.seconds, topology.planes, topology.leaves,
              topology.spines, topology.hosts);
  return kExitOk;
}

LabAddress find_or_throw(const LabOptions& options) {
  const auto found = lab::find_lab(options.name);
  if (!found) throw std::runtime_error(found.error());
  return *found;
}

json ask_or_throw(const LabAddress& where, const json& request) {
  auto out = lab::ask_lab(where, request);
  if (!out) throw std::runtime_error(out.error());
  return *out;
}

/// Of a process that is not our child, too; false if it took too long.
bool wait_for_end(int pid, int seconds) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) return true;
  pollfd ended{process, POLLIN, 0};
  const bool done = poll(&ended, 1, seconds * 1000) == 1;
  close(process);
  return done;
}

int run_down(const LabOptions& options) {
  const LabAddress where = find_or_throw(options);
  const auto out = lab::ask_lab(where, {{"do", "end"}}, kPatienceOfDown);
  if (where.pid <= 0) return out ? kExitOk : wrong(out.error());
  // Of a process that is stopped or hangs everything goes as well when it is killed.
  if (!out && kill(where.pid, SIGKILL) != 0 && errno != ESRCH) return wrong(out.error());
  // Its name is free when the process is gone, which waits for all that is in it.
  if (wait_for_end(where.pid, kPatienceOfEnd)) return kExitOk;
  return wrong(fmt::format("process {} has not ended after {} s", where.pid, kPatienceOfEnd));
}

int run_list(const LabOptions& options) {
  json out = json::array();
  for (const LabAddress& where : lab::list_labs()) {
    const auto info = lab::ask_lab(where, {{"do", "info"}}, kPatienceOfList);
    if (!info) {
      say(fmt::format("metaroce lab: {} (process {}): {}", where.name, where.pid, info.error()));
      continue;
    }
    json row = *info;
    row["name"] = where.name;
    row["pid"] = where.pid;
    out.push_back(row);
  }
  if (options.json) {
    std::printf("%s\n", out.dump(2).c_str());
    return kExitOk;
  }
  for (const json& row : out) {
    std::printf("%-16s pid %-8d %u planes x (%u leaves, %u spines), %zu hosts%s\n",
                row["name"].get<std::string>().c_str(), row["pid"].get<int>(),
                row["planes"].get<unsigned>(), row["leaves"].get<unsigned>(),
                row["spines"].get<unsigned>(), row["hosts"].size(),
                row["bpf"].get<bool>() ? "" : ", no BPF");
  }
  return kExitOk;
}

int run_exec(const LabOptions& options, const std::vector<std::string>& command) {
  const LabAddress where = find_or_throw(options);
  const json info = ask_or_throw(where, {{"do", "info"}});
  return lab::run_inside(where.pid, options.node, command,
                         environment_of(info["name"], options.node));
}

int run_shell(const LabOptions& options) {
  const char* shell = std::getenv("SHELL");
  return run_exec(options, {shell == nullptr || *shell == '\0' ? "/bin/sh" : shell});
}

int run_link(const LabOptions& options) {
  std::string words;
  for (const std::string& rule : options.rules) words += (words.empty() ? "" : ",") + rule;
  // A wrong word is a wrong argument, whether or not a lab is up.
  const auto parsed = lab::parse_rules(words, lab::LinkRules{.rate_bps = 1});
  if (!parsed) throw UsageError{parsed.error()};
  const json out = ask_or_throw(find_or_throw(options),
                                {{"do", "link"}, {"target", options.target}, {"rules", words}});
  std::printf("%s\n", out["done"].get<std::string>().c_str());
  return kExitOk;
}

int run_fail(const LabOptions& options, bool heal) {
  json request = {{"do", heal ? "heal" : "fail"}, {"target", options.target}};
  if (options.one_way) request["how"] = "one-way";
  if (options.silent) request["how"] = "silent";
  const auto count = ask_or_throw(find_or_throw(options), request)["done"].get<unsigned>();
  const bool directions = !heal && (options.one_way || options.silent);
  std::printf("%u %s%s %s\n", count, directions ? "direction" : "link", count == 1 ? "" : "s",
              heal         ? "healed"
              : directions ? "dark"
                           : "down");
  return kExitOk;
}

int run_counters(const LabOptions& options) {
  const json rows = ask_or_throw(find_or_throw(options),
                                 {{"do", "counters"}, {"target", options.target}})["done"];
  if (options.json) {
    std::printf("%s\n", rows.dump(2).c_str());
    return kExitOk;
  }
  std::printf("%-14s %12s %15s %-7s %10s %10s %10s  %s\n", "LINK", "PACKETS", "BYTES", "BY",
              "DROPPED", "MARKED", "ALTERED", "STATE AND RULES");
  for (const json& row : rows) {
    const json fates = row.value("fates", json::object());
    // What came to the link; an interface counts before a wire, and behind BPF.
    const auto packets = fates.value("seen", row["sent_packets"].get<uint64_t>());
    const auto sum = [&fates](std::initializer_list<const char*> keys) {
      uint64_t n = 0;
      for (const char* key : keys) n += fates.value(key, uint64_t{0});
      return n;
    };
    const std::string failed = row["failed"].get<std::string>();
    std::printf("%-14s %12lu %15lu %-7s %10lu %10lu %10lu  %s%s%s\n",
                row["link"].get<std::string>().c_str(), packets, row["sent_bytes"].get<uint64_t>(),
                row["carried_by"].get<std::string>().c_str(), sum({"dark", "lost", "full"}),
                sum({"marked"}), sum({"corrupted", "duplicated", "late", "bleached", "trimmed"}),
                failed.c_str(), failed.empty() ? "" : " ", row["rules"].get<std::string>().c_str());
  }
  return kExitOk;
}

int run_show(const LabOptions& options) {
  const bool svg = !options.svg.empty();
  std::string picture;
  if (!options.topology.empty()) {
    const lab::Plan plan = lab::make_plan(topology_or_throw(options.topology));
    picture = svg ? lab::draw_svg(plan) : lab::draw_text(plan);
  } else {
    picture = ask_or_throw(find_or_throw(options), {{"do", "show"}, {"svg", svg}})["done"]
                  .get<std::string>();
  }
  if (!svg || options.svg == "-") {
    std::printf("%s", picture.c_str());
    return std::fflush(stdout) == 0 ? kExitOk : wrong("standard output: cannot write");
  }
  std::ofstream out(options.svg);
  out << picture;
  out.close();
  return out ? kExitOk : wrong(fmt::format("{}: cannot write", options.svg));
}

int run_pcap(const LabOptions& options) {
  const LabAddress where = find_or_throw(options);
  const json rows = ask_or_throw(where, {{"do", "counters"}, {"target", options.target}})["done"];
  const auto name = rows[0]["link"].get<std::string>();
  // The first end of the first link that is meant, both directions.
  const std::string from = name.substr(0, name.find(':'));
  lab::CaptureOptions capture;
  capture.snap = options.snap;
  capture.packets = options.packets;
  capture.interface = rows[0]["interface"].get<std::string>();
  // Here, not in the lab: its /run is another.
  capture.out = options.file == "-" ? stdout : std::fopen(options.file.c_str(), "wbe");
  if (capture.out == nullptr) {
    return wrong(fmt::format("{}: {}", options.file, std::strerror(errno)));
  }
  return lab::call_inside(where.pid, from, [&] {
    const auto got = lab::capture(capture);
    if (!got) return wrong(fmt::format("{}: {}", options.file, got.error()));
    say(fmt::format("metaroce lab: {} packets of {} ({}) in {}{}", got->packets, from,
                    capture.interface, options.file,
                    got->missed == 0 ? "" : fmt::format("; {} more were missed", got->missed)));
    return kExitOk;
  });
}

void add_name(CLI::App& word, LabOptions& o) {
  word.add_option("--name", o.name, "Which lab, if several are up");
}

void add_start(CLI::App& lab, LabOptions& o) {
  CLI::App* run = lab.add_subcommand(
      "run",
      "A fabric for the time of one command: run TOPOLOGY -- COMMAND ...; `metaroce lab` works "
      "inside");
  run->add_option("topology", o.topology, "TOML file of the fabric")->required();
  run->prefix_command();
  run->add_option("--on", o.node, "Run it on this node (otherwise beside the fabric)");
  CLI::App* up = lab.add_subcommand("up", "A fabric until `lab down`; one process holds it");
  up->add_option("topology", o.topology, "TOML file of the fabric")->required();
  up->add_option("--name", o.name, "Name of the lab (otherwise that of the topology)");
  up->add_flag("--json", o.json, "Addresses and what is available, as JSON");
  for (CLI::App* word : {run, up}) {
    word->add_flag("--rootless", o.rootless, "As an ordinary user would have it, though root");
  }
  add_name(*lab.add_subcommand("down", "Take a fabric down"), o);
  lab.add_subcommand("list", "Fabrics of this user")->add_flag("--json", o.json, "As JSON");
}

void add_inside(CLI::App& lab, LabOptions& o) {
  CLI::App* exec = lab.add_subcommand("exec", "Run a command on a node: exec NODE COMMAND ...");
  exec->add_option("node", o.node, "Host or switch, such as h0 or p0s1")->required();
  exec->prefix_command();
  add_name(*exec, o);
  CLI::App* shell = lab.add_subcommand("shell", "A shell on a node, or beside the fabric");
  shell->add_option("node", o.node, "Host or switch");
  add_name(*shell, o);
  CLI::App* pcap = lab.add_subcommand("pcap", "Capture a link, both directions, until Ctrl-C");
  pcap->add_option("link", o.target, "Such as p0l0:p0s1: where p0l0 has it")->required();
  pcap->add_option("-o,--output", o.file, "File, or - for standard output")->capture_default_str();
  pcap->add_option("--snap", o.snap, "Bytes kept of a packet; 0: all");
  pcap->add_option("-c,--count", o.packets, "End after so many packets");
  add_name(*pcap, o);
}

void add_trouble(CLI::App& lab, LabOptions& o) {
  CLI::App* link = lab.add_subcommand("link", "Set rules of links");
  link->add_option("target", o.target, "Links, see NAMES")->required();
  link->add_option("rules", o.rules, "See RULES; `none` takes all away")->required();
  CLI::App* fail = lab.add_subcommand("fail", "Let a link, spine, host or plane fail");
  fail->add_option("target", o.target, "Links, see NAMES")->required();
  auto* one_way = fail->add_flag("--one-way", o.one_way,
                                 "Swallow what goes away from leaf 0 (of FROM:TO that direction)");
  fail->add_flag("--silent", o.silent, "Swallow everything, and tell nobody")->excludes(one_way);
  CLI::App* heal = lab.add_subcommand("heal", "Undo fail");
  heal->add_option("target", o.target, "Links, see NAMES")->required();
  CLI::App* counters = lab.add_subcommand("counters", "Packets and fates of every link");
  counters->add_option("target", o.target, "Links, see NAMES; otherwise all");
  counters->add_flag("--json", o.json, "As JSON");
  CLI::App* show = lab.add_subcommand("show", "Picture of a fabric that is up, or of a topology");
  show->add_option("topology", o.topology, "TOML file; otherwise what is up");
  show->add_option("--svg", o.svg, "Write an SVG to FILE (- for standard output)");
  for (CLI::App* word : {link, fail, heal, counters, show}) add_name(*word, o);
}

}  // namespace

std::shared_ptr<LabOptions> add_lab(CLI::App& app) {
  auto options = std::make_shared<LabOptions>();
  app.require_subcommand(1);
  add_start(app, *options);
  add_inside(app, *options);
  add_trouble(app, *options);
  app.footer(kExamples);
  return options;
}

int take_command(int argc, char** argv, LabOptions& options) {
  if (argc < 3 || std::string_view(argv[1]) != "lab") return argc;
  int words = 0;  // topology or node, then the command begins, and a "--" is its own
  for (int i = 3; i < argc && words < 2; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      options.command.assign(argv + i + 1, argv + argc);
      return i;
    }
    if (word == "--name" || word == "--on") {
      ++i;
    } else if (word.substr(0, 1) != "-") {
      ++words;
    }
  }
  return argc;
}

int run_lab(CLI::App& app, const LabOptions& options) {
  const CLI::App& chosen = *app.get_subcommands().front();
  const std::string word = chosen.get_name();
  try {
    if (!options.command.empty() && word != "run" && word != "exec") {
      throw UsageError{"lab " + word + " runs no command; what stands behind -- is too much"};
    }
    if (word == "run" || word == "exec") {
      std::vector<std::string> command = chosen.remaining();
      command.insert(command.end(), options.command.begin(), options.command.end());
      if (command.empty()) throw UsageError{"lab " + word + ": what is to be run?"};
      return word == "run" ? run_run(options, command) : run_exec(options, command);
    }
    if (word == "up") return run_up(options);
    if (word == "down") return run_down(options);
    if (word == "list") return run_list(options);
    if (word == "shell") return run_shell(options);
    if (word == "link") return run_link(options);
    if (word == "fail" || word == "heal") return run_fail(options, word == "heal");
    if (word == "counters") return run_counters(options);
    if (word == "show") return run_show(options);
    return run_pcap(options);
  } catch (const json::exception& error) {
    return wrong(fmt::format("an answer that makes no sense: {}", error.what()));
  } catch (const std::runtime_error& error) {
    return wrong(error.what());
  }
}

}  // namespace metaroce::tool
