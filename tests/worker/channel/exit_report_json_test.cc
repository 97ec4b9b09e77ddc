// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/exit_report_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace blockswap::worker {
namespace {

TEST(ExitReportJsonTest, ExitReportsAreJsonWhateverTheMessageHolds) {
  ExitReport report;
  report.code = ExitCode::kNumerics;
  report.category = "NUMERICS";
  report.reason = "NONFINITE_LOSS";
  report.message = "bad bytes \xff\xfe and a\nline";
  report.step = 12;
  const nlohmann::json json = nlohmann::json::parse(ExitReportToJson(report, /*attempt=*/3));
  EXPECT_EQ(json["attempt"], 3);
  EXPECT_EQ(json["exit_code"], 14);
  EXPECT_EQ(json["category"], "NUMERICS");
  EXPECT_EQ(json["reason"], "NONFINITE_LOSS");
  EXPECT_EQ(json["step"], 12);
}

}  // namespace
}  // namespace blockswap::worker
