// SPDX-License-Identifier: Apache-2.0
#include "offload/device/simulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace blockswap::offload {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

// One device with one slot of 256 bytes and a block of sevens on the host.
class SimulatedDeviceTest : public ::testing::Test {
 protected:
  void Start(const SimulatedDeviceOptions& options) {
    device_ = std::make_unique<SimulatedDevice>(options);
    slot_ = *device_->AllocateArena(256, MemoryTag::kRing);
    ready_ = *device_->CreateEvent();
    released_ = *device_->CreateEvent();
  }
  void TearDown() override {
    if (device_ != nullptr) device_->FreeArena(slot_, MemoryTag::kRing);
  }
  void Load() {
    ASSERT_TRUE(device_->CopyToDevice(slot_, block_.data()).ok());
    ASSERT_TRUE(device_->Record(ready_, Stream::kHostToDevice).ok());
  }

  std::unique_ptr<SimulatedDevice> device_;
  DeviceSpan slot_;
  EventId ready_ = kNoEvent, released_ = kNoEvent;
  std::vector<std::byte> block_ = std::vector<std::byte>(256, std::byte{7});
};

TEST_F(SimulatedDeviceTest, AReadBehindTheCopysEventSeesTheBytes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    if (device_ != nullptr) device_->FreeArena(slot_, MemoryTag::kRing);
    Start({.seed = seed});
    Load();
    ASSERT_TRUE(device_->Wait(Stream::kCompute, ready_).ok());
    EXPECT_TRUE(device_->CheckRead(slot_).ok());
    EXPECT_EQ(slot_.data[255], std::byte{7});
    EXPECT_THAT(device_->violations(), IsEmpty());
  }
}

TEST_F(SimulatedDeviceTest, AReadThatDoesNotWaitIsFoundEvenWhenItsTimeIsLater) {
  Start({});
  Load();
  ASSERT_TRUE(device_->NoteComputeUse({slot_.data + 256, 0}, absl::Seconds(10)).ok());
  EXPECT_EQ(device_->CheckRead(slot_).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(device_->violations(), Not(IsEmpty()));
}

TEST_F(SimulatedDeviceTest, AnUnorderedReadFindsRubbishForSomeSeed) {
  int rubbish = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    if (device_ != nullptr) device_->FreeArena(slot_, MemoryTag::kRing);
    Start({.seed = seed});
    Load();
    EXPECT_FALSE(device_->CheckRead(slot_).ok());
    rubbish += slot_.data[0] != std::byte{7};
  }
  EXPECT_GT(rubbish, 0);
  EXPECT_LT(rubbish, 20);
}

TEST_F(SimulatedDeviceTest, AnOverwriteBeforeComputeIsPastIsFound) {
  Start({});
  Load();
  ASSERT_TRUE(device_->Wait(Stream::kCompute, ready_).ok());
  ASSERT_TRUE(device_->NoteComputeUse(slot_, absl::Milliseconds(1)).ok());
  Load();
  EXPECT_EQ(device_->violations().size(), 1u);
}

TEST_F(SimulatedDeviceTest, AnOverwriteBehindTheReadersEventIsRight) {
  Start({});
  Load();
  ASSERT_TRUE(device_->Wait(Stream::kCompute, ready_).ok());
  ASSERT_TRUE(device_->NoteComputeUse(slot_, absl::Milliseconds(1)).ok());
  ASSERT_TRUE(device_->Record(released_, Stream::kCompute).ok());
  ASSERT_TRUE(device_->Wait(Stream::kHostToDevice, released_).ok());
  Load();
  EXPECT_THAT(device_->violations(), IsEmpty());
  // The log has the copy start after the read has ended.
  const std::vector<SimulatedAccess> log = device_->accesses();
  EXPECT_GE(log.back().start, absl::Milliseconds(1));
}

TEST_F(SimulatedDeviceTest, ARecordMadeTooEarlyDoesNotCount) {
  Start({});
  Load();
  ASSERT_TRUE(device_->Wait(Stream::kCompute, ready_).ok());
  ASSERT_TRUE(device_->Record(released_, Stream::kCompute).ok());  // before the read: F13
  ASSERT_TRUE(device_->NoteComputeUse(slot_, absl::Milliseconds(1)).ok());
  ASSERT_TRUE(device_->Wait(Stream::kHostToDevice, released_).ok());
  Load();
  EXPECT_EQ(device_->violations().size(), 1u);
}

TEST_F(SimulatedDeviceTest, AWriteBackThatRacesTheNextLoadIsFound) {
  Start({});
  std::vector<std::byte> home(256);
  ASSERT_TRUE(device_->CopyToHost(home.data(), slot_).ok());
  Load();
  EXPECT_EQ(device_->violations().size(), 1u);
}

TEST_F(SimulatedDeviceTest, HostMemoryIsCheckedToo) {
  Start({});
  Load();                                                       // h2d reads block_
  ASSERT_TRUE(device_->CopyToHost(block_.data(), slot_).ok());  // d2h overwrites it
  EXPECT_GE(device_->violations().size(), 1u);
}

TEST_F(SimulatedDeviceTest, SynchronizingOrdersTheHost) {
  Start({});
  Load();
  ASSERT_TRUE(device_->SynchronizeStream(Stream::kHostToDevice).ok());
  EXPECT_EQ(slot_.data[0], std::byte{7});
  EXPECT_TRUE(device_->CheckRead(slot_).ok());
}

TEST_F(SimulatedDeviceTest, TheClockCountsLatencyRateAndStall) {
  Start({.h2d_bytes_per_second = 256e3,
         .latency = absl::Milliseconds(2),
         .host_call = absl::ZeroDuration()});
  Load();  // 2 ms + 1 ms
  ASSERT_TRUE(device_->NoteComputeUse({slot_.data + 256, 0}, absl::Milliseconds(1)).ok());
  ASSERT_TRUE(device_->Wait(Stream::kCompute, ready_).ok());
  EXPECT_EQ(device_->compute_stall(), absl::Milliseconds(2));
  EXPECT_EQ(device_->compute_time(), absl::Milliseconds(3));
  EXPECT_EQ(device_->copies(CopyDirection::kHostToDevice).busy, absl::Milliseconds(3));
}

TEST_F(SimulatedDeviceTest, AnEventIsCompleteWhenTheHostsClockHasPassedIt) {
  Start({.latency = absl::Milliseconds(1), .host_call = absl::Microseconds(400)});
  EXPECT_TRUE(device_->IsComplete(ready_));
  Load();
  EXPECT_FALSE(device_->IsComplete(ready_));
  int polls = 0;
  while (!device_->IsComplete(ready_)) ++polls;
  EXPECT_LE(polls, 3);
  EXPECT_EQ(slot_.data[0], std::byte{7});
}

TEST_F(SimulatedDeviceTest, InjectedFailuresAreSticky) {
  Start({.failures = {.copy = 2}});
  Load();
  EXPECT_EQ(device_->CopyToDevice(slot_, block_.data()).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(device_->Record(ready_, Stream::kHostToDevice).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(device_->failed());
}

TEST_F(SimulatedDeviceTest, AnAsynchronousFailureIsReportedByTheNextCall) {
  Start({.failures = {.copy = 1, .asynchronous = true}});
  EXPECT_TRUE(device_->CopyToDevice(slot_, block_.data()).ok());
  EXPECT_EQ(device_->Record(ready_, Stream::kHostToDevice).code(), absl::StatusCode::kInternal);
}

TEST_F(SimulatedDeviceTest, RefusesArenasAndLocksByOrdinalAndLimit) {
  Start({.lockable_bytes = 4096, .failures = {.arena = 2}});
  EXPECT_EQ(device_->AllocateArena(256, MemoryTag::kRing).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 256);
  EXPECT_TRUE(device_->LockHostMemory(block_.data(), 4096).ok());
  EXPECT_EQ(device_->LockHostMemory(block_.data(), 4096).code(),
            absl::StatusCode::kResourceExhausted);
  device_->UnlockHostMemory(block_.data(), 4096);
  EXPECT_TRUE(device_->LockHostMemory(block_.data(), 4096).ok());
}

}  // namespace
}  // namespace blockswap::offload
