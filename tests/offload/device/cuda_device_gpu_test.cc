// SPDX-License-Identifier: Apache-2.0
// Needs a CUDA device: registered only with BLOCKSWAP_GPU_TESTS=ON.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "offload/device/cuda_device.h"
#include "offload/host/pinned_arena.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

constexpr int64_t kBytes = 4 << 20;

class CudaDeviceGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create(/*ordinal=*/0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDeviceGpuTest, BytesSurviveTheRoundTrip) {
  const DeviceSpan arena = *device_->AllocateArena(kBytes, MemoryTag::kRing);
  PinnedArena source = *PinnedArena::Create(device_.get(), kBytes, PinnedArena::Lock::kYes);
  PinnedArena back = *PinnedArena::Create(device_.get(), kBytes, PinnedArena::Lock::kYes);
  for (int64_t i = 0; i < kBytes; ++i) source.data()[i] = static_cast<std::byte>(i * 31);
  const EventId event = *device_->CreateEvent();
  ASSERT_TRUE(device_->CopyToDevice(arena, source.data()).ok());
  ASSERT_TRUE(device_->Record(event, Stream::kHostToDevice).ok());
  ASSERT_TRUE(device_->Wait(Stream::kDeviceToHost, event).ok());
  ASSERT_TRUE(device_->CopyToHost(back.data(), arena).ok());
  ASSERT_TRUE(device_->SynchronizeStream(Stream::kDeviceToHost).ok());
  EXPECT_TRUE(std::equal(source.data(), source.data() + kBytes, back.data()));
  EXPECT_EQ(device_->copies(CopyDirection::kHostToDevice).bytes, kBytes);
  EXPECT_GT(device_->copies(CopyDirection::kHostToDevice).busy, absl::ZeroDuration());
  device_->FreeArena(arena, MemoryTag::kRing);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 0);
}

TEST_F(CudaDeviceGpuTest, OutOfMemoryIsAnAnswerAndTheDeviceGoesOn) {
  const int64_t impossible = device_->facts().total_bytes * 2;
  EXPECT_EQ(device_->AllocateArena(impossible, MemoryTag::kRing).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 0);
  const absl::StatusOr<DeviceSpan> arena = device_->AllocateArena(kBytes, MemoryTag::kRing);
  ASSERT_TRUE(arena.ok()) << arena.status();
  device_->FreeArena(*arena, MemoryTag::kRing);
}

TEST_F(CudaDeviceGpuTest, StepsAndSamplesKeepEveryBlocksBytes) {
  const FakeModel model = MakeUniformModel(8, kBytes);
  for (const TransferMode mode : {TransferMode::kH2dOnly, TransferMode::kExchange}) {
    for (const PinPolicy policy : {PinPolicy::kAuto, PinPolicy::kNever}) {
      PlanRequest request = model.request();
      request.constraints.mode = mode;
      request.constraints.pin_policy = policy;
      request.constraints.blocks_to_swap = 6;
      request.copies_need_pinned_memory = true;
      const SwapPlan plan = *Plan(request);
      auto swapper = BlockSwapper::Create(device_.get(), plan, model.blocks, model.reader());
      ASSERT_TRUE(swapper.ok()) << swapper.status();
      for (const PassKind kind :
           {PassKind::kTraining, PassKind::kForwardOnly, PassKind::kTraining}) {
        ASSERT_TRUE((*swapper)->BeginPass(kind).ok());
        const TransferSchedule& schedule =
            kind == PassKind::kTraining ? plan.training : plan.forward_only;
        for (size_t visit = 0; visit < schedule.visits.size(); ++visit) {
          const Direction direction = visit < 8 ? Direction::kForward : Direction::kBackward;
          const auto lease = (*swapper)->Acquire(schedule.visits[visit], direction);
          ASSERT_TRUE(lease.ok()) << lease.status();
        }
      }
      EXPECT_EQ((*swapper)->stats().misses, 0);
      EXPECT_EQ((*swapper)->stats().staged_transfers > 0, policy == PinPolicy::kNever);
      for (int block = 0; block < 8; ++block) {
        std::vector<std::byte> bytes(kBytes);
        ASSERT_TRUE((*swapper)->ReadBlock(block, absl::MakeSpan(bytes)).ok());
        EXPECT_EQ(bytes, model.contents[static_cast<size_t>(block)]) << "block " << block;
      }
    }
  }
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 0);
}

}  // namespace
}  // namespace blockswap::offload
