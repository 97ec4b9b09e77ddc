// SPDX-License-Identifier: Apache-2.0
// Runs bench_swap on a small stack: the form of its JSON and the orderings that theory fixes.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/bench/swap_case.h"

namespace blockswap::bench {
namespace {

// Room for what else the machine does while a step is measured.
constexpr double kNoise = 1.25;

class BenchSwapTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string file = absl::StrCat(::testing::TempDir(), "/bench_swap.json");
    const std::string command =
        absl::StrCat(std::getenv("BLOCKSWAP_BIN_DIR"),
                     "/bench_swap --brief --blocks 12 --forward-ms 2 --steps 5 --json ", file);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream stream(file);
    report_ = new nlohmann::json(nlohmann::json::parse(stream));
  }
  static void TearDownTestSuite() {
    delete report_;
    report_ = nullptr;
  }

  // The fastest step: what else runs only makes a step slower.
  static double Fastest(const std::string& policy, double ratio) {
    for (const nlohmann::json& row : (*report_)["cases"]) {
      if (row["policy"] == policy && row["ratio"] == ratio) return row["fastest_seconds"];
    }
    ADD_FAILURE() << "no case of " << policy << " at ratio " << ratio;
    return 0;
  }

  static nlohmann::json* report_;
};

nlohmann::json* BenchSwapTest::report_ = nullptr;

TEST_F(BenchSwapTest, EveryCaseHasItsFigures) {
  ASSERT_NE(report_, nullptr);
  const nlohmann::json& cases = (*report_)["cases"];
  ASSERT_GE(cases.size(), 10U);  // five policies, two ratios
  for (const nlohmann::json& row : cases) {
    EXPECT_TRUE(row["policy"].is_string()) << row;
    for (const char* number : {"ratio", "step_seconds", "bound_seconds", "of_bound"}) {
      ASSERT_TRUE(row[number].is_number()) << row;
      EXPECT_GT(row[number].get<double>(), 0.0) << row;
    }
    EXPECT_NEAR(row["of_bound"].get<double>(),
                row["bound_seconds"].get<double>() / row["step_seconds"].get<double>(), 1e-9);
    EXPECT_LE(row["fastest_seconds"].get<double>(), row["step_seconds"].get<double>());
  }
  EXPECT_GT((*report_)["visit_overhead_seconds"]["streamed"].get<double>(), 0.0);
}

TEST_F(BenchSwapTest, NoStepIsFasterThanItsComputeOrItsModel) {
  ASSERT_NE(report_, nullptr);
  const double compute =
      (*report_)["blocks"].get<double>() *
      ((*report_)["forward_seconds"].get<double>() + (*report_)["backward_seconds"].get<double>());
  for (const nlohmann::json& row : (*report_)["cases"]) {
    EXPECT_GE(row["fastest_seconds"].get<double>(), 0.999 * compute) << row;
    // The model has no overhead. A single step may borrow a little from the one before it.
    EXPECT_GE(row["step_seconds"].get<double>(), 0.97 * row["simulated_seconds"].get<double>())
        << row;
  }
}

TEST_F(BenchSwapTest, WaitingOrderIsTheOneTheoryGives) {
  ASSERT_NE(report_, nullptr);
  // Copies take twice the compute: only what never copies escapes, and writing back doubles the
  // bill.
  EXPECT_LT(Fastest("resident", 2) * 1.3, Fastest("ours", 2));
  EXPECT_LT(Fastest("ours", 2) * 1.2, Fastest("exchange", 2));
  EXPECT_LT(Fastest("ours", 2), Fastest("ring_1", 2));
  EXPECT_LT(Fastest("ours", 2), Fastest("tail", 2) * kNoise);
  // Copies take half of it: hidden by ours, never hidden by a single slot.
  EXPECT_LT(Fastest("ours", 0.5), Fastest("ring_1", 0.5));
  EXPECT_LT(Fastest("ours", 0.5), Fastest("resident", 0.5) * kNoise);
}

TEST_F(BenchSwapTest, BytesAreTheMinimumForTheSlots) {
  ASSERT_NE(report_, nullptr);
  const BlockStack stack{.blocks = 12};
  const int64_t block_bytes = int64_t{64} << 10;
  for (const nlohmann::json& row : (*report_)["cases"]) {
    const std::string policy = row["policy"];
    const int64_t streamed = row["streamed"];
    const int64_t bytes = row["h2d_bytes"];
    const int64_t expected = policy == "resident"   ? 0
                             : policy == "ours"     ? (2 * streamed - 2 * stack.ring) * block_bytes
                             : policy == "exchange" ? 2 * streamed * block_bytes
                                                    : bytes;
    EXPECT_EQ(bytes, expected) << row;
    if (policy != "exchange") {
      EXPECT_EQ(row["d2h_bytes"].get<int64_t>(), 0) << row;
    }
  }
}

}  // namespace
}  // namespace blockswap::bench
