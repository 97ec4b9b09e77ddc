// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/link_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace blockswap::worker {
namespace {

constexpr offload::LinkTrial kSmallTrial{.bytes = int64_t{1} << 20, .repeats = 1};

TEST(LinkTestTest, HostDeviceReportsEveryFigure) {
  const auto report = MeasureDeviceLink("host", kSmallTrial);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ((*report)["device"], "host");
  for (const char* key :
       {"h2d_bytes_per_second", "d2h_bytes_per_second", "duplex_h2d_bytes_per_second",
        "duplex_d2h_bytes_per_second", "duplex_factor", "pageable_bytes_per_second",
        "latency_seconds", "trial_bytes"}) {
    ASSERT_TRUE(report->contains(key)) << key;
    EXPECT_GT((*report)[key].get<double>(), 0.0) << key;
  }
}

TEST(LinkTestTest, NameThatIsNoDeviceIsRefused) {
  const auto report = MeasureDeviceLink("gpu0", kSmallTrial);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(report.status().message()), ::testing::HasSubstr("'gpu0'"));
}

TEST(LinkTestTest, CardThatIsNotThereIsAnErrorAndNotTheHost) {
  // No machine has so many.
  EXPECT_FALSE(MeasureDeviceLink("cuda:4000", kSmallTrial).ok());
}

TEST(LinkTestTest, CommandRefusesUnknownFlags) {
  char name[] = "link-test", flag[] = "--no-such-flag";
  char* argv[] = {name, flag, nullptr};
  EXPECT_NE(RunLinkTest(2, argv), 0);
}

}  // namespace
}  // namespace blockswap::worker
