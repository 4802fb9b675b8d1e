// The codec against the golden packets of spec/vectors, which another program made from the table.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/covers.h"
#include "wire_table.h"

namespace metaroce::wire::table {
namespace {

using nlohmann::json;
using ByteVector = std::vector<std::byte>;

const char* const kDropNames[] = {
    "NONE",        "TOO_SHORT",   "BAD_VERSION", "BAD_TYPE",           "BAD_OPCODE",
    "BAD_LENGTH",  "BAD_FIELD",   "BAD_TLV",     "UNKNOWN_CONNECTION", "UNKNOWN_PATH",
    "PATH_WINDOW", "CPSN_WINDOW", "ACK_INVALID", "NOT_CONFIRMED",      "NO_STATE",
    "TABLE_FULL",  "BAD_TAG",     "KEY_GUESS"};
static_assert(std::size(kDropNames) == static_cast<size_t>(DropReason::kCount));

std::string name_of(DropReason r) { return kDropNames[static_cast<size_t>(r)]; }

ByteVector bytes_of(const std::string& hex) {
  ByteVector out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

Bits bits_of_json(const json& value, size_t width) {
  if (value.is_number()) return bits_of_number(value.get<uint64_t>(), width);
  const std::string digits = value.get<std::string>().substr(2);
  Bits b;
  for (const char c : digits) {
    const Bits four = bits_of_number(std::stoul(std::string(1, c), nullptr, 16), 4);
    b.insert(b.end(), four.begin(), four.end());
  }
  return b;
}

std::vector<json> load_all() {
  std::vector<std::filesystem::path> files;
  for (const auto& e : std::filesystem::directory_iterator(MR_SOURCE_DIR "/spec/vectors")) {
    if (e.path().extension() == ".json") files.push_back(e.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<json> vectors;
  for (const auto& file : files) {
    std::ifstream in(file);
    for (const json& v : json::parse(in)) vectors.push_back(v);
  }
  return vectors;
}

class WireVectors : public ::testing::Test {
 protected:
  static const std::vector<json>& all() {
    static const std::vector<json> vectors = load_all();
    return vectors;
  }
};

template <class P>
void expect_fields(const json& said, std::span<const Field<P>> fields, const P& packet) {
  for (const Field<P>& f : fields) {
    const std::string name(f.name);
    if (!said.contains(name)) continue;
    EXPECT_EQ(f.get(packet), bits_of_json(said[name], f.width)) << name;
  }
}

template <class P>
void check_valid(const Form<P>& form, const json& vector) {
  const ByteVector bytes = bytes_of(vector["hex"]);
  const Decoded<AnyPacket> decoded = decode(bytes);
  ASSERT_TRUE(decoded) << name_of(decoded.error());
  const P* packet = std::get_if<P>(&*decoded);
  ASSERT_NE(packet, nullptr);
  expect_fields(vector["fields"], form.fields, *packet);
  if constexpr (std::is_same_v<P, HelloPacket>) {
    for (const json& said : vector.value("tlvs", json::array())) {
      for_each_tlv([&](const auto& tlv) {
        if (said["tlv"] == std::string(tlv.name))
          expect_fields(said["fields"], tlv.fields, *packet);
      });
    }
  }
  const size_t payload = vector.value("payload_bytes", size_t{0});
  if constexpr (std::is_same_v<P, DataPacket>) {
    EXPECT_EQ(packet->payload_begin, form.bytes);
    EXPECT_EQ(packet->payload_length, payload);
  }
  if (!vector["canonical"].get<bool>()) return;
  const ByteVector again = encoded(*packet);
  EXPECT_EQ(again, ByteVector(bytes.begin(), bytes.end() - static_cast<ptrdiff_t>(payload)));
}

TEST_F(WireVectors, ValidOnesDecodeToTheirFieldsAndEncodeToTheirBytes) {
  MR_COVERS("MR-WIRE-002");
  MR_COVERS("MR-WIRE-026");
  MR_COVERS("MR-WIRE-060");
  size_t checked = 0;
  for_each_form([&](const auto& form) {
    size_t of_this_form = 0;
    for (const json& vector : all()) {
      if (!vector.contains("fields") || vector["form"] != std::string(form.name)) continue;
      SCOPED_TRACE(vector["name"].get<std::string>());
      check_valid(form, vector);
      ++of_this_form;
    }
    EXPECT_GE(of_this_form, 3u) << form.name;
    checked += of_this_form;
  });
  EXPECT_GE(checked, 34u * 3);
}

TEST_F(WireVectors, InvalidOnesGiveTheirDropReason) {
  MR_COVERS("MR-WIRE-005");
  MR_COVERS("MR-WIRE-006");
  MR_COVERS("MR-WIRE-028");
  MR_COVERS("MR-WIRE-030");
  MR_COVERS("MR-WIRE-047");
  MR_COVERS("MR-WIRE-056");
  MR_COVERS("MR-CONN-016");
  std::map<std::string, size_t> seen;
  for (const json& vector : all()) {
    if (!vector.contains("drop")) continue;
    SCOPED_TRACE(vector["name"].get<std::string>());
    const ByteVector bytes = bytes_of(vector["hex"]);
    const Decoded<AnyPacket> decoded = decode(bytes);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(name_of(decoded.error()), vector["drop"].get<std::string>());
    ++seen[vector["drop"]];
  }
  for (const char* reason : {"TOO_SHORT", "BAD_VERSION", "BAD_TYPE", "BAD_OPCODE", "BAD_LENGTH",
                             "BAD_FIELD", "BAD_TLV"}) {
    EXPECT_GT(seen[reason], 0u) << reason;
  }
}

// What a shorter packet of the same bytes may be: nothing, or one whose tail is shorter.
void check_truncation(const ByteVector& whole, size_t length) {
  // A copy of exactly this size, so that a sanitizer sees a read behind the end.
  const ByteVector part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
  const Decoded<AnyPacket> decoded = decode(part);
  if (!decoded) return;
  const Decoded<AnyPacket> full = decode(whole);
  if (const auto* data = std::get_if<DataPacket>(&*decoded)) {
    DataPacket expected = std::get<DataPacket>(*full);
    expected.payload_length -= static_cast<uint32_t>(whole.size() - length);
    EXPECT_EQ(*data, expected);
  } else if (std::holds_alternative<ProbePacket>(*decoded)) {
    EXPECT_EQ(*decoded, *full);
    EXPECT_GE(length, kProbeBytes);
  } else if (const auto* hello = std::get_if<HelloPacket>(&*decoded)) {
    EXPECT_EQ(*decoded, *full);
    EXPECT_GE(length, hello->is_accept ? kAcceptFixed : kMinHello - kCrcBytes);
  } else {
    ADD_FAILURE() << "a shorter packet of a kind without tail was taken, length " << length;
  }
}

TEST_F(WireVectors, EveryTruncationIsRefusedOrHasAShorterTail) {
  MR_COVERS("MR-WIRE-006");
  MR_COVERS("MR-WIRE-012");
  size_t truncations = 0;
  for (const json& vector : all()) {
    if (!vector.contains("fields")) continue;
    SCOPED_TRACE(vector["name"].get<std::string>());
    const ByteVector whole = bytes_of(vector["hex"]);
    for (size_t length = 0; length < whole.size(); ++length) check_truncation(whole, length);
    truncations += whole.size();
  }
  EXPECT_GT(truncations, 10'000u);
}

}  // namespace
}  // namespace metaroce::wire::table
