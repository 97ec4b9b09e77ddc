// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/device_homes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "offload/device/host_device.h"
#include "offload/device/simulated_device.h"

namespace blockswap::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

HomeDemand Resident(int block, int64_t bytes) { return {{HomeKind::kResident, block}, bytes}; }
HomeDemand OfSlot(int slot, int64_t bytes) { return {{HomeKind::kSlot, slot}, bytes}; }

class DeviceHomesTest : public ::testing::Test {
 protected:
  std::unique_ptr<HostDevice> device_ = *HostDevice::Create({.budget_bytes = 4096});
  DeviceHomes homes_{device_.get()};
  std::vector<HomeKey> lost_;
};

TEST_F(DeviceHomesTest, WhatStaysKeepsItsAddressAndItsBytes) {
  ASSERT_TRUE(homes_.Reshape({Resident(0, 512), Resident(1, 256), OfSlot(0, 512)}, &lost_).ok());
  std::byte* const address = homes_.span({HomeKind::kResident, 1}).data;
  ASSERT_TRUE(homes_.Reshape({Resident(1, 256), OfSlot(0, 768)}, &lost_).ok());
  EXPECT_EQ(homes_.span({HomeKind::kResident, 1}).data, address);
  EXPECT_TRUE(homes_.kept({HomeKind::kResident, 1}));
  EXPECT_FALSE(homes_.kept({HomeKind::kSlot, 0}));
  EXPECT_EQ(homes_.span({HomeKind::kResident, 0}).data, nullptr);
  EXPECT_EQ(homes_.bytes(), 256 + 768);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 256 + 768);
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(DeviceHomesTest, AnArenaOfTheSameSizeServesAnotherBlock) {
  ASSERT_TRUE(homes_.Reshape({Resident(0, 2048), Resident(1, 2048)}, &lost_).ok());
  // The budget has no room for a third: this works only by passing arenas on.
  ASSERT_TRUE(homes_.Reshape({Resident(2, 2048), Resident(3, 2048)}, &lost_).ok());
  EXPECT_FALSE(homes_.kept({HomeKind::kResident, 2}));
  EXPECT_EQ(homes_.peak_bytes(), 4096);
}

TEST_F(DeviceHomesTest, ATightBudgetIsMetByGivingBackFirst) {
  ASSERT_TRUE(homes_.Reshape({Resident(0, 2048), Resident(1, 2048)}, &lost_).ok());
  ASSERT_TRUE(homes_.Reshape({Resident(2, 1024), Resident(3, 3072)}, &lost_).ok());
  EXPECT_EQ(homes_.bytes(), 4096);
}

TEST_F(DeviceHomesTest, ARefusalBringsTheOldHomesBackAndSaysWhatWasLost) {
  ASSERT_TRUE(homes_.Reshape({Resident(0, 1024), OfSlot(0, 512)}, &lost_).ok());
  const absl::Status refused = homes_.Reshape({Resident(1, 4096), OfSlot(0, 512)}, &lost_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(lost_, ElementsAre(HomeKey{HomeKind::kResident, 0}));
  EXPECT_EQ(homes_.bytes(), 1024 + 512);
  EXPECT_EQ(homes_.span({HomeKind::kResident, 0}).bytes, 1024);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 1024 + 512);
}

// Somebody else took what was given back: then nothing can be relied on, and that is said.
TEST(DeviceHomesFaultTest, OldHomesThatCannotBeHadAgainAreAnInternalError) {
  SimulatedDevice device({.budget_bytes = 2048});
  DeviceHomes homes(&device);
  std::vector<HomeKey> lost;
  ASSERT_TRUE(homes.Reshape({Resident(0, 1024)}, &lost).ok());
  device.ledger().SetBudget(512);
  EXPECT_EQ(homes.Reshape({Resident(1, 1536)}, &lost).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace blockswap::offload
