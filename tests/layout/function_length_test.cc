// SPDX-License-Identifier: Apache-2.0
// How long functions are: one that does not fit on a screen is two.
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/layout/source_tree.h"

namespace blockswap::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kMaxLines = 60;

// One pair of braces that is open.
struct Scope {
  bool is_function = false;
  int first_line = 0;
};

// A scope with parentheses before it that is neither a type nor a value. Good enough for code that
// clang-format has seen; what it takes for a function in vain is short.
bool OpensFunction(const std::string& head) {
  static const auto* const kOthers =
      new std::regex(R"(^\s*(namespace|class|struct|enum|union|extern)\b|=\s*$)");
  return absl::StrContains(head, "(") && !std::regex_search(head, *kOthers);
}

// Functions whose body, braces and all, has more than kMaxLines lines. What stands inside of a
// function belongs to it.
class LongFunctions final {
 public:
  explicit LongFunctions(const SourceFile& file) : path_(file.path) {
    for (const std::string& line : file.lines) {
      ++line_;
      if (absl::StartsWith(line, "#")) continue;
      for (const char c : CodeOf(line)) Read(c);
      head_ += ' ';
    }
  }

  std::vector<std::string> found() const { return found_; }

 private:
  void Read(char c) {
    switch (c) {
      case '{':
        open_.push_back({functions_ == 0 && OpensFunction(head_), line_});
        functions_ += open_.back().is_function ? 1 : 0;
        head_.clear();
        break;
      case '}':
        if (!open_.empty()) Close();
        head_.clear();
        break;
      case ';':
        head_.clear();
        break;
      default:
        head_ += c;
    }
  }

  void Close() {
    const Scope& scope = open_.back();
    const int lines = line_ - scope.first_line + 1;
    functions_ -= scope.is_function ? 1 : 0;
    if (scope.is_function && lines > kMaxLines) {
      found_.push_back(absl::StrCat(path_, ":", scope.first_line, ": ", lines, " lines"));
    }
    open_.pop_back();
  }

  const std::string path_;
  int line_ = 0;
  int functions_ = 0;  // open ones: one or none
  std::string head_;   // since the last brace or semicolon
  std::vector<Scope> open_;
  std::vector<std::string> found_;
};

TEST(FunctionLengthTest, NoFunctionIsTooLongToRead) {
  const std::vector<SourceFile> sources = ReadSources({".h", ".cc", ".cu"});
  ASSERT_GT(sources.size(), 50u) << "BLOCKSWAP_SOURCE_DIR must name the checkout";
  std::vector<std::string> violations;
  for (const SourceFile& file : sources) {
    // A test may be a table of cases.
    if (IsBelow(file.path, "tests")) continue;
    for (const std::string& found : LongFunctions(file).found()) violations.push_back(found);
  }
  EXPECT_THAT(violations, IsEmpty());
}

TEST(FunctionLengthTest, NoticesALongOneWhereverItIs) {
  SourceFile file = {"x.cc", {"namespace a {", "class B {", " public:", "  void C() {"}};
  for (int i = 0; i < kMaxLines; ++i) file.lines.push_back("    if (D()) { E(\"}\"); }  // }");
  for (const char* line : {"  }", "};", "int F(int g) {"}) file.lines.push_back(line);
  for (int i = 0; i < kMaxLines - 2; ++i) file.lines.push_back("  H([] { return 1; });");
  for (const char* line : {"}", "constexpr int kTable[] = {"}) file.lines.push_back(line);
  for (int i = 0; i <= kMaxLines; ++i) file.lines.push_back("    I(1),");
  for (const char* line : {"};", "}  // namespace a"}) file.lines.push_back(line);
  EXPECT_THAT(LongFunctions(file).found(), ElementsAre("x.cc:4: 62 lines"));
}

}  // namespace
}  // namespace blockswap::testing
