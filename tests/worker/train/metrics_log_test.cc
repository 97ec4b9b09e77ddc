// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics_log.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace blockswap::worker {
namespace {

class MetricsLogTest : public ::testing::Test {
 protected:
  MetricsLogTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "blockswap-metrics-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    path_ = root_ + "/metrics.jsonl";
  }
  ~MetricsLogTest() override { std::filesystem::remove_all(root_); }

  std::string Content() const {
    std::ifstream in(path_);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void Write(const std::string& text) const { std::ofstream(path_) << text; }

  std::string root_, path_;
};

TEST_F(MetricsLogTest, KeepsStepsUpToTheResumedOneOnce) {
  Write("{\"step\":1}\n{\"step\":2}\n{\"step\":2}\ngarbage\n{\"step\":3}\n{\"step\":4}\n{\"st");
  auto log = MetricsLog::Open(path_, 3);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(Content(), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  ASSERT_TRUE((*log)->Append("{\"step\":4,\"again\":true}").ok());
  EXPECT_EQ(Content(), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4,\"again\":true}\n");
}

TEST_F(MetricsLogTest, StartsAnewAtZero) {
  Write("{\"step\":1}\n");
  ASSERT_TRUE(MetricsLog::Open(path_, 0).ok());
  EXPECT_EQ(Content(), "");
}

TEST_F(MetricsLogTest, AFullDiskLeavesNoHoleAndNoHalfLine) {
  auto log = MetricsLog::Open(path_, 0);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Append("{\"step\":1}").ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{15, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status refused = (*log)->Append("{\"step\":2}");
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Content(), "{\"step\":1}\n");
  ASSERT_TRUE((*log)->Append("{\"step\":3}").ok());
  EXPECT_EQ(Content(), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST_F(MetricsLogTest, LinesAreOfTheStepAloneAndReadBackToTheSameBits) {
  StepMetrics metrics;
  metrics.report.step = 7;
  metrics.report.loss = 0.1 + 0.2;
  metrics.report.grad_norm = std::numeric_limits<double>::infinity();
  metrics.before.h2d_bytes = 100;
  metrics.report.swap.h2d_bytes = 350;
  metrics.report.swap.forward_stall = absl::Milliseconds(20);
  metrics.before.forward_stall = absl::Milliseconds(5);
  const nlohmann::json line = nlohmann::json::parse(MetricsLine(metrics));
  EXPECT_EQ(line["step"], 7);
  EXPECT_EQ(line["loss"].get<double>(), 0.1 + 0.2);
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_EQ(line["h2d_bytes"], 250);
  EXPECT_DOUBLE_EQ(line["stall_seconds"].get<double>(), 0.015);
}

}  // namespace
}  // namespace blockswap::worker
