// SPDX-License-Identifier: Apache-2.0
// F134: what the finished programs load. One protobuf, one abseil, one OpenMP in a process; torch
// in the worker alone, CUDA nowhere.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace blockswap {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Output(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  size_t count = 0;
  while ((count = fread(buffer, 1, sizeof buffer, pipe)) > 0) output.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

std::string Program(const std::string& name) {
  const char* bin = std::getenv("BLOCKSWAP_BIN_DIR");
  return absl::StrCat(bin == nullptr ? "" : bin, "/", name);
}

// File names of the shared libraries that `program` loads, with the paths they resolve to.
std::map<std::string, std::string> Libraries(const std::string& program) {
  std::map<std::string, std::string> libraries;
  for (absl::string_view line : absl::StrSplit(Output(absl::StrCat("ldd '", program, "'")), '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 3 || words[1] != "=>") continue;
    EXPECT_NE(words[2], "not") << line;
    libraries[words[0]] = std::filesystem::weakly_canonical(words[2]).string();
  }
  return libraries;
}

std::set<std::string> Matching(const std::map<std::string, std::string>& libraries,
                               const std::vector<std::string>& parts) {
  std::set<std::string> found;
  for (const auto& [name, path] : libraries) {
    for (const std::string& part : parts) {
      if (absl::StrContains(name, part)) found.insert(path);
    }
  }
  return found;
}

// Versions in the names of abseil's libraries: "libabsl_base.so.20220623" has 20220623.
std::set<std::string> AbseilVersions(const std::map<std::string, std::string>& libraries) {
  std::set<std::string> versions;
  for (const auto& [name, path] : libraries) {
    if (absl::StartsWith(name, "libabsl_")) versions.insert(name.substr(name.find(".so") + 3));
  }
  return versions;
}

class LinkageTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    program_ = Program(GetParam());
    ASSERT_TRUE(std::filesystem::exists(program_)) << program_ << " is not built";
    libraries_ = Libraries(program_);
    ASSERT_FALSE(libraries_.empty());
  }
  std::string program_;
  std::map<std::string, std::string> libraries_;
};

TEST_P(LinkageTest, HasOneOfEachRuntime) {
  EXPECT_THAT(Matching(libraries_, {"libprotobuf.so", "libprotobuf-"}), SizeIs(1));
  EXPECT_THAT(AbseilVersions(libraries_), SizeIs(1));
  EXPECT_LE(Matching(libraries_, {"libgomp", "libomp", "libiomp"}).size(), 1u);
  EXPECT_LE(Matching(libraries_, {"libgrpc.so"}).size(), 1u);
  EXPECT_THAT(Matching(libraries_, {"libstdc++"}), SizeIs(1));
}

TEST_P(LinkageTest, NeedsNoCuda) {
  EXPECT_THAT(Matching(libraries_, {"libcuda", "libcudart", "libtorch_cuda", "libnvidia",
                                    "libcublas", "libc10_cuda"}),
              IsEmpty());
}

TEST_P(LinkageTest, OnlyTheWorkerHasTorch) {
  const bool worker = GetParam() == "blockswap-worker";
  EXPECT_EQ(Matching(libraries_, {"libtorch_cpu"}).size(), worker ? 1u : 0u);
}

// A library of LibTorch that exported these would take the place of ours at load time, whichever
// comes first.
TEST_P(LinkageTest, NothingElseExportsProtobufOrAbseil) {
  std::vector<std::string> violations;
  for (const auto& [name, path] : libraries_) {
    if (!absl::StartsWith(name, "libtorch") && !absl::StartsWith(name, "libc10")) continue;
    const std::string symbols =
        Output(absl::StrCat("nm -D --defined-only '", path, "' | cut -c18- | sed 's/@.*//'"));
    for (absl::string_view line : absl::StrSplit(symbols, '\n')) {
      // Strong definitions ("T", "D", "B") only: weak templates of headers fold into one by design.
      if (line.size() < 3 || (line[0] != 'T' && line[0] != 'D' && line[0] != 'B')) continue;
      const absl::string_view symbol = line.substr(2);
      if (absl::StartsWith(symbol, "_ZN6google8protobuf") ||
          absl::StartsWith(symbol, "_ZN4absl7debian3") || absl::StartsWith(symbol, "_ZN4grpc") ||
          absl::StartsWith(symbol, "_ZN9grpc_core")) {
        violations.push_back(absl::StrCat(name, ": ", symbol));
      }
    }
  }
  EXPECT_THAT(violations, IsEmpty());
}

// Loading everything at once shows unresolved and clashing symbols that lazy binding hides.
TEST_P(LinkageTest, StartsWithEverySymbolBound) {
  EXPECT_FALSE(Output(absl::StrCat("LD_BIND_NOW=1 '", program_, "' --help")).empty());
}

std::vector<std::string> Programs() {
  std::vector<std::string> programs = {"blockswap", "blockswapd"};
  // A build without LibTorch has no worker.
  if (std::filesystem::exists(Program("blockswap-worker"))) programs.push_back("blockswap-worker");
  return programs;
}

INSTANTIATE_TEST_SUITE_P(Programs, LinkageTest, ::testing::ValuesIn(Programs()),
                         [](const auto& program) {
                           std::string name = program.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace blockswap
