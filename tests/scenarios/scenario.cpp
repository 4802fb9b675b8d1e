#include "tests/scenarios/scenario.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "base/settings.h"
#include "lab/strict_table.h"
#include "tests/scenarios/scenario_fields.h"

namespace metaroce::scenarios {

namespace {

using Problem = lab::TomlProblem;

class Reader : public lab::StrictTable {
 public:
  using StrictTable::StrictTable;

  void integer(const char* key, int64_t& out, int64_t low, int64_t high) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    if (!node->is_integer()) fail(*node, key, "must be a whole number");
    const int64_t v = node->as_integer()->get();
    if (v < low || v > high) fail(*node, key, fmt::format("must be in {} to {}", low, high));
    out = v;
  }
  void number(const char* key, double& out) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    const auto v = node->value<double>();
    if (!node->is_number() || !v || !(*v >= -1) || *v > 1e12)
      fail(*node, key, "must be a number of at least -1 (off)");
    out = *v;
  }
  void word(const char* key, std::string& out, std::initializer_list<const char*> words) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    if (!node->is_string()) fail(*node, key, "must be a word in quotes");
    out = node->as_string()->get();
    std::string all;
    for (const char* w : words) {
      if (out == w) return;
      all += all.empty() ? "" : ", ";
      all += w;
    }
    fail(*node, key, "must be one of " + all);
  }
  template <class T>
  void table(const char* key, T& out) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    if (!node->is_table()) fail(*node, key, "must be a table");
    Reader inner(*node->as_table());
    visit(inner, out);
    inner.finish();
  }
  template <class T>
  void tables(const char* key, std::vector<T>& out) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    if (!node->is_array()) fail(*node, key, "must be written as [[...]]");
    for (const toml::node& element : *node->as_array()) {
      if (!element.is_table()) fail(element, key, "must be written as [[...]]");
      Reader inner(*element.as_table());
      out.emplace_back();
      visit(inner, out.back());
      inner.finish();
    }
  }
  void settings(const char* key, std::vector<std::pair<std::string, int64_t>>& out) {
    const toml::node* node = take(key);
    if (node == nullptr) return;
    if (!node->is_table()) fail(*node, key, "must be a table");
    Settings scratch;
    for (const auto& [name, value] : *node->as_table()) {
      const std::string word(name.str());
      if (!value.is_integer()) fail(value, word.c_str(), "must be a whole number");
      const int64_t v = value.as_integer()->get();
      const auto set = set_setting(scratch, word, std::to_string(v));
      if (!set)
        fail(value, word.c_str(),
             set.error() == SettingError::kUnknownName ? "is no setting" : "is out of range");
      out.emplace_back(word, v);
    }
  }
};

/// Writes what differs from the default.
template <class T>
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void integer(const char* key, int64_t& v, int64_t, int64_t) { line(key, fmt::to_string(v)); }
  void boolean(const char* key, bool& v) { line(key, v ? "true" : "false"); }
  void number(const char* key, double& v) {
    std::string s = fmt::format("{}", v);
    if (s.find_first_of(".e") == std::string::npos) s += ".0";
    line(key, s);
  }
  void word(const char* key, std::string& v, std::initializer_list<const char*>) {
    line(key, '"' + v + '"');
  }

  static std::vector<std::string> lines(T value) {
    std::string all;
    Writer w(all);
    visit(w, value);
    std::vector<std::string> result;
    std::istringstream in(all);
    for (std::string l; std::getline(in, l);) result.push_back(l);
    return result;
  }

 private:
  void line(const char* key, const std::string& v) { out_ += fmt::format("{} = {}\n", key, v); }
  std::string& out_;
};

template <class T>
std::string changed(const T& value, bool keep_first = false) {
  const auto mine = Writer<T>::lines(value);
  const auto defaults = Writer<T>::lines(T{});
  std::string out;
  for (size_t i = 0; i < mine.size(); ++i)
    if (mine[i] != defaults[i] || (i == 0 && keep_first)) out += mine[i] + "\n";
  return out;
}

template <class T>
void section(std::string& out, const char* head, const T& value) {
  const std::string body = changed(value);
  if (!body.empty()) out += fmt::format("\n[{}]\n{}", head, body);
}

}  // namespace

bool trouble_kind(const std::string& word, pair::ImpairmentKind& out) {
  using pair::ImpairmentKind;
  static const std::pair<const char*, ImpairmentKind> table[] = {
      {"loss", ImpairmentKind::kLoss},
      {"burst", ImpairmentKind::kBurst},
      {"duplicate", ImpairmentKind::kDuplicate},
      {"reorder", ImpairmentKind::kReorder},
      {"corrupt", ImpairmentKind::kCorrupt},
      {"mark", ImpairmentKind::kMark},
      {"dark", ImpairmentKind::kDark},
      {"rehash", ImpairmentKind::kRehash},
      {"delay", ImpairmentKind::kDelay},
      {"port_change", ImpairmentKind::kPortChange},
      {"mtu", ImpairmentKind::kMtu}};
  for (const auto& [name, kind] : table)
    if (word == name) {
      out = kind;
      return true;
    }
  return false;
}

Expected<Scenario, std::string> parse_scenario(std::string_view text, const std::string& name) {
  Scenario s;
  s.name = name;
  try {
    const toml::table root = toml::parse(text);
    Reader reader(root);
    reader.text("name", s.name);
    reader.text("about", s.about);
    reader.table("topology", s.topology);
    reader.settings("settings", s.settings);
    reader.tables("trouble", s.troubles);
    reader.tables("work", s.works);
    reader.table("check", s.checks);
    reader.table("run", s.run);
    reader.finish();
  } catch (const Problem& problem) {
    return unexpected(fmt::format("{}:{}: {}", name, problem.line, problem.text));
  } catch (const toml::parse_error& error) {
    return unexpected(fmt::format("{}:{}: {}", name, error.source().begin.line,
                                  std::string(error.description())));
  }
  if (s.works.empty()) return unexpected(name + ":1: a scenario needs at least one [[work]]");
  for (const Trouble& t : s.troubles)
    if (t.max_ns < t.min_ns) return unexpected(name + ":1: a trouble has max_ns below min_ns");
  return s;
}

Expected<Scenario, std::string> read_scenario(const std::string& path) {
  std::ifstream in(path);
  if (!in) return unexpected(path + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  auto result = parse_scenario(text.str(), path);
  if (result && result->name == path) {
    const size_t slash = path.find_last_of('/');
    std::string base = path.substr(slash == std::string::npos ? 0 : slash + 1);
    result->name = base.substr(0, base.find('.'));
  }
  return result;
}

std::string write_scenario(const Scenario& s) {
  std::string out = fmt::format("name = \"{}\"\nabout = \"{}\"\n", s.name, s.about);
  section(out, "topology", s.topology);
  if (!s.settings.empty()) out += "\n[settings]\n";
  for (const auto& [name, value] : s.settings) out += fmt::format("{} = {}\n", name, value);
  for (const Trouble& t : s.troubles) out += "\n[[trouble]]\n" + changed(t, true);
  for (const Work& w : s.works) out += "\n[[work]]\n" + changed(w, true);
  section(out, "check", s.checks);
  section(out, "run", s.run);
  return out;
}

}  // namespace metaroce::scenarios
