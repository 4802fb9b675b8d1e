// A table of a TOML file of which every key has to be asked for: whatever is left is an error with
// its line. Readers of one kind of file add what their values may be.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string>

#include <toml++/toml.h>

namespace metaroce::lab {

/// Thrown; whoever knows the name of the file catches it.
struct TomlProblem {
  uint32_t line;
  std::string text;
};

class StrictTable {
 public:
  explicit StrictTable(const toml::table& table) : table_(table) {}

  void text(const char* key, std::string& out) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<std::string>();
    if (!value) fail(*node, key, "must be a text in quotes");
    out = *value;
  }
  void boolean(const char* key, bool& out) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<bool>();
    if (!value) fail(*node, key, "must be true or false");
    out = *value;
  }
  /// Null when it is not there.
  const toml::node* take(const char* key) {
    taken_.insert(key);
    return table_.get(key);
  }
  /// `hint`: with the keys there are.
  void finish(bool hint = false) const {
    for (const auto& [key, node] : table_) {
      if (taken_.contains(std::string(key.str()))) continue;
      std::string known;
      for (const std::string& k : taken_) known += (known.empty() ? "; there are " : ", ") + k;
      throw TomlProblem{
          key.source().begin.line,
          fmt::format("unknown key '{}'{}", std::string(key.str()), hint ? known : "")};
    }
  }
  [[noreturn]] static void fail(const toml::node& node, const char* key, const std::string& why) {
    throw TomlProblem{node.source().begin.line, fmt::format("'{}' {}", key, why)};
  }

 private:
  const toml::table& table_;
  std::set<std::string> taken_;
};

}  // namespace metaroce::lab
