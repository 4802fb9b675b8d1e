// forged [COUNT [SEED]]: sends COUNT forged datagrams into an engine and says what came of them.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/pair/forged.h"

int main(int argc, char** argv) {
  const uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const auto begin = std::chrono::steady_clock::now();
  const auto r = metaroce::pair::send_forged(count, seed);
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
          .count();
  const auto u = [](uint64_t v) { return static_cast<unsigned long long>(v); };
  std::printf("forged %llu, dropped %llu, accepted %llu, placements %llu, events %llu\n", u(r.sent),
              u(r.dropped), u(r.sent - r.dropped), u(r.placements), u(r.events));
  std::printf("state hash %s, connection %s, answers %llu (%llu bytes for %llu), %.0f ns each\n",
              r.state_unchanged ? "unchanged" : "CHANGED", r.still_alive ? "alive" : "DEAD",
              u(r.answers), u(r.answer_bytes), u(r.bytes),
              static_cast<double>(ns) / static_cast<double>(r.sent > 0 ? r.sent : 1));
  const bool good = r.sent == count && r.dropped == r.sent && r.placements == 0 && r.events == 0 &&
                    r.state_unchanged && r.still_alive;
  return good ? 0 : 1;
}
