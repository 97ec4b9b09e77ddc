// SPDX-License-Identifier: Apache-2.0
#include "server/device/device_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kReport[] =
    R"({"device": "cuda:0", "h2d_bytes_per_second": 24e9, "d2h_bytes_per_second": 26e9,
        "duplex_h2d_bytes_per_second": 14e9, "duplex_d2h_bytes_per_second": 25e9,
        "duplex_factor": 1.5, "pageable_bytes_per_second": 9e9, "latency_seconds": 8e-6})";

MeasuredLink Rate(double h2d) {
  MeasuredLink link;
  link.h2d = h2d;
  return link;
}

TEST(DeviceLinkTest, ReadsEveryFigureOfTheReport) {
  const auto link = ParseLinkTest(kReport);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->h2d, 24e9);
  EXPECT_EQ(link->d2h, 26e9);
  EXPECT_EQ(link->duplex_h2d, 14e9);
  EXPECT_EQ(link->duplex_d2h, 25e9);
  EXPECT_EQ(link->duplex_factor, 1.5);
  EXPECT_EQ(link->pageable, 9e9);
  EXPECT_EQ(link->latency_seconds, 8e-6);
}

TEST(DeviceLinkTest, ReportWithoutARateIsRefusedByName) {
  for (const char* bad :
       {"", "[]", "{}", R"({"h2d_bytes_per_second": "24e9"})", R"({"h2d_bytes_per_second": -1})"}) {
    const auto link = ParseLinkTest(bad);
    EXPECT_EQ(link.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(link.status().message()), HasSubstr("h2d_bytes_per_second")) << bad;
  }
}

TEST(DeviceLinkTest, HealthyBusesOfAllGenerationsAreNotWarnedOf) {
  // Published rates of healthy cards.
  const struct {
    int generation;
    double h2d;
  } kCards[] = {{3, 12.1e9}, {4, 23.9e9}, {5, 51e9}};
  for (const auto& card : kCards) {
    const NegotiatedLink link{card.generation, card.generation, 16, 16, 0};
    EXPECT_THAT(LinkWarning(link, Rate(card.h2d), /*busy=*/true), IsEmpty()) << card.generation;
  }
}

TEST(DeviceLinkTest, SlowMeasurementOnAFullBusIsWarnedOf) {
  EXPECT_THAT(LinkWarning({4, 4, 16, 16, 0}, Rate(12e9), /*busy=*/false), HasSubstr("12.0 GB/s"));
}

TEST(DeviceLinkTest, DriverThatDoesNotTellIsNotWarnedOf) {
  EXPECT_THAT(LinkWarning({}, Rate(1e9), /*busy=*/true), IsEmpty());
}

}  // namespace
}  // namespace blockswap::server
