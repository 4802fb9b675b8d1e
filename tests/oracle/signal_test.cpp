// What a program waits for: a signal behind its bytes, and streams beside one that is held up.
#include <gtest/gtest.h>

#include <cstring>

#include "base/covers.h"
#include "tests/pair/pair.h"
#include "wire/probe_packet.h"

namespace metaroce::oracle {
namespace {

using engine::Operation;

constexpr uint32_t kBytes = 8'192;

pair::PairConfig eight_paths() {
  pair::PairConfig c;
  c.network.planes = 8;
  c.settings.paths_per_plane = 1;
  return c;
}

/// Time from posting to the change of the counter, behind `writes` Writes of 8 KiB.
int64_t atomic_takes(int writes) {
  pair::Pair pair(eight_paths());
  alignas(8) std::byte memory[16] = {};
  const auto region =
      pair.engine(1).regions().add_at(memory, sizeof memory, memory::access::kRemoteAtomic, 0x1000);
  EXPECT_TRUE(region.has_value() && pair.connect());
  pair.run_for(milliseconds(2));
  const Time begin = pair.now();
  for (int i = 0; i < writes; ++i) {
    EXPECT_EQ(pair.write(0, 1, 1, 0, kBytes), Status::kOk);
  }
  engine::WorkRequest w;
  w.id = 2;
  w.connection = pair.connection(0);
  w.stream = 1;
  w.operation = Operation::kFetchAdd;
  w.remote_address = 0x1000;
  w.remote_key = region->key;
  w.operand = 1;
  EXPECT_EQ(pair.post(0, w), Status::kOk);
  uint64_t value = 0;
  const bool changed = pair.run_until(
      [&] {
        std::memcpy(&value, memory, 8);
        return value == 1;
      },
      milliseconds(10));
  EXPECT_TRUE(changed);
  EXPECT_EQ(pair.wrong_in_region(1, 0, writes > 0 ? kBytes : 0), 0u);
  return (pair.now() - begin).ns;
}

/// The same for a Write with immediate of no bytes, until its receive ends.
int64_t immediate_takes(int writes) {
  pair::PairConfig c = eight_paths();
  c.receive_streams = 2;
  c.receive_slots = 1;
  c.receive_slot_bytes = 64;
  pair::Pair pair(c);
  EXPECT_TRUE(pair.connect());
  EXPECT_EQ(pair.receive(1, 1, 9, 0), Status::kOk);
  pair.run_for(milliseconds(2));
  const Time begin = pair.now();
  for (int i = 0; i < writes; ++i) {
    EXPECT_EQ(pair.write(0, 1, 1, 0, kBytes), Status::kOk);
  }
  EXPECT_EQ(pair.write_imm(0, 1, 2, 0, 0, 5), Status::kOk);
  EXPECT_TRUE(pair.run_until([&] { return pair.counts(1).received == 1; }, milliseconds(10)));
  EXPECT_EQ(pair.wrong_in_region(1, 0, writes > 0 ? kBytes : 0), 0u);
  return (pair.now() - begin).ns;
}

/// The two packets of the bytes and the one of the signal, one behind the other.
int64_t three_packets_ns() {
  const pair::NetworkConfig n;
  const uint64_t wire = kBytes + 3 * (60 + 4 + pair::kOverheadBytes);
  return static_cast<int64_t>(wire * 8 * 1'000'000'000 / n.rate_bps) + 1;
}

TEST(Signal, AnAtomicBehindBytesWaitsForNothingAtTheSender) {
  MR_COVERS("MR-MSG-040");
  const int64_t alone = atomic_takes(0);
  EXPECT_GT(alone, 0);
  EXPECT_LE(atomic_takes(1), alone + three_packets_ns());
}

TEST(Signal, AnImmediateBehindBytesWaitsForNothingAtTheSender) {
  MR_COVERS("MR-MSG-040");
  const int64_t alone = immediate_takes(0);
  EXPECT_GT(alone, 0);
  EXPECT_LE(immediate_takes(1), alone + three_packets_ns());
}

/// Bytes that streams 1 to 7 bring across in 5 ms, beside a stream whose Sends find no receive.
uint64_t siblings_bring(bool held_up) {
  pair::PairConfig c;
  c.real_memory = false;
  c.network.planes = 2;
  c.network.rate_bps = 10'000'000'000ull;
  pair::Pair pair(c);
  EXPECT_TRUE(pair.connect());
  for (int i = 0; held_up && i < 8; ++i) EXPECT_EQ(pair.send(0, 8, 1, 0, 64), Status::kOk);
  uint64_t posted = 0;
  const uint64_t before = pair.counts(0).completions;
  const Time end = pair.now() + milliseconds(5);
  while (pair.now() < end) {
    while (posted - (pair.counts(0).completions - before) < 7 * 8) {
      EXPECT_EQ(pair.write(0, static_cast<uint16_t>(1 + posted % 7), 2, 0, 32'768), Status::kOk);
      ++posted;
    }
    pair.run_for(microseconds(5));
  }
  return (pair.counts(0).completions - before) * 32'768;
}

TEST(Signal, AStreamWithoutReceivesSlowsNoOther) {
  MR_COVERS("MR-MSG-023");
  MR_COVERS("MR-MSG-005");
  const uint64_t alone = siblings_bring(false);
  EXPECT_GT(alone, 1'000'000u);
  EXPECT_GE(siblings_bring(true) * 100, alone * 97);
}

TEST(Signal, RetriesForAReceiveAreCounted) {
  for (const uint8_t retries : {0, 1, 3, 6}) {
    pair::PairConfig c;
    c.settings.credit_probe_max = 100'000;
    c.real_memory = false;
    pair::Pair pair(c);
    ASSERT_TRUE(pair.connect());
    engine::StreamOptions options;
    options.rnr_retry = retries;
    ASSERT_EQ(pair.engine(0).set_stream_options(pair.connection(0), 5, options), Status::kOk);
    uint32_t asked = 0;
    pair.on_run = [&asked](int side, const engine::TxRun& run) {
      const auto type = std::to_integer<uint8_t>(run.headers[0]) & 0x3F;
      if (type != static_cast<uint8_t>(wire::PacketType::kProbe)) return;
      const auto probe = wire::decode_probe({run.headers, run.header_length[0]});
      asked += side == 0 && probe && probe->stream == 5;
    };
    Status status = Status::kOk;
    pair.on_completion = [&status](int, const engine::Completion& done) { status = done.status; };
    ASSERT_EQ(pair.send(0, 5, 1, 0, 64), Status::kOk);
    pair.run_until([&status] { return status != Status::kOk; }, milliseconds(50));
    EXPECT_EQ(status, Status::kNotReady);
    EXPECT_EQ(asked, retries + 1u);
  }
}

}  // namespace
}  // namespace metaroce::oracle
