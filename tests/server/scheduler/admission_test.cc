// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/admission.h"

#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

DeviceState Gpu(int index, int64_t free_bytes) {
  DeviceState device;
  device.name = "cuda-" + std::to_string(index);
  device.kind = DeviceKind::kCuda;
  device.uuid = "GPU-" + std::to_string(index);
  device.total_bytes = 24 * kGiB;
  device.free_bytes = free_bytes;
  return device;
}

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    job_.needs.device_bytes = 10 * kGiB;
    job_.needs.host_bytes = 20 * kGiB;
    job_.needs.disk_bytes = kGiB;
  }
  JobRecord job_;
  HostRoom room_{64 * kGiB, 100 * kGiB, 0};
};

TEST_F(AdmissionTest, StartsOnTheFirstDeviceThatFits) {
  const auto decision = DecideAdmission(job_, {Gpu(0, 5 * kGiB), Gpu(1, 12 * kGiB)}, {}, room_);
  EXPECT_EQ(decision.device, "cuda-1");
}

TEST_F(AdmissionTest, SaysWhatIsMissingWithNumbers) {
  auto decision = DecideAdmission(job_, {Gpu(0, 5 * kGiB)}, {}, room_);
  EXPECT_EQ(decision.reason, "WAITING_FOR_VRAM");
  EXPECT_EQ(decision.message, "waiting for memory of cuda-0: needs 10.0 GiB, free 5.0 GiB");
  room_.memory_bytes = kGiB;
  decision = DecideAdmission(job_, {Gpu(0, 12 * kGiB)}, {}, room_);
  EXPECT_EQ(decision.reason, "WAITING_FOR_HOST_RAM");
  room_ = {64 * kGiB, 0, 0};
  decision = DecideAdmission(job_, {Gpu(0, 12 * kGiB)}, {}, room_);
  EXPECT_EQ(decision.reason, "WAITING_FOR_DISK");
}

TEST_F(AdmissionTest, HeldDrainedAndMissingDevicesAreToldApart) {
  DeviceState held = Gpu(0, 12 * kGiB);
  held.holder = "other";
  EXPECT_EQ(DecideAdmission(job_, {held}, {}, room_).reason, "WAITING_FOR_DEVICE");
  DeviceState drained = Gpu(0, 12 * kGiB);
  drained.health = DeviceHealth::kDrained;
  EXPECT_EQ(DecideAdmission(job_, {drained}, {}, room_).reason, "DEVICE_UNHEALTHY");
  job_.requested_device = "cuda:7";
  EXPECT_EQ(DecideAdmission(job_, {Gpu(0, 12 * kGiB)}, {}, room_).reason, "WAITING_FOR_DEVICE");
}

TEST_F(AdmissionTest, NobodyOvertakesOnADeviceAnotherWaitsFor) {
  const auto decision = DecideAdmission(job_, {Gpu(0, 12 * kGiB)}, {"cuda-0"}, room_);
  EXPECT_EQ(decision.reason, "HIGHER_PRIORITY_AHEAD");
  EXPECT_EQ(DecideAdmission(job_, {Gpu(0, 12 * kGiB), Gpu(1, 12 * kGiB)}, {"cuda-0"}, room_).device,
            "cuda-1");
}

TEST_F(AdmissionTest, BackoffIsWaitedOut) {
  job_.ready_micros = 5'000'000;
  EXPECT_EQ(DecideAdmission(job_, {Gpu(0, 12 * kGiB)}, {}, room_).reason, "BACKOFF");
  room_.now_micros = 5'000'000;
  EXPECT_TRUE(DecideAdmission(job_, {Gpu(0, 12 * kGiB)}, {}, room_).device.has_value());
}

TEST_F(AdmissionTest, DeviceIsFoundByAnyOfItsNames) {
  for (const char* name : {"auto", "", "cuda:1", "cuda-1", "GPU-1"}) {
    job_.requested_device = name;
    const auto decision = DecideAdmission(job_, {Gpu(1, 12 * kGiB)}, {}, room_);
    EXPECT_EQ(decision.device, "cuda-1") << name;
  }
}

TEST_F(AdmissionTest, HostDeviceTakesItsMemoryFromTheHost) {
  DeviceState host;
  host.name = "host";
  host.total_bytes = host.free_bytes = 16 * kGiB;
  room_.memory_bytes = 25 * kGiB;
  EXPECT_EQ(DecideAdmission(job_, {host}, {}, room_).reason, "WAITING_FOR_HOST_RAM");
  room_.memory_bytes = 31 * kGiB;
  EXPECT_EQ(DecideAdmission(job_, {host}, {}, room_).device, "host");
}

}  // namespace
}  // namespace blockswap::server
