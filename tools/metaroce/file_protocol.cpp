#include "file_protocol.h"

#include <algorithm>

namespace metaroce::tool {
namespace {

class Writer {
 public:
  explicit Writer(uint8_t type) { number(type, 1); }
  Writer& number(uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) {
      out_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xFF));
    }
    return *this;
  }
  Writer& text(const std::string& value, size_t limit) {
    const size_t length = std::min(value.size(), limit);
    number(length, 2);
    for (size_t i = 0; i < length; ++i) out_.push_back(static_cast<std::byte>(value[i]));
    return *this;
  }
  Writer& digest(const Sha256& value) {
    for (const uint8_t b : value) out_.push_back(static_cast<std::byte>(b));
    return *this;
  }
  Bytes take() { return std::move(out_); }

 private:
  Bytes out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  Reader& number(T& value, int bytes) {
    uint64_t result = 0;
    if (!need(static_cast<size_t>(bytes))) return *this;
    for (int i = 0; i < bytes; ++i) result = (result << 8) | static_cast<uint8_t>(bytes_[at_++]);
    value = static_cast<T>(result);
    return *this;
  }
  Reader& flag(bool& value) {
    uint8_t byte = 0;
    number(byte, 1);
    if (byte > 1) ok_ = false;
    value = byte == 1;
    return *this;
  }
  Reader& text(std::string& value, size_t limit) {
    size_t length = 0;
    number(length, 2);
    if (length > limit) ok_ = false;
    if (!need(length)) return *this;
    value.assign(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return *this;
  }
  Reader& digest(Sha256& value) {
    if (!need(value.size())) return *this;
    for (uint8_t& b : value) b = static_cast<uint8_t>(bytes_[at_++]);
    return *this;
  }
  bool complete() const { return ok_ && at_ == bytes_.size(); }

 private:
  bool need(size_t count) {
    if (bytes_.size() - at_ < count) ok_ = false;
    return ok_;
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Longer than any name the receiver accepts, so that its refusal can name the cause.
constexpr size_t kMaxNameOnWire = 6000;

struct Encoder {
  Bytes operator()(const Hello& m) const {
    return Writer(1).number(m.version, 2).number(m.session_high, 8).number(m.session_low, 8)
        .number(m.link, 2).number(m.links, 2).take();
  }
  Bytes operator()(const Welcome& m) const {
    return Writer(2).number(m.version, 2).number(m.key, 4).number(m.address, 8)
        .number(m.slot_bytes, 4).number(m.slots, 2).take();
  }
  Bytes operator()(const Offer& m) const {
    return Writer(3).number(m.item, 4).number(static_cast<uint8_t>(m.kind), 1).number(m.size, 8)
        .number(m.mode, 2).number(static_cast<uint64_t>(m.mtime_ns), 8)
        .text(m.name, kMaxNameOnWire).take();
  }
  Bytes operator()(const Answer& m) const {
    return Writer(4).number(m.item, 4).number(m.accepted, 1).text(m.text, kMaxText).take();
  }
  Bytes operator()(const Data& m) const {
    return Writer(5).number(m.item, 4).number(m.offset, 8).number(m.length, 4).number(m.slot, 2)
        .take();
  }
  Bytes operator()(const Free& m) const { return Writer(6).number(m.slot, 2).take(); }
  Bytes operator()(const Done& m) const {
    return Writer(7).number(m.item, 4).number(m.size, 8).digest(m.sha256).take();
  }
  Bytes operator()(const Cancel& m) const {
    return Writer(8).number(m.item, 4).text(m.text, kMaxText).take();
  }
  Bytes operator()(const Verdict& m) const {
    return Writer(9).number(m.item, 4).number(m.stored, 1).text(m.text, kMaxNameOnWire).take();
  }
  Bytes operator()(const Abort& m) const { return Writer(10).text(m.text, kMaxText).take(); }
  Bytes operator()(const Bye& m) const {
    return Writer(11).number(m.items, 4).number(m.bytes, 8).take();
  }
};

template <class M>
void read_message(Reader& r, M& m) {
  if constexpr (std::is_same_v<M, Hello>) {
    r.number(m.version, 2).number(m.session_high, 8).number(m.session_low, 8).number(m.link, 2)
        .number(m.links, 2);
  } else if constexpr (std::is_same_v<M, Welcome>) {
    r.number(m.version, 2).number(m.key, 4).number(m.address, 8).number(m.slot_bytes, 4)
        .number(m.slots, 2);
  } else if constexpr (std::is_same_v<M, Offer>) {
    r.number(m.item, 4).number(m.kind, 1).number(m.size, 8).number(m.mode, 2)
        .number(m.mtime_ns, 8).text(m.name, kMaxNameOnWire);
  } else if constexpr (std::is_same_v<M, Answer>) {
    r.number(m.item, 4).flag(m.accepted).text(m.text, kMaxText);
  } else if constexpr (std::is_same_v<M, Data>) {
    r.number(m.item, 4).number(m.offset, 8).number(m.length, 4).number(m.slot, 2);
  } else if constexpr (std::is_same_v<M, Free>) {
    r.number(m.slot, 2);
  } else if constexpr (std::is_same_v<M, Done>) {
    r.number(m.item, 4).number(m.size, 8).digest(m.sha256);
  } else if constexpr (std::is_same_v<M, Cancel>) {
    r.number(m.item, 4).text(m.text, kMaxText);
  } else if constexpr (std::is_same_v<M, Verdict>) {
    r.number(m.item, 4).flag(m.stored).text(m.text, kMaxNameOnWire);
  } else if constexpr (std::is_same_v<M, Abort>) {
    r.text(m.text, kMaxText);
  } else {
    r.number(m.items, 4).number(m.bytes, 8);
  }
}

template <size_t I = 0>
bool read_as(size_t index, Reader& r, Message& out) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (index != I) return read_as<I + 1>(index, r, out);
    read_message(r, out.emplace<I>());
    return r.complete();
  } else {
    return false;
  }
}

}  // namespace

Bytes encode(const Message& message) { return std::visit(Encoder{}, message); }

Expected<Message, std::string> decode(std::span<const std::byte> bytes) {
  if (bytes.empty()) return unexpected(std::string("an empty message"));
  const uint8_t type = static_cast<uint8_t>(bytes[0]);
  if (type == 0 || type > std::variant_size_v<Message>) {
    return unexpected("an unknown message type " + std::to_string(type));
  }
  Message out;
  Reader reader(bytes.subspan(1));
  if (!read_as(type - 1u, reader, out)) {
    return unexpected("a malformed message of type " + std::to_string(type));
  }
  const Offer* offer = std::get_if<Offer>(&out);
  if (offer != nullptr && offer->kind != ItemKind::kFile && offer->kind != ItemKind::kDirectory) {
    return unexpected(std::string("an offer of an unknown kind"));
  }
  return out;
}

std::string to_hex(const Sha256& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t b : digest) {
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 15]);
  }
  return out;
}

}  // namespace metaroce::tool
