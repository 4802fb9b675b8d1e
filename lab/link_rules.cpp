#include "lab/link_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace metaroce::lab {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kShares[] = {{"%", 1e4}, {"ppm", 1}};
constexpr Unit kTimes[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
constexpr Unit kRates[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}};
constexpr Unit kSizes[] = {{"k", 1e3}, {"m", 1e6}, {"", 1}};

template <size_t N>
std::string names_of(const Unit (&units)[N]) {
  std::string out;
  for (const Unit& u : units) {
    if (!u.name.empty()) out += (out.empty() ? "" : ", ") + std::string(u.name);
  }
  return out;
}

/// A number with one of these units, at least 0 and at most `most` after it.
template <size_t N>
Expected<double, std::string> measure(std::string_view text, const Unit (&units)[N], double most) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(read.ptr, static_cast<size_t>(text.data() + text.size() - read.ptr));
  if (read.ec == std::errc{} && value == 0 && rest.empty()) return 0;  // whatever its unit
  const auto unit = std::find_if(std::begin(units), std::end(units),
                                 [&](const Unit& u) { return u.name == rest; });
  if (read.ec != std::errc{} || unit == std::end(units)) {
    return unexpected(fmt::format("'{}' is no number with a unit ({})", text, names_of(units)));
  }
  value *= unit->factor;
  if (!(value >= 0) || value > most) {
    return unexpected(
        fmt::format("'{}' is out of range (0 to {:g} {})", text, most / unit->factor, unit->name));
  }
  return value;
}

template <class T, size_t N>
Expected<bool, std::string> put(T& field, std::string_view text, const Unit (&units)[N],
                                double most = std::numeric_limits<T>::max()) {
  const auto value = measure(text, units, most);
  if (!value) return unexpected(value.error());
  field = static_cast<T>(std::llround(*value));
  return true;
}

Expected<bool, std::string> put_flag(bool& field, std::string_view text) {
  if (text != "on" && text != "off" && text != "true" && text != "false") {
    return unexpected(fmt::format("'{}' must be on or off", text));
  }
  field = text == "on" || text == "true";
  return true;
}

constexpr double kAll = 1e6;        // ppm
constexpr double kMostQueue = 1e9;  // bytes; the token bucket behind has twice as many
constexpr std::string_view kKeys =
    "loss, ge, corrupt, dup, reorder, delay, jitter, rate, queue, mark, dark, bleach, trim, flap";

/// Two values with a separator between them: "IN/OUT", "SHARE:LATE".
bool split(std::string_view text, char by, std::string_view& a, std::string_view& b) {
  const size_t at = text.find(by);
  if (at == std::string_view::npos) return false;
  a = text.substr(0, at);
  b = text.substr(at + 1);
  return true;
}

}  // namespace

Expected<bool, std::string> set_rule(LinkRules& r, std::string_view key, std::string_view value) {
  std::string_view a, b;
  if (key == "loss") return put(r.loss_ppm, value, kShares, kAll);
  if (key == "corrupt") return put(r.corrupt_ppm, value, kShares, kAll);
  if (key == "dup") return put(r.duplicate_ppm, value, kShares, kAll);
  if (key == "delay") return put(r.delay_us, value, kTimes, 1e7);
  if (key == "jitter") return put(r.jitter_us, value, kTimes, 1e7);
  if (key == "rate") return put(r.rate_bps, value, kRates, 1e12);
  if (key == "queue") return put(r.queue_bytes, value, kSizes, kMostQueue);
  if (key == "mark") return put(r.mark_bytes, value, kSizes);
  if (key == "flap") {
    const auto done = put(r.flap_ms, value, kTimes, 1e7);
    r.flap_ms = (r.flap_ms + 999) / 1000;
    return done;
  }
  if (key == "dark") return put_flag(r.dark, value);
  if (key == "bleach") return put_flag(r.bleach, value);
  if (key == "trim") return put_flag(r.trim, value);
  if (key == "ge") {
    if (!split(value, '/', a, b)) return unexpected("'ge' is BEGIN/END, such as 0.1%/10%");
    const auto in = put(r.burst_in_ppm, a, kShares, kAll);
    return in ? put(r.burst_out_ppm, b, kShares, kAll) : in;
  }
  if (key == "reorder") {
    if (!split(value, ':', a, b)) return unexpected("'reorder' is SHARE:LATE, such as 1%:500us");
    const auto share = put(r.reorder_ppm, a, kShares, kAll);
    return share ? put(r.late_us, b, kTimes, 1e7) : share;
  }
  return unexpected(fmt::format("'{}' is no rule of a link; there are {}", key, kKeys));
}

Expected<LinkRules, std::string> parse_rules(std::string_view words, LinkRules rules) {
  size_t at = 0;
  while (at < words.size()) {
    const size_t end = std::min(words.find_first_of(", ", at), words.size());
    const std::string_view word = words.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (word == "none") {  // what follows is all there is
      rules = LinkRules{};
      continue;
    }
    std::string_view key, value;
    if (!split(word, '=', key, value)) {
      return unexpected(fmt::format("'{}' must be KEY=VALUE; keys are {}", word, kKeys));
    }
    const auto set = set_rule(rules, key, value);
    if (!set) return unexpected(fmt::format("{}: {}", key, set.error()));
  }
  if ((rules.mark_bytes != 0 || rules.queue_bytes != 0 || rules.trim) && rules.rate_bps == 0) {
    return unexpected("mark, queue and trim are of a queue; give it a rate, such as rate=100mbit");
  }
  return rules;
}

std::string print_rules(const LinkRules& r) {
  std::string out;
  const auto add = [&out](const std::string& word) { out += (out.empty() ? "" : ",") + word; };
  const auto share = [&add](const char* key, uint32_t ppm) {
    if (ppm != 0) add(fmt::format("{}={:g}%", key, ppm / 1e4));
  };
  const auto time = [&add](const char* key, uint32_t us) {
    if (us != 0) add(fmt::format("{}={}us", key, us));
  };
  share("loss", r.loss_ppm);
  if (r.burst_in_ppm != 0) {
    add(fmt::format("ge={:g}%/{:g}%", r.burst_in_ppm / 1e4, r.burst_out_ppm / 1e4));
  }
  share("corrupt", r.corrupt_ppm);
  share("dup", r.duplicate_ppm);
  if (r.reorder_ppm != 0) add(fmt::format("reorder={:g}%:{}us", r.reorder_ppm / 1e4, r.late_us));
  time("delay", r.delay_us);
  time("jitter", r.jitter_us);
  if (r.rate_bps != 0) add(fmt::format("rate={:g}mbit", static_cast<double>(r.rate_bps) / 1e6));
  if (r.queue_bytes != 0) add(fmt::format("queue={}", r.queue_bytes));
  if (r.mark_bytes != 0) add(fmt::format("mark={}", r.mark_bytes));
  if (r.dark) add("dark=on");
  if (r.bleach) add("bleach=on");
  if (r.trim) add("trim=on");
  if (r.flap_ms != 0) add(fmt::format("flap={}ms", r.flap_ms));
  return out.empty() ? "none" : out;
}

uint32_t queue_of(const LinkRules& r) {
  if (r.queue_bytes != 0) return r.queue_bytes;
  return static_cast<uint32_t>(std::clamp<uint64_t>(r.rate_bps / 80, 64u << 10, 4u << 20));
}

bool needs_wire(const LinkRules& r) {
  return r.delay_us != 0 || r.jitter_us != 0 || r.reorder_ppm != 0;
}

}  // namespace metaroce::lab
