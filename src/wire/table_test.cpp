// The codec against the field table of spec/wire: each field lies where the table says, and nothing
// but this field changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/covers.h"
#include "wire_table.h"

namespace metaroce::wire::table {
namespace {

MR_COVERS("MR-WIRE-001");
MR_COVERS("MR-WIRE-003");
MR_COVERS("MR-WIRE-020");
MR_COVERS("MR-WIRE-023");
MR_COVERS("MR-WIRE-024");
MR_COVERS("MR-WIRE-025");
MR_COVERS("MR-WIRE-031");
MR_COVERS("MR-WIRE-040");
MR_COVERS("MR-WIRE-041");
MR_COVERS("MR-WIRE-042");
MR_COVERS("MR-WIRE-043");
MR_COVERS("MR-WIRE-044");
MR_COVERS("MR-WIRE-050");
MR_COVERS("MR-WIRE-051");
MR_COVERS("MR-WIRE-052");

template <class P>
bool allowed(const Field<P>& f, const Bits& b) {
  if (f.width > 32) return true;
  const uint64_t v = number_of(b);
  const auto values = f.allowed_values();
  if (!values.empty()) return std::find(values.begin(), values.end(), v) != values.end();
  return v >= f.low && v <= f.high;
}

// Every single bit, none, all, and the ends of the range: as far as the range allows.
template <class P>
std::vector<Bits> candidates(const Field<P>& f) {
  std::vector<Bits> all{Bits(f.width, false), Bits(f.width, true)};
  for (size_t i = 0; i < f.width; ++i) {
    all.emplace_back(f.width, false);
    all.back()[i] = true;
  }
  if (f.width <= 32) {
    all.push_back(bits_of_number(f.low, f.width));
    all.push_back(bits_of_number(f.high, f.width));
    for (const uint64_t v : f.allowed_values()) all.push_back(bits_of_number(v, f.width));
  }
  std::vector<Bits> good;
  for (const Bits& b : all) {
    if (allowed(f, b)) good.push_back(b);
  }
  return good;
}

template <class P>
void check_value(const Form<P>& form, const Field<P>& f, const Bits& value, size_t shift) {
  P packet = form.base;
  f.set(packet, value);
  std::vector<std::byte> expected = encoded(form.base, form.payload_least);
  put_bits(expected, shift + f.at, value);
  ASSERT_EQ(encoded(packet, form.payload_least), expected) << "encode";

  const Decoded<AnyPacket> decoded = decode(expected);
  ASSERT_TRUE(decoded) << "drop reason " << static_cast<int>(decoded.error());
  const P* back = std::get_if<P>(&*decoded);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(f.get(*back), value);
  for (const Field<P>& other : form.fields) {
    if (other.name == f.name) continue;
    EXPECT_EQ(other.get(*back), other.get(form.base)) << other.name;
  }
}

template <class P>
void check_form(const Form<P>& form, size_t shift) {
  for (const Field<P>& f : form.fields) {
    SCOPED_TRACE(std::string(form.name) + "." + std::string(f.name));
    const std::vector<Bits> values = candidates(f);
    ASSERT_GE(values.size(), 2u);
    for (const Bits& value : values) {
      check_value(form, f, value, shift);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(WireTable, EveryFieldLiesWhereTheTableSays) {
  size_t forms = 0;
  for_each_form([&](const auto& form) {
    check_form(form, 0);
    ++forms;
  });
  EXPECT_EQ(forms, 35u);
}

TEST(WireTable, EncodedHeaderHasTheLengthOfTheTable) {
  for_each_form([](const auto& form) {
    SCOPED_TRACE(std::string(form.name));
    const size_t length = encoded(form.base).size();
    if (form.name == "HELLO") {
      EXPECT_EQ(length, kMinHello);
    } else if (form.name == "ACCEPT") {
      EXPECT_EQ(length, kAcceptFixed + 4 + 16);  // the TLVs that always stand
    } else {
      EXPECT_EQ(length, form.bytes);
    }
  });
}

TEST(WireTable, EveryTlvFieldLiesWhereTheTableSays) {
  for_each_tlv([](const auto& tlv) {
    // Where our encoder puts it; the order of TLVs is free on the wire.
    const size_t at = tlv.name == "VERSIONS" ? 32 : tlv.name == "LIMITS" ? 36 : 52;
    const std::vector<std::byte> bytes = encoded(tlv.base);
    ASSERT_EQ(static_cast<size_t>(bytes[at + 1]), tlv.bytes - 2) << tlv.name;
    check_form(tlv, at * 8);
  });
}

}  // namespace
}  // namespace metaroce::wire::table
