// SPDX-License-Identifier: Apache-2.0
// A driver that is missing, broken, empty or hanging, and GPUs that fail.
#include "server/device/gpu_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "server/device/device_table.h"
#include "server/device/xid.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpuDriverTest : public ::testing::Test {
 protected:
  GpuDriverTest() {
    options_.library = ::getenv("BLOCKSWAP_FAKE_NVML");
    options_.device_file = "/no-such-directory/nvidiactl";
    Say("FAKE_NVML", "4 4 16 16 500");
  }
  void TearDown() override {
    for (const char* name : {"FAKE_NVML", "FAKE_NVML_CARDS", "FAKE_NVML_INIT"}) ::unsetenv(name);
  }
  static void Say(const char* name, const char* text) { ::setenv(name, text, /*overwrite=*/1); }
  std::vector<DeviceState> Devices(bool offer_host = false) {
    return DeviceTable(OpenGpuDriver(options_), 1 << 20, offer_host).List();
  }

  GpuDriverOptions options_;
};

TEST_F(GpuDriverTest, MachineThatNeverHadADriverOffersTheHost) {
  options_.library = "libno-such-nvml.so";
  EXPECT_THAT(OpenGpuDriver(options_).problem, IsEmpty());
  ASSERT_EQ(Devices().size(), 1u);
  EXPECT_EQ(Devices()[0].name, "host");
}

// F126: not ready with no device, and which of the causes it is.
TEST_F(GpuDriverTest, DriverThatDoesNotFitItsLibraryIsToldAndNotReplacedByTheHost) {
  Say("FAKE_NVML_INIT", "18");
  EXPECT_THAT(OpenGpuDriver(options_).problem, HasSubstr("do not match"));
  const auto devices = Devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].kind, DeviceKind::kCuda);
  EXPECT_EQ(devices[0].health, DeviceHealth::kUnhealthy);
  EXPECT_THAT(devices[0].health_reason, HasSubstr("code 18"));
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  EXPECT_FALSE(table.HasUsable());
  table.Refresh();
  EXPECT_FALSE(table.HasUsable());
}

TEST_F(GpuDriverTest, HostIsOfferedBesideABrokenDriverOnlyWhenAskedFor) {
  Say("FAKE_NVML_INIT", "9");
  const auto devices = Devices(/*offer_host=*/true);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_THAT(devices[0].health_reason, HasSubstr("not loaded"));
  EXPECT_EQ(devices[1].name, "host");
}

TEST_F(GpuDriverTest, DriverWithoutLibraryAndDriverWithoutCardsAreToldApart) {
  Say("FAKE_NVML_CARDS", "0");
  EXPECT_THAT(OpenGpuDriver(options_).problem, HasSubstr("lists no GPU"));
  options_.library = "libno-such-nvml.so";
  options_.device_file = "/dev/null";
  EXPECT_THAT(OpenGpuDriver(options_).problem, HasSubstr("no libno-such-nvml.so"));
}

TEST_F(GpuDriverTest, HiddenGpusAreNoProblemAndAWrongNameIs) {
  options_.visible = "";
  EXPECT_THAT(OpenGpuDriver(options_).problem, IsEmpty());
  EXPECT_EQ(Devices().at(0).name, "host");
  options_.visible = "GPU-none";
  EXPECT_THAT(OpenGpuDriver(options_).problem, HasSubstr("GPU-none"));
}

// F121.
TEST_F(GpuDriverTest, MemoryAndNameBelongToTheUuidWhateverTheOrder) {
  Say("FAKE_NVML_CARDS", "3");
  options_.visible = "GPU-card-2,0";
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  const auto devices = table.List();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "cuda-2");
  EXPECT_EQ(devices[0].uuid, "GPU-card-2");
  EXPECT_EQ(devices[0].description, "Fake GPU 2");
  EXPECT_EQ(devices[0].total_bytes, int64_t{3 * 8000} << 20);
  EXPECT_EQ(devices[1].name, "cuda-0");
  EXPECT_EQ(devices[1].total_bytes, int64_t{8000} << 20);
  // The driver now lists them the other way round, as after a restart: nothing moves.
  Say("FAKE_NVML_CARDS", "-3");
  table.Refresh();
  EXPECT_EQ(table.List()[0].free_bytes, devices[0].free_bytes);
  EXPECT_EQ(table.List()[0].health, DeviceHealth::kHealthy);
}

// 4.2 row 48: a card goes, or is divided anew.
TEST_F(GpuDriverTest, CardThatIsNotListedAnyMoreIsUnhealthyAndComesBack) {
  Say("FAKE_NVML_CARDS", "3");
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  Say("FAKE_NVML_CARDS", "2");
  table.Refresh();
  EXPECT_EQ(table.List()[1].health, DeviceHealth::kHealthy);
  EXPECT_EQ(table.List()[2].health, DeviceHealth::kUnhealthy);
  EXPECT_TRUE(table.HasUsable());
  Say("FAKE_NVML_CARDS", "3");
  table.Refresh();
  EXPECT_EQ(table.List()[2].health, DeviceHealth::kHealthy);
}

// 4.2 row 6.
TEST_F(GpuDriverTest, FatalXidDrainsItsCardAloneUntilSomebodyUndrainsIt) {
  Say("FAKE_NVML_CARDS", "2");
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  for (const int64_t xid : {79, 48, 94, 95, 119}) {
    table.ReportXid("GPU-card-1", xid);
    EXPECT_EQ(table.List()[1].health, DeviceHealth::kDrained) << xid;
    EXPECT_EQ(table.List()[0].health, DeviceHealth::kHealthy) << xid;
    EXPECT_TRUE(table.HasUsable());
    table.Refresh();
    EXPECT_EQ(table.List()[1].health, DeviceHealth::kDrained) << xid;
    ASSERT_TRUE(table.Undrain("cuda-1").ok());
  }
  table.ReportXid("GPU-card-0", 79);
  table.ReportXid("GPU-card-1", 79);
  EXPECT_FALSE(table.HasUsable());
  EXPECT_THAT(table.List()[0].health_reason, HasSubstr("Xid 79: the GPU has fallen off the bus"));
}

// 4.2 row 7.
TEST_F(GpuDriverTest, XidOfAProgramKeepsTheCard) {
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  for (const int64_t xid : {13, 31, 43, 45, 68, 109}) {
    EXPECT_EQ(EffectOfXid(xid), XidEffect::kApplication) << xid;
    table.ReportXid("GPU-fake", xid);
  }
  EXPECT_EQ(table.List()[0].health, DeviceHealth::kHealthy);
}

TEST_F(GpuDriverTest, DeviceThatSomebodyDrainedIsStillOneToCountOn) {
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  ASSERT_TRUE(table.Drain("cuda-0", "new fan").ok());
  EXPECT_TRUE(table.HasUsable());
}

TEST_F(GpuDriverTest, WhatOthersTookIsNotPromisedToASecondJob) {
  Say("FAKE_NVML", "4 4 16 16 5000");
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(table.List()[0].room_bytes(), 5000 * kMiB);
  ASSERT_TRUE(table.Claim("cuda-0", "a", 2000 * kMiB, /*max_jobs=*/2).ok());
  // 3000 MiB are somebody else's from the start, and the job has not taken its own yet.
  EXPECT_EQ(table.List()[0].room_bytes(), 3000 * kMiB);
  EXPECT_FALSE(table.Claim("cuda-0", "b", 1, /*max_jobs=*/1).ok());
  ASSERT_TRUE(table.Claim("cuda-0", "b", 1000 * kMiB, /*max_jobs=*/2).ok());
  table.Release("cuda-0", "a");
  EXPECT_EQ(table.List()[0].room_bytes(), 4000 * kMiB);
}

// 4.2 row 8: the thread that asks a hanging driver waits, nobody else does.
TEST_F(GpuDriverTest, PolledDriverAnswersWithoutTheCallerWaiting) {
  DeviceTable table(OpenGpuDriver(options_), 1 << 20, /*offer_host=*/false);
  table.StartPolling(std::chrono::milliseconds(1));
  Say("FAKE_NVML", "4 4 16 16 123");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (table.List()[0].free_bytes != int64_t{123} << 20 &&
         std::chrono::steady_clock::now() < deadline) {
    table.Refresh();
  }
  EXPECT_EQ(table.List()[0].free_bytes, int64_t{123} << 20);
  EXPECT_EQ(table.List()[0].health, DeviceHealth::kHealthy);
}

}  // namespace
}  // namespace blockswap::server
