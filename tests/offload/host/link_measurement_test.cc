// SPDX-License-Identifier: Apache-2.0
#include "offload/host/link_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/device/host_device.h"

namespace blockswap::offload {
namespace {

constexpr int64_t kBytes = int64_t{1} << 20;

std::unique_ptr<HostDevice> Device(const HostDeviceOptions& options) {
  return *HostDevice::Create(options);
}

TEST(LinkMeasurementTest, FindsTheRatesTheLanesAreSetTo) {
  const auto device = Device({.h2d_bytes_per_second = 100e6, .d2h_bytes_per_second = 50e6});
  const auto measured = MeasureLink(device.get(), {.bytes = kBytes, .repeats = 2});
  ASSERT_TRUE(measured.ok()) << measured.status();
  // Never faster than the lane; slower by what else runs.
  EXPECT_LE(measured->h2d_bytes_per_second, 100e6 * 1.001);
  EXPECT_LE(measured->d2h_bytes_per_second, 50e6 * 1.001);
  EXPECT_GT(measured->h2d_bytes_per_second, measured->d2h_bytes_per_second);
  EXPECT_LE(measured->pageable_bytes_per_second, 100e6 * 1.001);
  EXPECT_GT(measured->pageable_bytes_per_second, 0);
}

TEST(LinkMeasurementTest, LanesOfTheHostDeviceDoNotShareTheirRate) {
  const auto device = Device({.h2d_bytes_per_second = 50e6, .d2h_bytes_per_second = 50e6});
  const auto measured = MeasureLink(device.get(), {.bytes = kBytes, .repeats = 3});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_GT(measured->duplex_factor, 1.3);
  EXPECT_LE(measured->duplex_factor, 2.0);
  EXPECT_GT(measured->duplex_h2d_bytes_per_second, 0.5 * measured->h2d_bytes_per_second);
  EXPECT_GT(measured->duplex_d2h_bytes_per_second, 0.5 * measured->d2h_bytes_per_second);
}

TEST(LinkMeasurementTest, LatencyIsWhatASmallCopyCosts) {
  const auto device = Device({.latency = absl::Milliseconds(2)});
  const auto measured = MeasureLink(device.get(), {.bytes = kBytes, .repeats = 1});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_GE(measured->latency, absl::Milliseconds(2));
}

TEST(LinkMeasurementTest, StagesPageableMemoryWhereTheDeviceNeedsPinned) {
  const auto device = Device({.h2d_bytes_per_second = 100e6, .copies_need_pinned_memory = true});
  const auto measured = MeasureLink(device.get(), {.bytes = kBytes, .repeats = 1});
  if (!measured.ok()) {
    // A machine that lets nobody lock memory.
    EXPECT_EQ(measured.status().code(), absl::StatusCode::kResourceExhausted);
    return;
  }
  EXPECT_TRUE(measured->pinned);
  EXPECT_GT(measured->pageable_bytes_per_second, 0);
}

TEST(LinkMeasurementTest, GivesEverythingBack) {
  const auto device = Device({});
  ASSERT_TRUE(MeasureLink(device.get(), {.bytes = kBytes, .repeats = 1}).ok());
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, 0);
}

TEST(LinkMeasurementTest, NoRoomOnTheDeviceIsAnAnswer) {
  const auto device = Device({.budget_bytes = kBytes});
  const auto measured = MeasureLink(device.get(), {.bytes = kBytes, .repeats = 1});
  EXPECT_EQ(measured.status().code(), absl::StatusCode::kResourceExhausted) << measured.status();
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, 0);
}

TEST(LinkMeasurementTest, RefusesATrialThatCannotTellAnything) {
  const auto device = Device({});
  EXPECT_EQ(MeasureLink(device.get(), {.bytes = 8}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureLink(device.get(), {.bytes = kBytes, .repeats = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LinkMeasurementTest, ProfileCarriesEveryRate) {
  LinkMeasurement measured;
  measured.h2d_bytes_per_second = 1;
  measured.d2h_bytes_per_second = 2;
  measured.duplex_h2d_bytes_per_second = 3;
  measured.duplex_d2h_bytes_per_second = 4;
  measured.pageable_bytes_per_second = 5;
  measured.latency = absl::Seconds(6);
  const LinkProfile link = ToLinkProfile(measured);
  EXPECT_EQ(link.h2d_bytes_per_second, 1);
  EXPECT_EQ(link.d2h_bytes_per_second, 2);
  EXPECT_EQ(link.duplex_h2d_bytes_per_second, 3);
  EXPECT_EQ(link.duplex_d2h_bytes_per_second, 4);
  EXPECT_EQ(link.pageable_bytes_per_second, 5);
  EXPECT_EQ(link.latency, absl::Seconds(6));
}

}  // namespace
}  // namespace blockswap::offload
