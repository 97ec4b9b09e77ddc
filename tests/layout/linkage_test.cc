// SPDX-License-Identifier: Apache-2.0
// F134: what the finished programs load. One protobuf, one abseil, one OpenMP in a process; torch
// in the worker alone, CUDA nowhere.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
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

// Functions and data that `library` exports: "T", "D", "B", "R" of nm. Weak ones, the templates and
// inline functions of headers, fold into one by design.
std::set<std::string> StrongSymbols(const std::string& library) {
  std::set<std::string> symbols;
  const std::string output =
      Output(absl::StrCat("nm -D --defined-only '", library, "' | cut -c18- | sed 's/@.*//'"));
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    const bool strong = line.size() > 2 && absl::StrContains("TDBR", line.substr(0, 1));
    // Every library has these of its own.
    if (strong && line.substr(2) != "_init" && line.substr(2) != "_fini")
      symbols.insert(std::string(line.substr(2)));
  }
  return symbols;
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

// The runtime that LibTorch's CPU side names as a dependency starts without a driver; the driver
// and the CUDA side do not.
TEST_P(LinkageTest, NeedsNoGpu) {
  std::vector<std::string> unwanted = {"libcuda.so", "libtorch_cuda", "libnvidia", "libcublas",
                                       "libc10_cuda"};
  if (GetParam() != "blockswap-worker") unwanted.push_back("libcudart");
  EXPECT_THAT(Matching(libraries_, unwanted), IsEmpty());
}

TEST_P(LinkageTest, OnlyTheWorkerHasTorch) {
  const bool worker = GetParam() == "blockswap-worker";
  EXPECT_EQ(Matching(libraries_, {"libtorch_cpu"}).size(), worker ? 1u : 0u);
}

// A library of LibTorch that exported a symbol of the distribution's protobuf, abseil or gRPC would
// take its place, or lose its own, whichever is loaded first.
TEST_P(LinkageTest, LibTorchExportsNothingOfTheOthers) {
  std::set<std::string> theirs;
  std::map<std::string, std::set<std::string>> torch;
  for (const auto& [name, path] : libraries_) {
    if (absl::StartsWith(name, "libtorch") || absl::StartsWith(name, "libc10"))
      torch[name] = StrongSymbols(path);
    for (const char* prefix :
         {"libprotobuf", "libabsl_", "libgrpc", "libgpr", "libupb", "libaddress_sorting"}) {
      if (absl::StartsWith(name, prefix)) theirs.merge(StrongSymbols(path));
    }
  }
  EXPECT_GT(theirs.size(), 1000u);
  for (const auto& [name, symbols] : torch) {
    EXPECT_FALSE(symbols.empty()) << name;
    std::vector<std::string> both;
    std::set_intersection(symbols.begin(), symbols.end(), theirs.begin(), theirs.end(),
                          std::back_inserter(both));
    EXPECT_THAT(both, IsEmpty()) << name;
  }
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
