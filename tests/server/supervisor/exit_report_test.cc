// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/exit_report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

class ExitReportTest : public ::testing::Test {
 protected:
  std::optional<ExitingUpdate> Read(const std::string& text) {
    std::ofstream(directory_.path() + "/exit.json") << text;
    return ReadExitReport(directory_.path(), /*attempt=*/2);
  }
  const TemporaryDirectory directory_;
};

TEST_F(ExitReportTest, TheAttemptsOwnReportIsRead) {
  const auto report =
      Read(R"({"attempt": 2, "exit_code": 14, "category": "NUMERICS", "reason": "NONFINITE_LOSS",)"
           R"( "message": "loss is nan", "step": 8, "adapter_file": ""})");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->exit_code, 14);
  EXPECT_EQ(report->step, 8);
  EXPECT_EQ(report->failure.category, FailureCategory::kNumerics);
  EXPECT_EQ(report->failure.reason, "NONFINITE_LOSS");
}

TEST_F(ExitReportTest, AnotherAttemptsReportAndGarbageAreNone) {
  EXPECT_FALSE(ReadExitReport(directory_.path(), 2).has_value());
  for (const char* text :
       {"", "{", "[]", "null", R"({"exit_code": 0})", R"({"attempt": 1, "exit_code": 0})",
        R"({"attempt": 2})", R"({"attempt": 2, "exit_code": 256})",
        R"({"attempt": 2, "exit_code": -1})", R"({"attempt": "2", "exit_code": 0})",
        R"({"attempt": 2, "exit_code": "0"})"}) {
    EXPECT_FALSE(Read(text).has_value()) << text;
  }
}

TEST_F(ExitReportTest, OnlyARegularFileIsRead) {
  // A FIFO without a writer would hold the reader up; a link may lead anywhere.
  ASSERT_EQ(::mkfifo((directory_.path() + "/exit.json").c_str(), 0600), 0);
  EXPECT_FALSE(ReadExitReport(directory_.path(), 2).has_value());
}

}  // namespace
}  // namespace blockswap::server
