// Files that hold keys (docs/keys.md), and the lines they are made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/random_source.h"
#include "secure/config.h"

namespace metaroce::secure {

/// A name is 1 to 64 bytes of letters, digits, '.', '_', '-', '@' and ':'.
bool valid_name(std::string_view name);
std::string to_hex(Bytes bytes);
/// True for exactly 64 hexadecimal digits.
bool from_hex(std::string_view text, std::span<std::byte, 32> out);

// Each adds what the file holds to `config`, or returns one line that names file, line and remedy.
// Files with secrets must be regular, and readable by nobody but their owner.

Expected<void, std::string> read_psk_file(const std::string& path, Config& config);
Expected<void, std::string> read_own_key_file(const std::string& path, Config& config);
/// `text` is a file of public keys, or one key itself as 64 hexadecimal digits.
Expected<void, std::string> read_peer_key(const std::string& text, Config& config);

/// A new key, written to a new file with mode 0600. Returns the line that others need: of X25519
/// the public key; of a pre-shared key nothing.
Expected<std::string, std::string> write_new_key(const std::string& path, Mode mode,
                                                 const std::string& name, RandomSource& random);

}  // namespace metaroce::secure
