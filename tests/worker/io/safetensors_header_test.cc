// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  absl::Status status;
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

Parsed Parse(absl::string_view header, int64_t data_bytes) {
  Parsed parsed;
  parsed.status = ParseSafetensorsHeader(header, data_bytes, &parsed.tensors, &parsed.metadata);
  return parsed;
}

std::string Message(const Parsed& parsed) {
  return std::string(parsed.status.message().data(), parsed.status.message().size());
}

std::string Tensor(const std::string& name, int64_t begin, int64_t end) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"U8\",\"shape\":[", end - begin,
                      "],\"data_offsets\":[", begin, ",", end, "]}");
}

TEST(SafetensorsHeaderTest, ReadsTypesShapesAndMetadataInAnyOrder) {
  const Parsed parsed = Parse(
      R"({"b":{"shape":[2,3],"data_offsets":[4,16],"dtype":"BF16"},)"
      R"("__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
      16);
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.tensors.at("a").shape, std::vector<int64_t>());
  EXPECT_EQ(parsed.tensors.at("b").type, StoredType::kBF16);
  EXPECT_EQ(parsed.tensors.at("b").offset, 4);
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
}

// F041: every way in which the tensors can fail to cover the data exactly once.
TEST(SafetensorsHeaderTest, RefusesOverlapsAndHolesAndNamesTheTensor) {
  const std::string a = Tensor("a", 0, 4), b = Tensor("b", 4, 8);
  struct Case {
    std::string header, expected;
  };
  const Case cases[] = {
      {absl::StrCat("{", a, ",", Tensor("twin", 0, 4), ",", b, "}"), "overlaps tensor \"a\" by 4"},
      {absl::StrCat("{", a, ",", Tensor("partial", 2, 8), "}"), "tensor \"partial\": overlaps"},
      {absl::StrCat("{", Tensor("late", 1, 8), "}"), "1 bytes before it belong to no tensor"},
      {absl::StrCat("{", Tensor("a", 0, 3), ",", b, "}"), "tensor \"b\": 1 bytes before it"},
      {absl::StrCat("{", Tensor("a", 0, 7), "}"), "1 bytes after the last tensor \"a\""},
      {absl::StrCat("{", a, ",", Tensor("b", 4, 9), "}"), "tensor \"b\": ends at byte 9"},
  };
  for (const Case& one : cases) {
    const Parsed parsed = Parse(one.header, 8);
    EXPECT_TRUE(absl::IsDataLoss(parsed.status)) << one.header;
    EXPECT_THAT(Message(parsed), HasSubstr(one.expected)) << one.header;
  }
  EXPECT_TRUE(Parse(absl::StrCat("{", b, ",", a, "}"), 8).status.ok()) << "unordered is allowed";
}

// F043 and row 35 of the fault list: malformed headers are refused by name and without allocating
// what they claim.
TEST(SafetensorsHeaderTest, RefusesMalformedHeaders) {
  const std::string ok = Tensor("a", 0, 4);
  struct Case {
    std::string header, expected;
  };
  const Case cases[] = {
      {"", "does not start with"},
      {" {}", "does not start with"},
      {"[]", "does not start with"},
      {"\xef\xbb\xbf{}", "does not start with"},
      {"{", "not valid JSON"},
      {"{} x", "not valid JSON"},
      {absl::StrCat("{", ok, "}{}"), "not valid JSON"},
      {"{\"\xff\xfe\":1}", "not valid JSON"},
      {std::string("{}\0junk", 7), "NUL byte at 2"},
      {absl::StrCat("{", ok, ",", ok, "}"), "tensor \"a\": the name appears twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       "dtype appears twice"},
      {R"({"a":{"dtype":"Q4","shape":[4],"data_offsets":[0,4]}})",
       "tensor \"a\": unknown dtype \"Q4\""},
      {R"({"a":{"dtype":"U8","shape":[4]}})", "must all be given"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0]}})", "must have two numbers"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}})", "more than 2 numbers"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "run backwards"},
      {R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", "negative number"},
      {R"({"a":{"dtype":"U8","shape":[4.5],"data_offsets":[0,4]}})", "no 63-bit integer"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4]}})", "63-bit"},
      {R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
       "overflows"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})",
       "take 16 bytes, data_offsets give 4"},
      {R"({"a":{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}})", "unexpected text"},
      {R"({"a":{"dtype":1,"shape":[4],"data_offsets":[0,4]}})", "tensor \"a\""},
      {R"({"a":{"dtype":["U8"],"shape":[4],"data_offsets":[0,4]}})", "tensor \"a\""},
      {R"({"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})", "tensor \"a\""},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"extra":[1]}})", "unknown field"},
      {R"({"a":[]})", "tensor \"a\": unexpected"},
      {R"({"a":1})", "tensor \"a\": unexpected a number"},
      {R"({"a":null})", "tensor \"a\": unexpected null"},
      {R"({"__metadata__":{},"__metadata__":{}})", "appears twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "appears twice"},
  };
  for (const Case& one : cases) {
    const Parsed parsed = Parse(one.header, 4);
    EXPECT_TRUE(absl::IsDataLoss(parsed.status)) << one.header << parsed.status;
    EXPECT_THAT(Message(parsed), HasSubstr(one.expected)) << one.header;
  }
}

TEST(SafetensorsHeaderTest, StopsAtDepthBombs) {
  for (const std::string& level : {std::string("["), std::string("{\"a\":")}) {
    std::string bomb = "{\"a\":";
    for (int i = 0; i < 20'000; ++i) bomb += level;
    EXPECT_TRUE(absl::IsDataLoss(Parse(bomb, 0).status));
  }
}

TEST(SafetensorsHeaderTest, RefusesMoreDimensionsThanAnyoneUses) {
  std::string header = R"({"a":{"dtype":"U8","data_offsets":[0,1],"shape":[1)";
  for (int i = 0; i < 1000; ++i) header += ",1";
  EXPECT_THAT(Message(Parse(header + "]}}", 1)), HasSubstr("shape has more than 32 numbers"));
}

// F109: no tensor at all is a valid file, metadata must be text.
TEST(SafetensorsHeaderTest, AcceptsNoTensorsAndRefusesMetadataThatIsNoText) {
  EXPECT_TRUE(Parse("{}", 0).status.ok());
  const Parsed parsed = Parse(R"({"__metadata__":{"a":"1"}})", 0);
  EXPECT_TRUE(parsed.status.ok());
  EXPECT_EQ(parsed.metadata.size(), 1u);
  for (const char* value : {"1", "null", "true", "{}", "[]", "1.5", "-1"}) {
    const Parsed bad = Parse(absl::StrCat(R"({"__metadata__":{"a":)", value, "}}"), 0);
    EXPECT_THAT(Message(bad), HasSubstr("must be text")) << value;
  }
  EXPECT_TRUE(absl::IsDataLoss(Parse(R"({"__metadata__":"x"})", 0).status));
}

TEST(SafetensorsHeaderTest, AcceptsEmptyTensorsAnywhere) {
  const Parsed parsed = Parse(
      absl::StrCat("{", Tensor("z", 4, 4), ",", Tensor("a", 0, 4), ",", Tensor("y", 0, 0), "}"), 4);
  EXPECT_TRUE(parsed.status.ok()) << parsed.status;
}

// Random damage to a good header is refused or accepted, but never more than that; run under the
// sanitizers.
TEST(SafetensorsHeaderTest, SurvivesRandomDamage) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string good = absl::StrCat("{", Tensor("a", 0, 4), ",", Tensor("b", 4, 8),
                                        R"(,"__metadata__":{"k":"v\u00e9"}})");
  for (int round = 0; round < 20'000; ++round) {
    std::string header = good;
    for (uint32_t edits = random() % 4 + 1; edits > 0; --edits) {
      const size_t at = random() % header.size();
      switch (random() % 3) {
        case 0:
          header[at] = static_cast<char>(random());
          break;
        case 1:
          header.erase(at, 1);
          break;
        default:
          header.insert(at, header.substr(random() % header.size(), random() % 8));
      }
      if (header.empty()) header.push_back('{');
    }
    const Parsed parsed = Parse(header, 8);
    if (parsed.status.ok()) {
      int64_t covered = 0;
      for (const auto& [name, entry] : parsed.tensors) covered += entry.bytes;
      ASSERT_EQ(covered, 8) << header;
    }
  }
}

}  // namespace
}  // namespace blockswap::worker
