#include "secure/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "secure/x25519.h"

namespace metaroce::secure {
namespace {

constexpr std::string_view kPskWord = "metaroce-psk";
constexpr std::string_view kPrivateWord = "metaroce-x25519-private";
constexpr std::string_view kPublicWord = "metaroce-x25519-public";
constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kShortestKey = 32;  ///< digits that are meant as a key and not as a name

using Done = Expected<void, std::string>;

std::string system_text(const std::string& path, const char* what) {
  return path + ": cannot " + what + ": " + std::strerror(errno);
}

/// A buffer that is wiped when it goes, on every way out.
struct Text {
  std::string bytes;
  ~Text() { wipe(std::as_writable_bytes(std::span(bytes))); }
};

enum class Holds : uint8_t { kSecrets, kPublicKeys };

/// MR-SEC-012: who reads a secret has it, and who writes what is trusted decides who is.
Done check_file(const std::string& path, const struct stat& info, Holds holds) {
  if (!S_ISREG(info.st_mode)) {
    return unexpected(path +
                      ": a key file must be a regular file, no pipe, folder or device; copy "
                      "the key to a file" +
                      (holds == Holds::kPublicKeys ? " or give its 64 hexadecimal digits" : ""));
  }
  const std::string user = std::to_string(::geteuid());
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return unexpected(path + ": belongs to user " + std::to_string(info.st_uid) +
                      ", who can change it; it must belong to this user (" + user +
                      ") or root: check what it holds and run `chown " + user + " " + path + "`");
  }
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
  if (holds == Holds::kSecrets && (info.st_mode & 077) != 0) {
    return unexpected(path + ": others may read this key (mode " + mode + "); run `chmod 600 " +
                      path + "`, and use a new key if anybody did");
  }
  if (holds == Holds::kPublicKeys && (info.st_mode & 022) != 0) {
    return unexpected(path + ": others may write this file (mode " + mode +
                      ") and so choose who is trusted; check its keys and run `chmod go-w " + path +
                      "`");
  }
  return {};
}

Done read_file(const std::string& path, Holds holds, Text& out) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return unexpected(system_text(path, "open"));
  struct stat info {};
  Done done;
  if (::fstat(fd, &info) != 0) done = unexpected(system_text(path, "look at"));
  if (done) done = check_file(path, info, holds);
  if (done && static_cast<size_t>(info.st_size) > kMostBytes) {
    done = unexpected(path + ": too large for a key file");
  }
  if (done) {
    out.bytes.resize(static_cast<size_t>(info.st_size));
    size_t used = 0;
    while (used < out.bytes.size()) {
      const ssize_t n = ::read(fd, out.bytes.data() + used, out.bytes.size() - used);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) done = unexpected(system_text(path, "read"));
      if (n <= 0) break;
      used += static_cast<size_t>(n);
    }
    out.bytes.resize(used);
  }
  ::close(fd);
  return done;
}

std::string_view next_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

/// Calls take(name, key) for each line; lines of another kind are an error.
template <class Take>
Done for_each_key(const std::string& path, const Text& text, std::string_view kind, Take&& take) {
  std::string_view rest = text.bytes;
  size_t keys = 0;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const std::string where = path + ":" + std::to_string(number) + ": ";
    const std::string_view word = next_word(line);
    if (word.empty() || word[0] == '#') continue;
    if (word != kind) {
      // The word may be half a key that stands in the wrong place: it is not repeated.
      return unexpected(where + "the line must be \"" + std::string(kind) +
                        " NAME KEY\"; `metaroce keygen` writes such files");
    }
    const std::string_view name = next_word(line);
    Secret key;
    if (!valid_name(name) || !from_hex(next_word(line), key.bytes()) || !next_word(line).empty()) {
      return unexpected(where +
                        "NAME must be 1 to 64 letters, digits and .-_@:, and KEY 64 "
                        "hexadecimal digits");
    }
    if (!take(std::string(name), key)) {
      return unexpected(where + "the name \"" + std::string(name) + "\" was given before");
    }
    ++keys;
  }
  if (keys == 0) return unexpected(path + ": no line \"" + std::string(kind) + " NAME KEY\"");
  return {};
}

/// What is wrong with a trusted key that is neither a key nor a file. Digits are not repeated: they
/// may be those of another kind of key.
std::string no_such_key(const std::string& text) {
  const bool digits = text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (digits && text.size() >= kShortestKey) {
    return "the key has " + std::to_string(text.size()) +
           " hexadecimal digits; a public key has 64: copy the whole KEY of the line \"" +
           std::string(kPublicWord) + " NAME KEY\"";
  }
  return text +
         ": there is no such file; give a file of public keys (what `metaroce keygen --x25519` "
         "prints), or the 64 hexadecimal digits of one";
}

template <class List>
bool has_name(const List& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.name == name; });
}

}  // namespace

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("._-@:").find(c) != std::string_view::npos;
         });
}

std::string to_hex(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  // At once: a string that grows leaves the digits of a key in the buffers that it gave back.
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    text += kDigits[static_cast<uint8_t>(b) >> 4];
    text += kDigits[static_cast<uint8_t>(b) & 15];
  }
  return text;
}

bool from_hex(std::string_view text, std::span<std::byte, 32> out) {
  if (text.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return false;
    const auto high = static_cast<uint8_t>(i % 2 == 0 ? 0 : static_cast<uint8_t>(out[i / 2]) << 4);
    out[i / 2] = static_cast<std::byte>(high | digit);
  }
  return true;
}

Done read_psk_file(const std::string& path, Config& config) {
  Text text;
  if (auto done = read_file(path, Holds::kSecrets, text); !done) return done;
  return for_each_key(path, text, kPskWord, [&](std::string name, const Secret& key) {
    if (has_name(config.psks, name)) return false;
    config.psks.push_back({std::move(name), key});
    return true;
  });
}

Done read_own_key_file(const std::string& path, Config& config) {
  Text text;
  if (auto done = read_file(path, Holds::kSecrets, text); !done) return done;
  return for_each_key(path, text, kPrivateWord, [&](std::string name, const Secret& key) {
    if (has_name(config.own, name)) return false;
    config.own.push_back({std::move(name), key, x25519_public(key)});
    return true;
  });
}

Done read_peer_key(const std::string& text, Config& config) {
  PublicKey direct;
  if (from_hex(text, direct)) {
    config.peers.push_back({text.substr(0, 16), direct});
    return {};
  }
  if (::access(text.c_str(), F_OK) != 0 && errno == ENOENT) return unexpected(no_such_key(text));
  Text content;
  if (auto done = read_file(text, Holds::kPublicKeys, content); !done) return done;
  return for_each_key(text, content, kPublicWord, [&](std::string name, const Secret& key) {
    if (has_name(config.peers, name)) return false;
    PeerKey peer{std::move(name), {}};
    std::copy(key.bytes().begin(), key.bytes().end(), peer.key.begin());
    config.peers.push_back(std::move(peer));
    return true;
  });
}

Expected<std::string, std::string> write_new_key(const std::string& path, Mode mode,
                                                 const std::string& name, RandomSource& random) {
  if (!valid_name(name)) {
    return unexpected("the name \"" + name + "\" must be 1 to 64 letters, digits and .-_@:");
  }
  Secret key;
  random.fill(key.bytes());
  Text text;
  text.bytes.reserve(256);
  text.bytes += mode == Mode::kPsk ? kPskWord : kPrivateWord;
  text.bytes += " " + name + " ";
  Text hex{to_hex(key.bytes())};
  text.bytes += hex.bytes + "\n";
  // Never over a key that somebody still needs, never through a link that somebody laid.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return unexpected(errno == EEXIST ? path + " exists; a key is never overwritten"
                                      : system_text(path, "create"));
  }
  const ssize_t n = ::write(fd, text.bytes.data(), text.bytes.size());
  const bool written = n == static_cast<ssize_t>(text.bytes.size()) && ::fsync(fd) == 0;
  const int code = errno;
  ::close(fd);
  if (!written) {
    ::unlink(path.c_str());
    errno = code;
    return unexpected(system_text(path, "write"));
  }
  if (mode == Mode::kPsk) return std::string();
  return std::string(kPublicWord) + " " + name + " " + to_hex(x25519_public(key));
}

}  // namespace metaroce::secure
