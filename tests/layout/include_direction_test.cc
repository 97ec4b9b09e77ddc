// SPDX-License-Identifier: Apache-2.0
// Dependencies between directories go one way, and the heavy libraries stay in their places.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/layout/source_tree.h"

namespace blockswap::testing {
namespace {

using ::testing::IsEmpty;

struct Rule {
  const char* directory;
  std::vector<std::string> may_include;  // besides itself
};

// The first rule whose directory holds a file counts.
const std::vector<Rule>& Rules() {
  static const std::vector<Rule> kRules = {
      {"proto", {"offload/base"}},
      {"offload/base", {}},
      {"offload/device", {"offload/base"}},
      {"offload/plan", {"offload/base"}},
      {"offload/host", {"offload/base", "offload/device", "offload/plan"}},
      {"offload/swap", {"offload/base", "offload/device", "offload/host", "offload/plan"}},
      // The server links these, so they know of no device and of no training.
      {"worker/config",
       {"worker/io", "worker/family", "worker/data", "offload/base", "offload/plan", "proto"}},
      {"worker/io", {"worker/config", "offload/base"}},
      {"worker/family", {"worker/config", "worker/io", "offload/base", "offload/plan"}},
      {"worker/data",
       {"worker/config", "worker/io", "worker/family", "offload/base", "proto/job_file"}},
      {"worker/channel", {"offload", "proto", "worker/config"}},
      {"worker", {"worker", "offload"}},
      {"server",
       {"proto", "worker/config", "worker/io", "worker/family", "worker/data", "offload/base",
        "offload/plan"}},
      // The base has the mutex, the status macros and byte sizes: abseil and nothing else below it.
      {"client", {"proto", "offload/base"}},
  };
  return kRules;
}

bool IsProjectInclude(const std::string& path) {
  for (const char* top : {"proto/", "offload/", "worker/", "server/", "client/", "tests/"}) {
    if (absl::StartsWith(path, top)) return true;
  }
  return false;
}

std::vector<std::string> Violations(const std::vector<SourceFile>& sources) {
  std::vector<std::string> violations;
  for (const SourceFile& file : sources) {
    const auto rule = std::find_if(Rules().begin(), Rules().end(), [&file](const Rule& candidate) {
      return IsBelow(file.path, candidate.directory);
    });
    if (rule == Rules().end()) continue;
    for (const Include& include : IncludesOf(file)) {
      if (!IsProjectInclude(include.path) || IsBelow(include.path, rule->directory)) continue;
      const bool allowed = std::any_of(
          rule->may_include.begin(), rule->may_include.end(),
          [&include](const std::string& other) { return IsBelow(include.path, other); });
      if (!allowed)
        violations.push_back(
            absl::StrCat(file.path, ":", include.line, " includes ", include.path));
    }
  }
  return violations;
}

// Files outside `places` that include something beginning with one of `prefixes`.
std::vector<std::string> Outside(const std::vector<SourceFile>& sources,
                                 const std::vector<std::string>& prefixes,
                                 const std::vector<std::string>& places) {
  std::vector<std::string> violations;
  for (const SourceFile& file : sources) {
    if (IsBelow(file.path, "tests")) continue;
    const bool at_home =
        std::any_of(places.begin(), places.end(), [&file](const std::string& place) {
          return IsBelow(file.path, place) || absl::StartsWith(file.path, absl::StrCat(place, "."));
        });
    if (at_home) continue;
    for (const Include& include : IncludesOf(file)) {
      const bool heavy = std::any_of(
          prefixes.begin(), prefixes.end(),
          [&include](const std::string& prefix) { return absl::StartsWith(include.path, prefix); });
      if (heavy)
        violations.push_back(
            absl::StrCat(file.path, ":", include.line, " includes ", include.path));
    }
  }
  return violations;
}

class IncludeDirectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GT(sources_.size(), 50u) << "BLOCKSWAP_SOURCE_DIR must name the checkout";
  }
  const std::vector<SourceFile> sources_ = ReadSources({".h", ".cc", ".cu"});
};

TEST_F(IncludeDirectionTest, DependenciesGoOneWay) { EXPECT_THAT(Violations(sources_), IsEmpty()); }

TEST_F(IncludeDirectionTest, NoticesAWrongDirection) {
  const std::vector<SourceFile> wrong = {
      {"offload/plan/x.cc", {"#include \"offload/swap/block_swapper.h\""}},
      {"server/rpc/x.cc", {"", "#include \"worker/model/model.h\""}},
      {"client/cpp/x.cc", {"#include \"server/rpc/x.h\""}},
      {"worker/train/x.cc", {"#include \"proto/job_file/job_file.h\""}},
      {"offload/swap/good.cc", {"#include \"offload/plan/swap_plan.h\""}}};
  EXPECT_THAT(Violations(wrong),
              ::testing::ElementsAre("offload/plan/x.cc:1 includes offload/swap/block_swapper.h",
                                     "server/rpc/x.cc:2 includes worker/model/model.h",
                                     "client/cpp/x.cc:1 includes server/rpc/x.h",
                                     "worker/train/x.cc:1 includes proto/job_file/job_file.h"));
}

TEST_F(IncludeDirectionTest, TorchStaysWithTraining) {
  EXPECT_THAT(Outside(sources_, {"torch/", "ATen/", "c10/"},
                      {"worker/kernels", "worker/model", "worker/adapter", "worker/objective",
                       "worker/optimizer", "worker/sampler", "worker/train", "worker/commands",
                       "worker/main"}),
              IsEmpty());
}

TEST_F(IncludeDirectionTest, CudaStaysInTheCudaDevice) {
  EXPECT_THAT(Outside(sources_, {"cuda_runtime", "cuda.h", "cuda_fp16", "cuda_bf16"},
                      {"offload/device/cuda_device", "worker/kernels"}),
              IsEmpty());
}

TEST_F(IncludeDirectionTest, GrpcStaysAtTheEdges) {
  EXPECT_THAT(Outside(sources_, {"grpc"},
                      {"client/cpp", "server/rpc", "server/supervisor", "server/daemon",
                       "server/main", "worker/channel"}),
              IsEmpty());
}

TEST_F(IncludeDirectionTest, ProtobufTypesStopAtTheEdges) {
  EXPECT_THAT(Outside(sources_, {"blockswap/v1/", "google/protobuf/", "google/rpc/"},
                      {"proto", "client", "server/rpc", "worker/config", "worker/channel"}),
              IsEmpty());
}

// 20 seconds of compilation for every file that includes it, and the wheel's protobuf headers clash
// with ours.
TEST_F(IncludeDirectionTest, NoHeaderIncludesAllOfTorch) {
  std::vector<std::string> violations;
  for (const SourceFile& file : sources_) {
    if (!file.is_header() || absl::EndsWith(file.path, "pch.h")) continue;
    for (const Include& include : IncludesOf(file)) {
      if (include.path == "torch/torch.h" || include.path == "ATen/ATen.h") {
        violations.push_back(absl::StrCat(file.path, ":", include.line));
      }
    }
  }
  EXPECT_THAT(violations, IsEmpty());
}

TEST_F(IncludeDirectionTest, NoFileMeetsTorchAndProtobuf) {
  std::vector<std::string> violations;
  for (const SourceFile& file : sources_) {
    bool torch = false;
    bool protobuf = false;
    for (const Include& include : IncludesOf(file)) {
      for (const char* prefix : {"torch/", "ATen/", "c10/"})
        torch |= absl::StartsWith(include.path, prefix);
      for (const char* prefix : {"blockswap/v1/", "google/", "grpc"})
        protobuf |= absl::StartsWith(include.path, prefix);
    }
    if (torch && protobuf) violations.push_back(file.path);
  }
  EXPECT_THAT(violations, IsEmpty());
}

}  // namespace
}  // namespace blockswap::testing
