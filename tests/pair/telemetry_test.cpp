// Counters, events and stall reasons of real runs: the books balance, and all of them agree.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/covers.h"
#include "telemetry/sinks.h"
#include "telemetry/stat_page.h"
#include "tests/pair/pair.h"

namespace metaroce::pair {
namespace {

using Kind = metaroce::EventKind;  // the pair's own queue has kinds of events, too
using engine::StallReason;
namespace fs = std::filesystem;

PairConfig config_of(uint64_t seed) {
  PairConfig c;
  c.seed = seed;
  c.network.planes = 2;
  c.network.mtu = 4500;
  c.settings.paths_per_plane = 2;
  c.region_bytes = c.longest_message = 8 << 20;
  c.receive_streams = 4;
  c.receive_slots = 16;
  c.receive_slot_bytes = 64 << 10;
  return c;
}

void add_trouble(Pair& pair) {
  for (const auto& [kind, ppm] : {std::pair{ImpairmentKind::kLoss, 30'000},
                                  std::pair{ImpairmentKind::kReorder, 10'000},
                                  std::pair{ImpairmentKind::kDuplicate, 10'000},
                                  std::pair{ImpairmentKind::kMark, 5'000},
                                  std::pair{ImpairmentKind::kCorrupt, 2'000}}) {
    Impairment i;
    i.kind = kind;
    i.probability = per_million(static_cast<uint64_t>(ppm));
    i.min = microseconds(1);
    i.max = microseconds(30);
    pair.network().add(i);
  }
}

void work(Pair& pair) {
  ASSERT_TRUE(pair.connect(milliseconds(500)));
  ASSERT_EQ(pair.write(0, 4, 1, 0, 4 << 20), Status::kOk);
  ASSERT_EQ(pair.write(1, 3, 2, 0, 1 << 20), Status::kOk);
  for (uint64_t n = 0; n < 16; ++n) ASSERT_EQ(pair.send(0, 2, 10 + n, n, 3000), Status::kOk);
  engine::WorkRequest wrong;  // refused: no such key
  wrong.id = 3;
  wrong.connection = pair.connection(0);
  wrong.stream = 6;
  wrong.length = 100;
  wrong.remote_key = 12345;
  ASSERT_EQ(pair.post(0, wrong), Status::kOk);
  pair.run_for(microseconds(200));  // without receives until then
  for (uint64_t n = 0; n < 16; ++n) ASSERT_EQ(pair.receive(1, 2, 100 + n, n), Status::kOk);
  ASSERT_TRUE(pair.run_until(
      [&] { return pair.counts(0).completions == 18 && pair.counts(1).completions == 1; },
      seconds(2)));
  pair.run_for(milliseconds(2));
}

TEST(Telemetry, TheBooksBalanceAtEveryMoment) {
  MR_COVERS("MR-TEL-010");
  MR_COVERS("MR-TEL-011");
  MR_COVERS("MR-TEL-012");
  MR_COVERS("MR-TEL-013");
  MR_COVERS("MR-TEL-014");
  MR_COVERS("MR-TEL-015");
  MR_COVERS("MR-TEL-016");
  MR_COVERS("MR-TEL-017");
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Pair pair(config_of(seed));
    add_trouble(pair);
    bool more = true;
    std::function<void()> look = [&] {
      for (int side = 0; side < 2; ++side) {
        for (const auto& wrong : telemetry::check_conservation(pair.engine(side))) {
          ADD_FAILURE() << "seed " << seed << " side " << side << ": " << wrong;
          more = false;
        }
      }
      if (more) pair.at(pair.now() + microseconds(3), look);
    };
    pair.at(pair.now(), look);
    work(pair);
    more = false;
    pair.engine(0).close(pair.now(), pair.connection(0), 0);
    pair.poll(0);
    pair.run_for(milliseconds(200));  // removed: what it counted stays in the endpoint's sums
    EXPECT_EQ(pair.engine(0).connections({}), 0u);
    EXPECT_EQ(pair.take_wrong_books(), std::vector<std::string>{});
    EXPECT_GT(pair.engine(0).totals().paths.lost, 0u);
  }
}

TEST(Telemetry, WhatOneEndSendsTheOtherReceivesLessWhatTheNetworkTook) {
  MR_COVERS("MR-TEL-018");
  Pair pair(config_of(3));
  add_trouble(pair);
  work(pair);
  for (int side = 0; side < 2; ++side) {
    const Tally t = pair.network().tally(side);
    const uint64_t sent = pair.engine(side).totals().endpoint.tx_datagrams;
    const uint64_t got = pair.engine(1 - side).totals().endpoint.rx_datagrams;
    EXPECT_GT(t.drops(), 0u);
    EXPECT_GT(t.duplicates, 0u);
    EXPECT_EQ(sent, t.sent);
    EXPECT_EQ(got, sent - t.drops() + t.duplicates);
  }
}

TEST(Telemetry, ACounterThatLiesIsNamedWithBothNumbers) {
  engine::PathStatus path;
  path.id = 7;
  path.counters.tx_packets = path.counters.tx_new = 10;
  path.counters.acked = 6;
  path.counters.lost = 1;
  path.in_flight_packets = 3;
  EXPECT_TRUE(telemetry::check_path(1, path).empty());
  ++path.counters.lost;
  const auto wrong = telemetry::check_path(0x10002, path);
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_EQ(wrong[0],
            "path 00010002 path 7: tx_packets - tx_probes + tx_padded = "
            "acked - acked_late + lost + lost_padded + in flight: 10 != 11");
}

TEST(Telemetry, EventsAndCountersAgreeAndListeningChangesNothing) {
  MR_COVERS("MR-WIRE-062");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    telemetry::CountingSink sinks[2];
    PairConfig config = config_of(seed);
    config.events = {&sinks[0], &sinks[1]};
    Pair heard(config);
    add_trouble(heard);
    work(heard);
    Pair silent(config_of(seed));
    add_trouble(silent);
    work(silent);
    EXPECT_EQ(heard.hash(), silent.hash());
    for (int side = 0; side < 2; ++side) {
      const engine::EngineTotals t = heard.engine(side).totals();
      const PathCounters& p = t.paths;
      const auto count = [&](Kind kind) { return sinks[side].count(kind); };
      EXPECT_EQ(count(Kind::packet_sent),
                p.tx_new + p.tx_repair + p.tx_copies + p.tx_control);
      EXPECT_EQ(count(Kind::probe_sent), p.tx_probes);
      EXPECT_EQ(count(Kind::ack_sent), p.tx_acks);
      EXPECT_EQ(count(Kind::packet_received), p.rx_packets);
      EXPECT_EQ(count(Kind::ack_received), p.rx_acks);
      EXPECT_EQ(count(Kind::packet_lost), p.lost);
      EXPECT_EQ(count(Kind::packet_late), p.acked_late);
      EXPECT_EQ(count(Kind::packet_refused), p.rx_refused);
      EXPECT_EQ(count(Kind::refusal_heard), t.connections.refusals);
      EXPECT_EQ(count(Kind::packet_dropped), t.endpoint.rx_dropped);
      EXPECT_EQ(count(Kind::backstop), t.connections.backstops);
      EXPECT_GE(count(Kind::connection_state), 2u);
      EXPECT_GE(count(Kind::path_state), 4u);
      EXPECT_EQ(count(Kind::stall_begin) - count(Kind::stall_end) <= 1, true);
    }
    EXPECT_EQ(heard.engine(0).totals().connections.messages_sent, 17u);
    EXPECT_EQ(heard.engine(1).totals().connections.messages_received, 17u);
    EXPECT_GT(sinks[0].count(Kind::refusal_heard), 0u);
  }
}

TEST(Telemetry, TheTraceIsOneJsonTextAnEvent) {
  char name[] = "/tmp/metaroce-trace-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  ::close(fd);
  uint64_t events = 0;
  {
    auto trace = telemetry::JsonTrace::create(name, Time{0}, {});
    ASSERT_TRUE(trace.has_value());
    PairConfig config = config_of(1);
    config.events = {trace->get(), nullptr};
    Pair pair(config);
    add_trouble(pair);
    work(pair);
    (*trace)->flush();
    EXPECT_EQ((*trace)->error(), "");
    events = (*trace)->events();
  }
  std::ifstream in(name);
  std::string line;
  uint64_t lines = 0;
  std::set<std::string> names;
  while (std::getline(in, line)) {
    ASSERT_FALSE(line.empty());
    EXPECT_EQ(line[0], '\x1e');
    EXPECT_EQ(line.back(), '}');
    const size_t at = line.find("\"name\":\"metaroce:");
    if (at != std::string::npos) {
      names.insert(line.substr(at + 17, line.find('"', at + 17) - at - 17));
    }
    ++lines;
  }
  fs::remove(name);
  EXPECT_EQ(lines, events + 1);
  for (const char* kind : {"packet_sent", "packet_lost", "path_state", "refusal_heard"}) {
    EXPECT_TRUE(names.count(kind)) << kind;
  }
  EXPECT_FALSE(telemetry::JsonTrace::create("/nowhere/x", Time{0}, {}).has_value());
}

StallReason stall_of(Pair& pair, int side) {
  engine::ConnectionStatus status;
  EXPECT_TRUE(pair.engine(side).connection_status(pair.now(), pair.connection(side), status));
  return status.stall;
}

TEST(Stall, NothingPostedIsTheApplications) {
  Pair pair(config_of(1));
  ASSERT_TRUE(pair.connect());
  pair.run_for(milliseconds(1));
  EXPECT_EQ(stall_of(pair, 0), StallReason::kApplication);
  EXPECT_EQ(stall_of(pair, 1), StallReason::kApplication);
}

TEST(Stall, WithoutReceivesItIsCreditAndTheOldestWorkIsNamed) {
  Pair pair(config_of(1));
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.send(0, 2, 77, 0, 1000), Status::kOk);
  ASSERT_EQ(pair.send(0, 2, 78, 1, 1000), Status::kOk);
  pair.run_for(milliseconds(20));
  engine::ConnectionStatus status;
  ASSERT_TRUE(pair.engine(0).connection_status(pair.now(), pair.connection(0), status));
  EXPECT_EQ(status.stall, StallReason::kCredit);
  EXPECT_TRUE(status.has_work);
  EXPECT_EQ(status.oldest_work, 77u);
  EXPECT_GE(status.oldest_age, milliseconds(19));
  EXPECT_LE(status.oldest_age, milliseconds(21));
}

TEST(Stall, MuchToSendWaitsForTheWindow) {
  Pair pair(config_of(1));
  ASSERT_TRUE(pair.connect());
  ASSERT_EQ(pair.write(0, 4, 1, 0, 8 << 20), Status::kOk);
  std::set<StallReason> seen;
  while (pair.counts(0).completions == 0) {
    pair.run_for(microseconds(5));
    seen.insert(stall_of(pair, 0));
  }
  EXPECT_TRUE(seen.count(StallReason::kWindow));
  EXPECT_FALSE(seen.count(StallReason::kCredit));
  EXPECT_FALSE(seen.count(StallReason::kPathDead));
}

TEST(Stall, SilenceIsPathDead) {
  Pair pair(config_of(1));
  ASSERT_TRUE(pair.connect());
  Impairment dark;
  dark.kind = ImpairmentKind::kDark;
  pair.network().add(dark);
  ASSERT_EQ(pair.write(0, 4, 1, 0, 1 << 20), Status::kOk);
  pair.run_for(milliseconds(20));
  EXPECT_EQ(stall_of(pair, 0), StallReason::kPathDead);
  for (const auto& path : pair.paths(0)) {
    EXPECT_NE(path.state, engine::PathState::kGood);
    EXPECT_EQ(path.change == engine::PathChange::kSilent ||
                  path.change == engine::PathChange::kUnanswered,
              true);
    EXPECT_GT(path.changed_at, Time{0});
  }
}

TEST(Stall, WholeMessagesBehindALostOneAreAnOrderHole) {
  std::set<StallReason> seen;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Pair pair(config_of(seed));
    add_trouble(pair);
    ASSERT_TRUE(pair.connect(milliseconds(500)));
    for (uint64_t n = 0; n < 16; ++n) ASSERT_EQ(pair.receive(1, 2, 100 + n, n), Status::kOk);
    for (uint64_t n = 0; n < 16; ++n) ASSERT_EQ(pair.send(0, 2, n, n, 60'000), Status::kOk);
    while (pair.counts(0).completions < 16) {
      pair.run_for(microseconds(1));
      seen.insert(stall_of(pair, 1));
    }
  }
  EXPECT_TRUE(seen.count(StallReason::kOrderHole));
  EXPECT_TRUE(seen.count(StallReason::kApplication));
}

TEST(Stall, BeforeTheAnswerItIsSetUp) {
  Pair pair(config_of(1));
  Impairment dark;
  dark.kind = ImpairmentKind::kDark;
  pair.network().add(dark);
  EXPECT_FALSE(pair.connect(milliseconds(5)));
  EXPECT_EQ(stall_of(pair, 0), StallReason::kSetup);
}

class Stat : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/metaroce-stat-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("METAROCE_STAT_DIR", name, 1);
  }
  void TearDown() override {
    setenv("METAROCE_STAT_DIR", "off", 1);
    fs::remove_all(folder_);
  }
  std::vector<telemetry::StatSnapshot> read() {
    std::vector<std::string> problems;
    auto pages = telemetry::read_stat_pages(problems);
    EXPECT_TRUE(problems.empty()) << problems[0];
    return pages;
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(Stat, ThePageSaysWhatTheEngineSays) {
  Pair pair(config_of(1));
  add_trouble(pair);
  work(pair);
  engine::EngineConfig config;
  config.settings = pair_settings();
  config.local.resize(2);
  auto page = telemetry::StatPage::create(config, 4711);
  ASSERT_NE(page, nullptr);
  EXPECT_TRUE(page->due(Time{1}));
  page->publish(pair.now(), pair.engine(0));
  EXPECT_FALSE(page->due(pair.now() + milliseconds(50)));
  const auto pages = read();
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0].owner.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(pages[0].head.port, 4711);
  EXPECT_FALSE(pages[0].stopped);
  ASSERT_EQ(pages[0].connections.size(), 1u);
  EXPECT_EQ(pages[0].connections[0].handle, pair.connection(0));
  EXPECT_EQ(pages[0].connections[0].status.counters.messages_sent, 17u);
  ASSERT_EQ(pages[0].paths.size(), 4u);
  const auto paths = pair.paths(0);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pages[0].paths[i].status.source_port, paths[i].source_port);
    EXPECT_EQ(pages[0].paths[i].status.counters.lost, paths[i].counters.lost);
  }
  const auto mode = fs::status(pages[0].file).permissions();
  EXPECT_EQ(mode, fs::perms::owner_read | fs::perms::owner_write);
  page.reset();
  EXPECT_EQ(files(), 0u);
}

TEST_F(Stat, TooManyConnectionsAreCountedNotShown) {
  engine::EngineConfig config;
  config.settings = pair_settings();
  config.settings.max_connections = 400;
  config.settings.max_streams = 16;
  config.local = {plane_address(0, 0, 1000)};
  engine::Engine engine(config, Rng(1));
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(engine.connect(Time{1000}, {{plane_address(0, 1, 2000)}}).has_value());
  }
  auto page = telemetry::StatPage::create(config, 1);
  ASSERT_NE(page, nullptr);
  page->publish(Time{2000}, engine);
  const auto pages = read();
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0].head.connections, 300u);
  EXPECT_EQ(pages[0].head.connections_shown, 256u);
  EXPECT_EQ(pages[0].connections.size(), 256u);
  EXPECT_LT(fs::file_size(pages[0].file), 2u << 20);
}

TEST_F(Stat, PagesOfTheDeadAreRemovedAndStrangersIgnored) {
  engine::EngineConfig config;
  config.settings = pair_settings();
  config.local = {plane_address(0, 0, 1000)};
  const pid_t child = fork();
  if (child == 0) {
    auto page = telemetry::StatPage::create(config, 5).release();
    _exit(page == nullptr ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(files(), 1u);
  std::ofstream(folder_ / ("metaroce-" + std::to_string(geteuid()) + "-1-0")) << "no page";
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(files(), 1u);  // what is no page is not ours to remove
  // A child that inherits a page leaves it alone.
  auto page = telemetry::StatPage::create(config, 6);
  const pid_t second = fork();
  if (second == 0) {
    page.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(second, &status, 0), second);
  EXPECT_EQ(read().size(), 1u);
}

TEST_F(Stat, NoFolderNoPage) {
  setenv("METAROCE_STAT_DIR", "/nowhere", 1);
  engine::EngineConfig config;
  config.local.resize(1);
  EXPECT_EQ(telemetry::StatPage::create(config, 1), nullptr);
  setenv("METAROCE_STAT_DIR", "off", 1);
  EXPECT_EQ(telemetry::StatPage::create(config, 1), nullptr);
}

}  // namespace
}  // namespace metaroce::pair
