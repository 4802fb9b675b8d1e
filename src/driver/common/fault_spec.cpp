#include "driver/common/fault_spec.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <optional>

namespace metaroce::driver {
namespace {

constexpr uint64_t kAlways = 1ull << 32;

Error bad(std::string_view clause, const std::string& why, const std::string& remedy) {
  return {0, fmt::format("fault \"{}\": {}; {}", clause, why, remedy)};
}

std::optional<FaultKind> kind_of(std::string_view name) {
  if (name == "dup") return FaultKind::kDuplicate;
  for (uint8_t k = 0; k < static_cast<uint8_t>(FaultKind::kCount); ++k) {
    if (name == to_string(static_cast<FaultKind>(k))) return static_cast<FaultKind>(k);
  }
  return std::nullopt;
}

/// The number at the start of `text`, which is cut off.
std::optional<double> take_number(std::string_view& text) {
  double value = 0;
  const auto [at, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(at - text.data()));
  return value;
}

std::optional<Duration> parse_time(std::string_view text) {
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  double unit = 0;
  if (text == "ns") unit = 1;
  if (text == "us") unit = 1e3;
  if (text == "ms") unit = 1e6;
  if (text == "s") unit = 1e9;
  if (unit == 0 || *number * unit > 1e15) return std::nullopt;
  return Duration{std::llround(*number * unit)};
}

std::optional<uint64_t> parse_chance(std::string_view text) {
  auto number = take_number(text);
  if (!number || !(text.empty() || text == "%")) return std::nullopt;
  if (text == "%") *number /= 100;
  if (*number > 1) return std::nullopt;
  return static_cast<uint64_t>(std::llround(*number * static_cast<double>(kAlways)));
}

std::optional<uint64_t> parse_integer(std::string_view text, uint64_t largest) {
  uint64_t value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || at != text.data() + text.size() || value > largest) {
    return std::nullopt;
  }
  return value;
}

bool parse_hold(FaultRule& rule, std::string_view text) {
  const size_t dash = text.find('-');
  const auto low = parse_time(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? low : parse_time(text.substr(dash + 1));
  if (!low || !high || *high < *low) return false;
  rule.hold_min = *low;
  rule.hold_max = *high;
  return true;
}

std::string_view cut(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view first = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return first;
}

/// One detail behind a colon; the reason when it makes no sense.
std::optional<std::string> parse_detail(FaultRule& rule, std::string_view detail) {
  std::string_view value = detail;
  const std::string_view name = cut(value, '=');
  if (name.size() == detail.size()) {
    if (parse_hold(rule, detail)) return std::nullopt;
    return fmt::format("\"{}\" is neither a time nor NAME=VALUE", detail);
  }
  if (name == "plane" || name == "path") {
    const auto n = parse_integer(value, name == "plane" ? 15 : 255);
    if (!n) return fmt::format("{} must be 0..{}", name, name == "plane" ? 15 : 255);
    (name == "plane" ? rule.plane : rule.path) = static_cast<int>(*n);
    return std::nullopt;
  }
  if (name == "dir") {
    if (value == "rx") rule.direction = Direction::kReceive;
    if (value == "tx") rule.direction = Direction::kTransmit;
    if (value == "both") rule.direction = Direction::kBoth;
    if (value == "rx" || value == "tx" || value == "both") return std::nullopt;
    return "dir must be rx, tx or both";
  }
  return fmt::format("unknown detail \"{}\"", name);
}

bool parse_window(FaultRule& rule, std::string_view window) {
  const size_t dash = window.find('-');
  if (dash == std::string_view::npos) return false;
  const auto from = parse_time(window.substr(0, dash));
  if (!from) return false;
  rule.from = *from;
  if (dash + 1 == window.size()) return true;
  const auto to = parse_time(window.substr(dash + 1));
  if (!to || *to <= *from) return false;
  rule.to = *to;
  return true;
}

/// What stands behind "=": a chance, or for delay also a time.
bool parse_value(FaultRule& rule, std::string_view value) {
  if (const auto chance = parse_chance(value)) {
    rule.chance = *chance;
    return true;
  }
  return rule.kind == FaultKind::kDelay && parse_hold(rule, value);
}

Expected<FaultRule, Error> parse_clause(std::string_view clause) {
  std::string_view details = clause;
  // The window of "@" may stand before "=", so the first part ends at the first colon.
  std::string_view value = cut(details, ':');
  const bool has_value = value.find('=') != std::string_view::npos;
  std::string_view window = cut(value, '=');
  const bool has_window = window.find('@') != std::string_view::npos;
  const std::string_view name = cut(window, '@');
  const auto kind = kind_of(name);
  if (!kind) {
    return unexpected(bad(clause, fmt::format("unknown kind \"{}\"", name),
                          "use drop, duplicate, delay, reorder, corrupt, mark or blackhole"));
  }
  FaultRule rule;
  rule.kind = *kind;
  if (has_window && !parse_window(rule, window)) {
    return unexpected(bad(clause, fmt::format("\"{}\" is no span of time", window),
                          "write for example @2s-5s or @2s-"));
  }
  if (has_value && !parse_value(rule, value)) {
    return unexpected(bad(clause, fmt::format("\"{}\" is no chance", value),
                          "write a part of 1 or a percentage, for example 0.01 or 1%"));
  }
  while (!details.empty()) {
    if (const auto why = parse_detail(rule, cut(details, ':'))) {
      return unexpected(bad(clause, *why, "details are TIME, plane=N, path=N and dir=rx|tx|both"));
    }
  }
  const bool holds = *kind == FaultKind::kDelay || *kind == FaultKind::kReorder;
  if (holds && rule.hold_max.ns == 0) {
    return unexpected(bad(clause, "no time is given", "add one, for example :50us"));
  }
  if (!holds && *kind != FaultKind::kDuplicate && rule.hold_max.ns != 0) {
    return unexpected(bad(clause, "a time has no meaning here", "leave it out"));
  }
  if (!has_value && *kind != FaultKind::kBlackhole) {
    return unexpected(bad(clause, "no chance is given", "write for example drop=1%"));
  }
  return rule;
}

}  // namespace

const char* to_string(FaultKind kind) {
  static constexpr const char* kNames[] = {"drop",    "duplicate", "delay",    "reorder",
                                           "corrupt", "mark",      "blackhole"};
  return kind < FaultKind::kCount ? kNames[static_cast<size_t>(kind)] : "none";
}

Expected<FaultSpec, Error> parse_faults(std::string_view text) {
  FaultSpec spec;
  while (!text.empty()) {
    const std::string_view clause = cut(text, ',');
    if (clause.empty()) continue;
    if (clause.starts_with("seed=")) {
      const auto seed = parse_integer(clause.substr(5), UINT64_MAX);
      if (!seed) return unexpected(bad(clause, "is no number", "write seed=NUMBER"));
      spec.seed = *seed;
      continue;
    }
    auto rule = parse_clause(clause);
    if (!rule) return unexpected(rule.error());
    spec.rules.push_back(*rule);
  }
  return spec;
}

}  // namespace metaroce::driver
