// SPDX-License-Identifier: Apache-2.0
#include "offload/host/staging_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "offload/device/host_device.h"
#include "offload/device/simulated_device.h"
#include "offload/host/pinned_arena.h"

namespace blockswap::offload {
namespace {

constexpr int64_t kBytes = 4096;

class StagingPoolTest : public ::testing::Test {
 protected:
  void Start(std::unique_ptr<DeviceRuntime> device, int num_buffers) {
    device_ = std::move(device);
    pool_ = *StagingPool::Create(device_.get(), num_buffers, kBytes);
    for (int i = 0; i < 3; ++i) {
      slots_.push_back(*device_->AllocateArena(kBytes, MemoryTag::kRing));
      ready_.push_back(*device_->CreateEvent());
      masters_.emplace_back(kBytes, static_cast<std::byte>(i + 1));
    }
  }
  void TearDown() override {
    pool_.reset();
    for (const DeviceSpan& slot : slots_) device_->FreeArena(slot, MemoryTag::kRing);
  }
  StagedLoad Load(size_t slot, size_t master) {
    StagedLoad load;
    load.source = masters_[master].data();
    load.destination = slots_[slot];
    load.ready = ready_[slot];
    return load;
  }

  std::unique_ptr<DeviceRuntime> device_;
  std::unique_ptr<StagingPool> pool_;
  std::vector<DeviceSpan> slots_;
  std::vector<EventId> ready_;
  std::vector<std::vector<std::byte>> masters_;
};

TEST_F(StagingPoolTest, LoadsArriveInOrderThroughFewBuffers) {
  Start(*HostDevice::Create({.latency = absl::Microseconds(200)}), 2);
  for (int round = 0; round < 50; ++round) {
    uint64_t last = 0;
    for (size_t slot = 0; slot < 3; ++slot) {
      last = pool_->Submit(Load(slot, (slot + static_cast<size_t>(round)) % 3));
    }
    ASSERT_TRUE(pool_->Join(last).ok());
    EXPECT_TRUE(pool_->IsQueued(last));
    for (size_t slot = 0; slot < 3; ++slot) {
      ASSERT_TRUE(device_->Wait(Stream::kCompute, ready_[slot]).ok());
      EXPECT_EQ(slots_[slot].data[kBytes - 1],
                static_cast<std::byte>((slot + static_cast<size_t>(round)) % 3 + 1));
    }
  }
}

TEST_F(StagingPoolTest, ALeavingBlockIsBackOnTheHostBeforeItsSlotChanges) {
  Start(*HostDevice::Create({.latency = absl::Milliseconds(1)}), 2);
  ASSERT_TRUE(pool_->Join(pool_->Submit(Load(0, 0))).ok());
  std::vector<std::byte> home(kBytes);
  StagedLoad exchange = Load(0, 1);
  exchange.write_back.destination = home.data();
  exchange.write_back.source = slots_[0];
  exchange.write_back.loaded = ready_[0];
  ASSERT_TRUE(pool_->Join(pool_->Submit(exchange)).ok());
  ASSERT_TRUE(device_->Synchronize(ready_[0]).ok());
  EXPECT_EQ(home, masters_[0]);
  EXPECT_EQ(slots_[0].data[0], std::byte{2});
}

TEST_F(StagingPoolTest, TheFirstFailureIsKeptForEveryLaterJoin) {
  Start(std::make_unique<SimulatedDevice>(SimulatedDeviceOptions{.failures = {.copy = 2}}), 2);
  EXPECT_TRUE(pool_->Join(pool_->Submit(Load(0, 0))).ok());
  const absl::Status failed = pool_->Join(pool_->Submit(Load(1, 1)));
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(pool_->Join(pool_->Submit(Load(2, 2))), failed);
  EXPECT_EQ(pool_->JoinAll(), failed);
}

TEST(StagingPoolFileTest, BlocksOfTheFileTierAreReadOnThePoolsThreadIntoFewBuffers) {
  auto device = *HostDevice::Create({});
  const auto trainer = std::this_thread::get_id();
  const BlockReader read = [&](int block, absl::Span<std::byte> destination) {
    EXPECT_NE(std::this_thread::get_id(), trainer);
    if (block == 9) return absl::DataLossError("the file is cut short");
    std::fill(destination.begin(), destination.end(), static_cast<std::byte>(block));
    return absl::OkStatus();
  };
  auto pool = *StagingPool::Create(device.get(), 2, kBytes, PinnedArena::Lock::kNo, read);
  EXPECT_EQ(pool->locked_bytes(), 0);
  EXPECT_EQ(pool->bytes(), 2 * kBytes);
  const DeviceSpan slot = *device->AllocateArena(kBytes, MemoryTag::kRing);
  StagedLoad load;
  load.destination = slot;
  load.ready = *device->CreateEvent();
  for (int block = 1; block < 8; ++block) {
    load.block = block;
    ASSERT_TRUE(pool->Join(pool->Submit(load)).ok());
    ASSERT_TRUE(device->Wait(Stream::kCompute, load.ready).ok());
    EXPECT_EQ(slot.data[kBytes - 1], static_cast<std::byte>(block));
  }
  load.block = 9;
  EXPECT_EQ(pool->Join(pool->Submit(load)).code(), absl::StatusCode::kDataLoss);
  pool.reset();
  device->FreeArena(slot, MemoryTag::kRing);
}

TEST(StagingPoolCreateTest, ARefusedLockIsAnError) {
  SimulatedDevice device({.lockable_bytes = kBytes});
  EXPECT_EQ(StagingPool::Create(&device, 2, kBytes).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(StagingPool::Create(&device, 1, kBytes).ok());
}

}  // namespace
}  // namespace blockswap::offload
