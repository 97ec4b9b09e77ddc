// SPDX-License-Identifier: Apache-2.0
// The form of single files: how they open, how long they are, what they must not contain.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/layout/source_tree.h"

namespace blockswap::testing {
namespace {

using ::testing::IsEmpty;

constexpr size_t kMaxLines = 500;

std::string GuardOf(const std::string& path) {
  std::string guard = "BLOCKSWAP_";
  for (const char c : path)
    guard += std::isalnum(static_cast<unsigned char>(c)) != 0 ? absl::ascii_toupper(c) : '_';
  return guard + "_";
}

bool Contains(const std::vector<std::string>& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

class FileFormTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GT(code_.size(), 50u) << "BLOCKSWAP_SOURCE_DIR must name the checkout";
  }

  // Lines of code (no comments, no strings) that match, in files that `applies` accepts.
  template <typename Applies>
  std::vector<std::string> Find(const std::string& pattern, Applies applies) const {
    const std::regex regex(pattern);
    std::vector<std::string> found;
    for (const SourceFile& file : code_) {
      if (!applies(file.path)) continue;
      for (size_t i = 0; i < file.lines.size(); ++i) {
        if (std::regex_search(CodeOf(file.lines[i]), regex))
          found.push_back(absl::StrCat(file.path, ":", i + 1));
      }
    }
    return found;
  }

  const std::vector<SourceFile> code_ = ReadSources({".h", ".cc", ".cu"});
};

TEST_F(FileFormTest, EveryFileNamesItsLicence) {
  std::vector<std::string> violations;
  for (const SourceFile& file : ReadSources({".h", ".cc", ".cu", ".proto", ".py", ".sh",
                                             "CMakeLists.txt", ".cmake", ".yaml", ".yml"})) {
    if (absl::StartsWith(file.path, "tests/fuzz/corpus/")) continue;  // input, byte for byte
    const size_t line = !file.lines.empty() && absl::StartsWith(file.lines[0], "#!") ? 1 : 0;
    if (file.lines.size() <= line ||
        !absl::StrContains(file.lines[line], "SPDX-License-Identifier: Apache-2.0")) {
      violations.push_back(file.path);
    }
  }
  EXPECT_THAT(violations, IsEmpty());
}

TEST_F(FileFormTest, HeadersOpenWithOneSentenceAndTheirGuard) {
  std::vector<std::string> violations;
  for (const SourceFile& file : code_) {
    if (!file.is_header()) continue;
    std::string opening;
    size_t i = 1;
    for (; i < file.lines.size() && absl::StartsWith(file.lines[i], "// "); ++i)
      opening = file.lines[i];
    if (i == 1 || (opening.back() != '.' && opening.back() != ')')) {
      violations.push_back(absl::StrCat(file.path, ": no sentence opens it"));
    }
    const std::string guard = GuardOf(file.path);
    if (!Contains(file.lines, absl::StrCat("#ifndef ", guard)) ||
        !Contains(file.lines, absl::StrCat("#define ", guard)) ||
        !Contains(file.lines, absl::StrCat("#endif  // ", guard))) {
      violations.push_back(absl::StrCat(file.path, ": guard is not ", guard));
    }
  }
  EXPECT_THAT(violations, IsEmpty());
}

TEST_F(FileFormTest, NoFileIsTooLongToRead) {
  std::vector<std::string> violations;
  for (const SourceFile& file : code_) {
    // A test is read case by case.
    if (IsBelow(file.path, "tests")) continue;
    if (file.lines.size() > kMaxLines)
      violations.push_back(absl::StrCat(file.path, ": ", file.lines.size(), " lines"));
  }
  EXPECT_THAT(violations, IsEmpty());
}

TEST_F(FileFormTest, EveryHeaderBelongsToATarget) {
  std::set<std::string> owned;
  for (const SourceFile& cmake : ReadSources({"CMakeLists.txt"})) {
    for (const std::string& line : cmake.lines) {
      for (absl::string_view word :
           absl::StrSplit(line, absl::ByAnyChar(" ()\t"), absl::SkipEmpty())) {
        // A library may take a header of a neighbour: "../train/block_walk.h".
        owned.insert((std::filesystem::path(cmake.directory()) / std::string(word))
                         .lexically_normal()
                         .string());
      }
    }
  }
  std::vector<std::string> violations;
  for (const SourceFile& file : code_) {
    if (file.is_header() && owned.count(file.path) == 0) violations.push_back(file.path);
  }
  EXPECT_THAT(violations, IsEmpty());
}

TEST_F(FileFormTest, NothingThatThreadsAndProcessesMustNotDo) {
  // A tensor may be detached, a thread may not.
  EXPECT_THAT(
      Find(R"([Tt]hread\w*(\)|\])?(\.|->)detach\(\))", [](const std::string&) { return true; }),
      IsEmpty());
  EXPECT_THAT(Find(R"((^|[^_a-z.>])exit\()",
                   [](const std::string& path) { return !IsBelow(path, "tests"); }),
              IsEmpty());
  // What a queue or a thread runs later may find nothing left where a reference leads.
  EXPECT_THAT(Find(R"((\b(Submit|Push|Post)|\bthread)\(\[&[\],])",
                   [](const std::string& path) { return !IsBelow(path, "tests"); }),
              IsEmpty());
}

TEST_F(FileFormTest, OnlyTheWorkerThrows) {
  // yaml-cpp offers its event handlers no other way out; the exception does not leave that file.
  EXPECT_THAT(Find(R"(\bthrow\b)",
                   [](const std::string& path) {
                     return !IsBelow(path, "worker") && !IsBelow(path, "tests") &&
                            path != "proto/job_file/yaml_tree.cc";
                   }),
              IsEmpty());
}

TEST_F(FileFormTest, TestsNeverSleepAndNoneIsDisabled) {
  const auto in_tests = [](const std::string& path) { return IsBelow(path, "tests"); };
  EXPECT_THAT(Find(R"(\b(sleep|usleep|sleep_for|sleep_until|SleepFor|nanosleep)\()", in_tests),
              IsEmpty());
  EXPECT_THAT(Find(R"(DISABLED_|GTEST_SKIP_ALL)", in_tests), IsEmpty());
}

TEST_F(FileFormTest, EveryMutexGuardsSomething) {
  std::vector<std::string> violations;
  const std::regex member(R"(^\s*(mutable )?base::Mutex (\w+_);)");
  for (const SourceFile& file : code_) {
    if (IsBelow(file.path, "tests")) continue;
    const std::string text = absl::StrJoin(file.lines, "\n");
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (!std::regex_search(line, match, member)) continue;
      if (!absl::StrContains(text, absl::StrCat("ABSL_GUARDED_BY(", match[2].str(), ")"))) {
        violations.push_back(absl::StrCat(file.path, ": ", match[2].str()));
      }
    }
  }
  EXPECT_THAT(violations, IsEmpty());
}

TEST_F(FileFormTest, LinesOfCodeHaveNoTabsAndNoTrailingSpace) {
  std::vector<std::string> violations;
  for (const SourceFile& file : code_) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      if (absl::StrContains(line, "\t") || (!line.empty() && line.back() == ' ')) {
        violations.push_back(absl::StrCat(file.path, ":", i + 1));
      }
    }
  }
  EXPECT_THAT(violations, IsEmpty());
}

}  // namespace
}  // namespace blockswap::testing
