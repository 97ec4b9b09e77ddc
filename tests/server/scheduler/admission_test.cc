// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/admission.h"

#include <gtest/gtest.h>

#include "server/scheduler/queue_policy.h"

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

// What a pass over a queue of this one job says.
struct Answer {
  std::string device, reason, message;
};

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    job_.needs.device_bytes = 10 * kGiB;
    job_.needs.host_bytes = 20 * kGiB;
    job_.needs.disk_bytes = kGiB;
  }
  Answer Ask(const std::vector<DeviceState>& devices, const std::vector<RunningJob>& running = {}) {
    QueueState state;
    state.devices = devices;
    state.running = running;
    state.host = room_;
    state.host.disk_bytes = [this](const QueuedJob&) { return disk_bytes_; };
    state.steady_micros = now_micros_;
    const auto decisions = DecideQueue({job_}, state, {});
    const QueueDecision& decision = decisions.at(0);
    if (decision.verdict == Verdict::kStart) return {decision.device, "", ""};
    return {"", ReasonName(decision.reason), MessageOf(decision.reason)};
  }

  QueuedJob job_;
  HostRoom room_{64 * kGiB, kNever, {}, {}};
  int64_t disk_bytes_ = 100 * kGiB, now_micros_ = 0;
};

TEST_F(AdmissionTest, StartsOnTheFirstDeviceThatFits) {
  EXPECT_EQ(Ask({Gpu(0, 5 * kGiB), Gpu(1, 12 * kGiB)}).device, "cuda-1");
}

TEST_F(AdmissionTest, SaysWhatIsMissingWithNumbers) {
  Answer answer = Ask({Gpu(0, 5 * kGiB)});
  EXPECT_EQ(answer.reason, "WAITING_FOR_VRAM");
  EXPECT_EQ(answer.message, "waiting for memory of cuda-0: needs 10.0 GiB, free 5.0 GiB");
  room_.memory_bytes = kGiB;
  answer = Ask({Gpu(0, 12 * kGiB)});
  EXPECT_EQ(answer.reason, "WAITING_FOR_HOST_RAM");
  EXPECT_EQ(answer.message, "waiting for host memory: needs 20.0 GiB, free 1.0 GiB");
  room_.memory_bytes = 64 * kGiB;
  disk_bytes_ = kGiB / 2;
  answer = Ask({Gpu(0, 12 * kGiB)});
  EXPECT_EQ(answer.reason, "WAITING_FOR_DISK");
  EXPECT_EQ(answer.message, "waiting for room for a checkpoint: needs 1.0 GiB, free 512.0 MiB");
}

TEST_F(AdmissionTest, HeldDrainedAndMissingDevicesAreToldApart) {
  DeviceState held = Gpu(0, 12 * kGiB);
  held.holders.push_back({"other", kGiB});
  EXPECT_EQ(Ask({held}).reason, "WAITING_FOR_DEVICE");
  EXPECT_EQ(Ask({held}).message, "device cuda-0 is held by job other");
  DeviceState drained = Gpu(0, 12 * kGiB);
  drained.health = DeviceHealth::kDrained;
  drained.health_reason = "drained on request";
  EXPECT_EQ(Ask({drained}).reason, "DEVICE_UNHEALTHY");
  EXPECT_EQ(Ask({drained}).message, "device cuda-0: drained on request");
  job_.requested_device = "cuda:7";
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).reason, "WAITING_FOR_DEVICE");
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).message, "there is no device \"cuda:7\" on this server");
}

TEST_F(AdmissionTest, BackoffIsWaitedOut) {
  job_.ready_micros = 5'000'000;
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).reason, "BACKOFF");
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).message, "the next attempt starts in 5 s");
  now_micros_ = 5'000'000;
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).device, "cuda-0");
}

TEST_F(AdmissionTest, DeviceIsFoundByAnyOfItsNames) {
  for (const char* name : {"auto", "", "cuda:1", "cuda-1", "GPU-1"}) {
    job_.requested_device = name;
    EXPECT_EQ(Ask({Gpu(1, 12 * kGiB)}).device, "cuda-1") << name;
  }
}

TEST_F(AdmissionTest, HostDeviceTakesItsMemoryFromTheHost) {
  DeviceState host;
  host.name = "host";
  host.total_bytes = host.free_bytes = 16 * kGiB;
  room_.memory_bytes = 25 * kGiB;
  EXPECT_EQ(Ask({host}).reason, "WAITING_FOR_HOST_RAM");
  room_.memory_bytes = 31 * kGiB;
  EXPECT_EQ(Ask({host}).device, "host");
}

TEST_F(AdmissionTest, PageLocksCountOnlyForAJobThatInsistsOnThem) {
  room_.lockable_bytes = 4 * kGiB;
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).device, "cuda-0");
  job_.needs.locked_bytes = 8 * kGiB;
  const Answer answer = Ask({Gpu(0, 12 * kGiB)});
  EXPECT_EQ(answer.reason, "WAITING_FOR_HOST_RAM");
  EXPECT_EQ(answer.message,
            "waiting for page-locked memory (memory.pinned_memory is required): needs 8.0 GiB, "
            "free 4.0 GiB");
}

TEST_F(AdmissionTest, WeightsThatARunningJobSharesAreNotTakenTwice) {
  job_.needs.base_key = "base";
  room_.memory_bytes = 6 * kGiB;
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).reason, "WAITING_FOR_HOST_RAM");
  job_.needs.master_bytes = {6 * kGiB, 0, 6 * kGiB, 3 * kGiB};  // the second block is resident
  room_.shared_bases["base"] = {true, true, true, true};
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).device, "cuda-0");
  room_.memory_bytes = 4 * kGiB;
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).message,
            "waiting for host memory: needs 5.0 GiB, free 4.0 GiB");
}

// What the running job streams may be other blocks than this one will.
TEST_F(AdmissionTest, OnlyTheBlocksThatAreThereAreNotTakenAgain) {
  job_.needs.base_key = "base";
  job_.needs.master_bytes = {6 * kGiB, 0, 6 * kGiB, 3 * kGiB};
  room_.memory_bytes = 6 * kGiB;
  room_.shared_bases["base"] = {true, true, false, true};
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).message,
            "waiting for host memory: needs 11.0 GiB, free 6.0 GiB");
  room_.shared_bases["base"] = {true};  // made for fewer blocks
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).message,
            "waiting for host memory: needs 14.0 GiB, free 6.0 GiB");
}

// host_modulation: auto is settled by the worker: the memory may have either of two names.
TEST_F(AdmissionTest, TheFullerOfTwoBasesIsTakenToBeTheOne) {
  job_.needs.base_key = "off";
  job_.needs.other_base_key = "on";
  job_.needs.master_bytes = {6 * kGiB, 6 * kGiB};
  room_.memory_bytes = 8 * kGiB;
  room_.shared_bases["off"] = {true, false};
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).message,
            "waiting for host memory: needs 14.0 GiB, free 8.0 GiB");
  room_.shared_bases["on"] = {true, true};
  EXPECT_EQ(Ask({Gpu(0, 12 * kGiB)}).device, "cuda-0");
}

// 4.2 row 48: another program on the card.
TEST_F(AdmissionTest, MemoryThatAnotherProgramTookIsNotPromised) {
  DeviceState card = Gpu(0, 14 * kGiB);
  card.foreign_bytes = 10 * kGiB;
  card.holders.push_back({"first", 8 * kGiB});
  // 24 - 10 - 8 are left though the first has taken nothing yet and 14 are free.
  EXPECT_EQ(card.room_bytes(), 6 * kGiB);
}

}  // namespace
}  // namespace blockswap::server
