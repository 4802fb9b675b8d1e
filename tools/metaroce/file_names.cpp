#include "file_names.h"

namespace metaroce::tool {
namespace {

constexpr size_t kMaxName = 4095;
constexpr size_t kMaxComponent = 255;

// C0 and DEL, and the C1 range in its UTF-8 form (C2 80 to C2 9F).
bool is_control(std::string_view text, size_t i) {
  const auto c = static_cast<unsigned char>(text[i]);
  if (c < 0x20 || c == 0x7F) return true;
  if (c < 0x80 || c > 0x9F || i == 0) return false;
  return static_cast<unsigned char>(text[i - 1]) == 0xC2;
}

}  // namespace

std::string check_name(std::string_view name) {
  if (name.empty()) return "the name is empty";
  if (name.size() > kMaxName) {
    return "the name has " + std::to_string(name.size()) + " bytes, more than " +
           std::to_string(kMaxName);
  }
  if (name.front() == '/') return "the name is absolute";
  for (size_t i = 0; i < name.size(); ++i) {
    if (is_control(name, i)) return "the name contains a control character";
  }
  size_t begin = 0;
  while (begin <= name.size()) {
    size_t end = name.find('/', begin);
    if (end == std::string_view::npos) end = name.size();
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty()) return "the name has an empty component";
    if (part == "." || part == "..") {
      return "the name has a \"" + std::string(part) + "\" component";
    }
    if (part.size() > kMaxComponent) {
      return "a component of the name has more than " + std::to_string(kMaxComponent) + " bytes";
    }
    begin = end + 1;
  }
  return {};
}

std::string printable(std::string_view name) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (is_control(name, i)) {
      out += "\\x";
      out.push_back(kDigits[c >> 4]);
      out.push_back(kDigits[c & 15]);
    } else {
      out.push_back(name[i]);
    }
  }
  return out;
}

}  // namespace metaroce::tool
