// SPDX-License-Identifier: Apache-2.0
// Names that other programs take for patterns, and text that is not text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_dataset.h"
#include "worker/data/dataset.h"

namespace blockswap::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kLongestLine = 2000;

class NamesAndTextTest : public ::testing::Test {
 protected:
  // `toml_name`: the folder as a TOML string writes it, with its quotes.
  absl::StatusOr<std::shared_ptr<Dataset>> Open(const std::string& toml_name) {
    violations_.clear();
    return Dataset::Open(
        directory_.Write("d.toml", absl::StrCat("[[datasets]]\nresolution = 64\ncache_directory = ",
                                                toml_name, "\n")),
        **FindFamily("qwen_image"), TinyModelDescription(), MissingPolicy::kError, &violations_,
        "");
  }
  std::string AllViolations() { return std::string(ViolationsToStatus(violations_).message()); }
  void WriteItem(const std::string& folder, const std::string& item, const TinyText& text = {}) {
    WriteLatentCache(folder, item);
    WriteTextCache(folder, item, text);
  }

  const TempDirectory directory_;
  std::vector<FieldViolation> violations_;
};

std::string Quoted(const std::string& name) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(name, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

// F097: no name is a pattern.
TEST_F(NamesAndTextTest, FoldersAreFoundUnderAnyName) {
  for (const std::string& name :
       {std::string("a [v2]"), std::string("two  spaces"), std::string("star*"),
        std::string("100%s"), std::string("quote'and\"two"), std::string("line\nbreak"),
        std::string("?question"), std::string(255, 'n'), std::string("\xc3\xa4\xf0\x9f\x98\x80")}) {
    std::filesystem::create_directory(directory_.Path(name));
    WriteItem(directory_.Path(name), "one");
    const auto dataset = Open(Quoted(name));
    ASSERT_TRUE(dataset.ok()) << absl::CEscape(name) << ": " << dataset.status() << AllViolations();
    EXPECT_EQ((*dataset)->items().size(), 1u) << absl::CEscape(name);
  }
}

// F097: a name that TOML cannot hold is refused by name, not taken for another.
TEST_F(NamesAndTextTest, ANameThatIsNotUtf8IsRefused) {
  const std::string name = "not\xff\xfeutf8";
  std::filesystem::create_directory(directory_.Path(name));
  WriteItem(directory_.Path(name), "one");
  EXPECT_FALSE(Open(absl::StrCat("\"", name, "\"")).ok());
  EXPECT_THAT(AllViolations(), AllOf(HasSubstr("dataset.config: line 3"), HasSubstr("utf-8")));
}

// F097: the same holds for items.
TEST_F(NamesAndTextTest, ItemsMayHaveAnyName) {
  directory_.Make("cache");
  const std::vector<std::string> names = {"a [v2]",      "star*", "100%s",          "quote'\"two",
                                          "line\nbreak", "_",     "not\xff\xfeutf8"};
  for (const std::string& name : names) WriteItem(directory_.Path("cache"), name);
  const auto dataset = Open("'cache'");
  ASSERT_TRUE(dataset.ok()) << dataset.status() << AllViolations();
  EXPECT_EQ((*dataset)->items().size(), names.size());
}

// A safetensors file whose caption is these bytes of JSON, as they are.
void WriteRawCaption(const std::string& path, const std::string& json_of_caption) {
  const std::string header = absl::StrCat(
      R"({"__metadata__":{"architecture":"qwen_image","format_version":"1.0.1","caption1":)",
      json_of_caption,
      R"(},"varlen_vl_embed_float32":{"dtype":"F32","shape":[5,24],"data_offsets":[0,480]}})");
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header << std::string(480, '\0');
}

// F098: the file is named; what is not UTF-8 is refused.
TEST_F(NamesAndTextTest, CaptionsThatAreNotUtf8AreRefusedByFile) {
  directory_.Make("cache");
  WriteLatentCache(directory_.Path("cache"), "bad");
  for (const std::string& caption :
       {std::string("\"latin \xe4\""), std::string("\"cut \xc3\""), std::string("\"\xed\xa0\x80\""),
        std::string("\"\\ud800 alone\"")}) {
    WriteRawCaption(directory_.Path("cache/bad_qi_te.safetensors"), caption);
    EXPECT_FALSE(Open("'cache'").ok()) << absl::CEscape(caption);
    EXPECT_THAT(AllViolations(), AllOf(HasSubstr("bad_qi_te.safetensors"), HasSubstr("UTF-8")))
        << absl::CEscape(caption);
  }
}

// F098: a NUL that is not escaped is no JSON.
TEST_F(NamesAndTextTest, ACaptionWithABareNulIsRefusedByFile) {
  directory_.Make("cache");
  WriteLatentCache(directory_.Path("cache"), "bad");
  WriteRawCaption(directory_.Path("cache/bad_qi_te.safetensors"), std::string("\"raw\0nul\"", 9));
  EXPECT_FALSE(Open("'cache'").ok());
  EXPECT_THAT(AllViolations(), AllOf(HasSubstr("bad_qi_te.safetensors"), HasSubstr("NUL byte")));
}

// F098: text that is valid but odd or long is data, and never a line of output.
TEST_F(NamesAndTextTest, OddAndLongCaptionsDoNoHarm) {
  directory_.Make("cache");
  WriteLatentCache(directory_.Path("cache"), "odd");
  for (const std::string& caption :
       {std::string("\"nul \\u0000 inside\""), std::string("\"bell \\u0007 and \\u001b[31m\""),
        absl::StrCat("\"", std::string(1 << 20, 'x'), "\"")}) {
    WriteRawCaption(directory_.Path("cache/odd_qi_te.safetensors"), caption);
    const auto dataset = Open("'cache'");
    ASSERT_TRUE(dataset.ok()) << dataset.status() << AllViolations();
    for (const std::string& warning : (*dataset)->warnings()) {
      EXPECT_LT(warning.size(), kLongestLine);
      EXPECT_THAT(warning, Not(HasSubstr("\n")));
    }
    EXPECT_LT((*dataset)->datasets_json().size(), kLongestLine);
  }
}

// F098: a message about a file with a long text is still one line of a bearable length.
TEST_F(NamesAndTextTest, MessagesDoNotRepeatLongText) {
  directory_.Make("cache");
  WriteLatentCache(directory_.Path("cache"), "long");
  TinyText text;
  text.metadata["architecture"] = std::string(1 << 20, 'x');
  WriteTextCache(directory_.Path("cache"), "long", text);
  EXPECT_FALSE(Open("'cache'").ok());
  EXPECT_LT(AllViolations().size(), kLongestLine) << AllViolations().substr(0, 300);
}

}  // namespace
}  // namespace blockswap::worker
