// SPDX-License-Identifier: Apache-2.0
#include "proto/job_file/yaml_tree.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace blockswap::proto {
namespace {

using testing::HasSubstr;

std::string Refusal(const std::string& text) {
  const absl::StatusOr<YamlNode> node = ParseYamlTree(text);
  if (node.ok()) return "accepted";
  EXPECT_EQ(node.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(node.status().message());
}

TEST(YamlTreeTest, KeepsOrderLinesAndQuotes) {
  const absl::StatusOr<YamlNode> root = ParseYamlTree("a: 1\nb:\n  - x\n  - 'y'\nc: {d: ~}\n");
  ASSERT_TRUE(root.ok()) << root.status();
  ASSERT_EQ(root->entries.size(), 3u);
  EXPECT_EQ(root->entries[0].key, "a");
  EXPECT_EQ(root->entries[0].value.text, "1");
  EXPECT_EQ(root->entries[1].line, 2);
  ASSERT_EQ(root->entries[1].value.items.size(), 2u);
  EXPECT_FALSE(root->entries[1].value.items[0].quoted);
  EXPECT_TRUE(root->entries[1].value.items[1].quoted);
  EXPECT_EQ(root->entries[2].value.entries[0].value.kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root->entries[2].line, 5);
}

// The parser decodes \N and \_ to a byte that is no character: text that no message may hold.
TEST(YamlTreeTest, RefusesEscapesThatAreNoUtf8) {
  for (const char* escape : {R"(\N)", R"(\_)"}) {
    const std::string quoted = absl::StrCat("\"x", escape, "\"");
    EXPECT_THAT(Refusal(absl::StrCat("a: ", quoted, "\n")), HasSubstr("UTF-8")) << escape;
    EXPECT_THAT(Refusal(absl::StrCat(quoted, ": 1\n")), HasSubstr("UTF-8")) << escape;
  }
}

TEST(YamlTreeTest, ReadsJson) {
  const absl::StatusOr<YamlNode> root =
      ParseYamlTree(R"({"name": "x\u00e9", "list": [1, 2.5, true, null], "t": {"a": ""}})");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->entries[0].value.text, "x\xc3\xa9");
  EXPECT_EQ(root->entries[1].value.items.size(), 4u);
  EXPECT_TRUE(root->entries[2].value.entries[0].value.quoted);
}

TEST(YamlTreeTest, RefusesWhatMakesSmallFilesHuge) {
  EXPECT_THAT(Refusal("a: &x [1, 2]\nb: *x\n"), HasSubstr("anchors"));
  EXPECT_THAT(Refusal("a: *x\n"), HasSubstr("line 1"));
  EXPECT_THAT(Refusal(std::string(kMaxYamlBytes + 1, '#')), HasSubstr("too large"));
  EXPECT_THAT(Refusal(absl::StrCat(std::string(20, '['), "1", std::string(20, ']'))),
              HasSubstr("deeper than 16"));
  EXPECT_NE(Refusal(std::string(kMaxYamlBytes, '[')), "accepted");
  EXPECT_NE(Refusal(std::string(kMaxYamlBytes, '{')), "accepted");
  std::string dashes;
  for (int i = 0; i < 5000; ++i) dashes += "- ";
  EXPECT_NE(Refusal(dashes), "accepted");
}

TEST(YamlTreeTest, RefusesWhatIsNotOnePlainDocument) {
  EXPECT_THAT(Refusal(""), HasSubstr("empty"));
  EXPECT_THAT(Refusal("# only a comment\n"), HasSubstr("empty"));
  EXPECT_THAT(Refusal("a: 1\n---\nb: 2\n"), HasSubstr("more than one document"));
  EXPECT_THAT(Refusal("a: !!python/object x\n"), HasSubstr("tags"));
  EXPECT_THAT(Refusal("? [a]\n: 1\n"), HasSubstr("a key must be text"));
  EXPECT_THAT(Refusal("a: [1\n"), HasSubstr("not YAML: line"));
  EXPECT_THAT(Refusal("a: 1\n b: 2\n"), HasSubstr("line 2"));
}

TEST(YamlTreeTest, RefusesBytesThatAreNotText) {
  EXPECT_THAT(Refusal(std::string("a: b\0c", 6)), HasSubstr("byte 0"));
  EXPECT_THAT(Refusal("a: 1\nb: \xff\n"), HasSubstr("line 2: not UTF-8"));
  EXPECT_THAT(Refusal("a: \xc0\xaf"), HasSubstr("not UTF-8"));      // overlong
  EXPECT_THAT(Refusal("a: \xed\xa0\x80"), HasSubstr("not UTF-8"));  // surrogate
  EXPECT_THAT(Refusal("a: \xe2\x82"), HasSubstr("not UTF-8"));      // cut off
  EXPECT_THAT(Refusal("a: \"x\\0y\"\n"), HasSubstr("control character"));
  EXPECT_EQ(Refusal("\xef\xbb\xbf"
                    "a: \xe2\x82\xac\n"),
            "accepted");
}

}  // namespace
}  // namespace blockswap::proto
