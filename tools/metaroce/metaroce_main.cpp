// The one command: metaroce send | recv | perf | ping | stat | replay | keygen | lab |
// settings.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <utility>

#include "cli_common.h"
#include "lab_command.h"
#include "perf_options.h"

namespace {

using namespace metaroce::tool;

constexpr const char* kSendExamples = R"(
Examples:
  metaroce send 10.0.0.2 big.iso
  metaroce send [fe80::1%eth0]:30000 folder file
  tar c . | metaroce send receiver.example - --name backup.tar
  metaroce send 10.0.1.2 big.iso --plane 10.0.1.1=10.0.1.2 --plane 10.0.2.1=10.0.2.2
  metaroce send 127.0.1.1 big.iso --planes 4 --fault drop=1%

Exit codes: 0 everything is stored, 1 the transfer failed, 2 wrong arguments, 3 cannot connect,
130 interrupted.)";

constexpr const char* kRecvExamples = R"(
Examples:
  metaroce recv --dir incoming
  metaroce recv --once --overwrite rename
  metaroce recv --listen 10.0.1.2 --listen 10.0.2.2     (two planes)
  metaroce recv --planes 4                               (127.0.1.1 to 127.0.4.1)

Exit codes: 0 everything is stored (--once), 1 a transfer failed, 2 wrong arguments,
130 interrupted.)";

void add_send(CLI::App& app, SendOptions& options) {
  app.add_option("host", options.host, "HOST[:PORT] of the receiver; UDP port 28672 unless given")
      ->required();
  app.add_option("paths", options.paths, "Files, folders, or - for standard input")->required();
  app.add_option("--plane", options.plane_pairs,
                 "A plane as LOCAL=REMOTE, two addresses; may be given up to 16 times")
      ->allow_extra_args(false);
  app.add_option("--name", options.stdin_name, "Name of standard input at the receiver")
      ->capture_default_str();
  add_common_options(app, options.common);
  app.footer(kSendExamples);
}

void add_recv(CLI::App& app, RecvOptions& options) {
  app.add_option("--listen", options.listen,
                 "ADDR[:PORT] to receive on, a plane each; all addresses, UDP port 28672 unless "
                 "given; port 0: a free one")
      ->allow_extra_args(false);
  app.add_option("--dir", options.folder, "Folder that receives")->capture_default_str();
  app.add_flag("--once", options.once, "End after one transfer");
  app.add_option("--overwrite", options.overwrite,
                 "What happens to a file that exists: never touch it, always replace it, or rename "
                 "the new one to NAME.1")
      ->check(CLI::IsMember({"never", "always", "rename"}))
      ->capture_default_str();
  add_common_options(app, options.common);
  app.footer(kRecvExamples);
}

constexpr const char* kReplayExamples = R"(
Examples:
  metaroce send receiver.example big.iso --record run.mrr
  metaroce replay run.mrr
  metaroce replay run.mrr --pcap run.pcapng

Exit codes: 0 everything that came out is identical, 1 it is not (the first difference is named),
2 wrong arguments, 4 the file is damaged or no recording.)";

void add_replay(CLI::App& app, ReplayOptions& options) {
  app.add_option("file", options.file, "Recording that --record wrote")->required();
  app.add_option("--pcap", options.pcap, "Write every datagram to FILE (pcapng, headers only)")
      ->type_name("FILE");
  app.add_option("--trace", options.trace, "Write every event of the engine to FILE")
      ->type_name("FILE");
  app.add_flag("--json", options.json, "The result as JSON");
  app.footer(kReplayExamples);
}

constexpr const char* kStatExamples = R"(
Examples:
  metaroce stat
  metaroce stat --paths                     the worst path first
  metaroce stat --watch 2 --pid 4711
  metaroce stat --json --peer 10.0.0.2

WAITS FOR: window, hint, credit, cpsn window, order hole, path dead, pool, set-up; application:
nothing is posted, or the program does not poll; - : it moves.)";

void add_stat(CLI::App& app, StatOptions& options) {
  app.add_flag("--paths", options.paths, "One row a path, the worst first");
  app.add_flag("--json", options.json, "Everything as JSON");
  app.add_option("--watch", options.watch, "Again every SECONDS (1 unless given)")
      ->expected(0, 1)
      ->default_str("1")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  app.add_option("--pid", options.pids, "Only this process")->allow_extra_args(false);
  app.add_option("--peer", options.peers, "Only peers whose address contains this text")
      ->allow_extra_args(false);
  app.footer(kStatExamples);
}

int usage_error(const std::string& text, const std::string& command) {
  say("metaroce: " + text);
  say("See `metaroce " + (command.empty() ? "" : command + " ") + "--help`.");
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Moves files over MetaRoCE and measures it: many paths, planes, through loss.",
               "metaroce");
  app.set_version_flag("--version", std::string("metaroce ") + MR_VERSION);
  app.require_subcommand(1);
  SendOptions send_options;
  RecvOptions recv_options;
  PerfOptions perf_options;
  PingOptions ping_options;
  ReplayOptions replay_options;
  StatOptions stat_options;
  SettingsOptions settings_options;
  KeygenOptions keygen_options;
  CLI::App* send = app.add_subcommand("send", "Send files, folders or standard input");
  CLI::App* recv = app.add_subcommand("recv", "Receive into a folder");
  CLI::App* stat =
      app.add_subcommand("stat", "Connections and paths of every process of this user");
  CLI::App* perf = app.add_subcommand("perf", "Measure goodput and latency to a server");
  CLI::App* ping = app.add_subcommand("ping", "Does an endpoint answer, and how fast?");
  CLI::App* replay =
      app.add_subcommand("replay", "Repeat a recording and compare everything that comes out");
  CLI::App* keygen = app.add_subcommand("keygen", "Make a key for secured connections");
  CLI::App* lab =
      app.add_subcommand("lab", "Leaf-spine fabrics of this kernel, with loss, marks and failures");
  CLI::App* settings = app.add_subcommand("settings", "List the settings of the transport");
  add_send(*send, send_options);
  add_recv(*recv, recv_options);
  add_perf(*perf, perf_options);
  add_ping(*ping, ping_options);
  add_replay(*replay, replay_options);
  add_stat(*stat, stat_options);
  add_keygen(*keygen, keygen_options);
  const auto lab_options = add_lab(*lab);
  settings->add_flag("--json", settings_options.json, "As JSON");
  settings->add_flag("--markdown", settings_options.markdown, "As docs/settings.md");
  const std::pair<const CLI::App*, std::function<int()>> commands[] = {
      {send, [&] { return run_send(send_options); }},
      {recv, [&] { return run_recv(recv_options); }},
      {stat, [&] { return run_stat(stat_options); }},
      {perf, [&] { return run_perf(perf_options); }},
      {ping, [&] { return run_ping(ping_options); }},
      {replay, [&] { return run_replay(replay_options); }},
      {keygen, [&] { return run_keygen(keygen_options); }},
      {lab, [&] { return run_lab(*lab, *lab_options); }},
      {settings, [&] { return run_settings(settings_options); }}};
  const auto chosen = [&] {
    return std::find_if(std::begin(commands), std::end(commands),
                        [&](const auto& c) { return app.got_subcommand(c.first); });
  };
  const auto command = [&] {
    return chosen() == std::end(commands) ? std::string() : chosen()->first->get_name();
  };
  try {
    app.parse(take_command(argc, argv, *lab_options), argv);
    return chosen()->second();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what(), command());
  } catch (const UsageError& error) {
    return usage_error(error.text, command());
  }
}
