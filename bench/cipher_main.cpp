// How fast one core seals packets and does nothing else: the bare cipher loop of bench/aead.py. The
// same context, header, payload and tag as a packet of a secured connection, from one buffer into
// another, as the driver does it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "secure/cipher.h"

using namespace metaroce;

int main(int argc, char** argv) {
  CLI::App app("Seals packets in a loop and prints the goodput in Gbit/s.");
  std::string name = "AES-128-GCM";
  size_t payload = 4096;
  size_t buffer = 64u << 20;
  double seconds = 1;
  bool open = false;
  app.add_option("--suite", name)->capture_default_str();
  app.add_option("--payload", payload, "bytes of a packet")->capture_default_str();
  app.add_option("--buffer", buffer, "bytes that are sealed in turn")->capture_default_str();
  app.add_option("--seconds", seconds)->capture_default_str();
  app.add_flag("--open", open, "open instead of seal");
  CLI11_PARSE(app, argc, argv);
  const secure::Suite suite = secure::suite_of(name);
  if (suite == secure::Suite::kNone || payload == 0 || payload > buffer) {
    std::fprintf(stderr, "no such suite, or a payload that is none\n");
    return 2;
  }
  using Direction = secure::Cipher::Direction;
  secure::Cipher cipher(suite, open ? Direction::kOpen : Direction::kSeal);
  const std::vector<std::byte> key(secure::key_bytes(suite), std::byte{7});
  cipher.set_key(key);
  std::vector<std::byte> from(buffer, std::byte{1});
  constexpr size_t kRun = 15;  // what the driver seals before a system call
  std::vector<std::byte> to(payload * kRun);
  std::array<std::byte, 44> header{};
  std::array<std::byte, secure::kTagBytes> tag{};
  secure::Nonce nonce{};
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  uint64_t packets = 0;
  std::chrono::duration<double> passed{};
  size_t at = 0;
  do {
    for (size_t i = 0; i < 256; ++i, ++packets) {
      for (size_t b = 0; b < 8; ++b) nonce[4 + b] = static_cast<std::byte>(packets >> (56 - 8 * b));
      if (at + payload > buffer) at = 0;
      if (open) {
        // A wrong tag costs what a right one does.
        cipher.open(nonce, header, from.data() + at, payload, tag.data());
      } else {
        cipher.seal(nonce, header, from.data() + at, payload, to.data() + i % kRun * payload,
                    tag.data());
      }
      at += payload;
    }
    passed = Clock::now() - begin;
  } while (passed.count() < seconds);
  const double bits = static_cast<double>(packets * payload) * 8;
  std::printf("%s %s payload=%zu gbps=%.3f ns_per_packet=%.0f\n", secure::to_string(suite),
              open ? "open" : "seal", payload, bits / passed.count() / 1e9,
              passed.count() * 1e9 / static_cast<double>(packets));
  return 0;
}
