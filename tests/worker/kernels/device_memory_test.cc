// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/device_memory.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {
namespace {

using offload::MemoryLedger;
using offload::MemoryTag;
using ::testing::HasSubstr;

constexpr int64_t kFloats = 1000;
constexpr int64_t kBytes = 4032;  // 4000 rounded up to 64

int64_t Current(const MemoryLedger& ledger, MemoryTag tag) {
  return ledger.Snapshot().current_bytes[static_cast<size_t>(tag)];
}

TEST(DeviceMemoryTest, CountsTensorsExactlyUnderTheTagOfTheThread) {
  MemoryLedger ledger(0);
  const CountedHostMemory counted(&ledger);
  {
    const at::Tensor other = at::empty({kFloats});
    EXPECT_EQ(Current(ledger, MemoryTag::kOther), kBytes);
    const MemoryScope outer(MemoryTag::kActivations);
    const at::Tensor activation = at::empty({kFloats});
    at::Tensor adapter;
    {
      const MemoryScope inner(MemoryTag::kAdapter);
      adapter = at::empty({kFloats});
    }
    const at::Tensor more = at::empty({kFloats});
    EXPECT_EQ(Current(ledger, MemoryTag::kActivations), 2 * kBytes);
    EXPECT_EQ(Current(ledger, MemoryTag::kAdapter), kBytes);
    EXPECT_EQ(ledger.Snapshot().total_bytes, 4 * kBytes);
  }
  EXPECT_EQ(ledger.Snapshot().total_bytes, 0);
  EXPECT_EQ(ledger.Snapshot().total_peak_bytes, 4 * kBytes);
}

TEST(DeviceMemoryTest, ATensorIsReleasedFromTheTagItWasChargedTo) {
  MemoryLedger ledger(0);
  const CountedHostMemory counted(&ledger);
  at::Tensor tensor;
  {
    const MemoryScope scope(MemoryTag::kOptimizer);
    tensor = at::empty({kFloats});
  }
  const MemoryScope scope(MemoryTag::kActivations);
  tensor = at::Tensor();
  EXPECT_EQ(Current(ledger, MemoryTag::kOptimizer), 0);
  EXPECT_EQ(Current(ledger, MemoryTag::kActivations), 0);
}

TEST(DeviceMemoryTest, BeyondTheBudgetIsResourceExhaustedWithNumbers) {
  MemoryLedger ledger(3 * kBytes);
  const CountedHostMemory counted(&ledger);
  const at::Tensor first = at::empty({kFloats});
  const absl::Status status = RunContained([] {
    const MemoryScope scope(MemoryTag::kActivations);
    const at::Tensor second = at::empty({3 * kFloats});
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("activations"));
  EXPECT_THAT(message, HasSubstr(std::to_string(3 * kBytes)));  // the budget
  EXPECT_THAT(message, HasSubstr("12032"));  // what was asked for: 12000 rounded up
  EXPECT_EQ(ledger.Snapshot().total_bytes, kBytes);
  // The refusal leaves the allocator as it was.
  EXPECT_TRUE(RunContained([] {
                const at::Tensor fits = at::empty({2 * kFloats});
                return absl::OkStatus();
              }).ok());
}

TEST(DeviceMemoryTest, HostSideWorkIsExempt) {
  MemoryLedger ledger(kBytes);
  const CountedHostMemory counted(&ledger);
  const HostMemoryScope host_side;
  const MemoryScope still_exempt(MemoryTag::kActivations);
  const at::Tensor large = at::empty({100 * kFloats});
  EXPECT_EQ(ledger.Snapshot().total_bytes, 0);
}

TEST(DeviceMemoryTest, ATensorMayOutliveItsLedgerAndMeetTheNext) {
  at::Tensor survivor;
  {
    MemoryLedger ledger(0);
    const CountedHostMemory counted(&ledger);
    survivor = at::empty({kFloats});
  }
  MemoryLedger next(0);
  const CountedHostMemory counted(&next);
  const at::Tensor own = at::empty({kFloats});
  survivor = at::Tensor();
  EXPECT_EQ(next.Snapshot().total_bytes, kBytes);
}

TEST(DeviceMemoryTest, TensorsMayBeFreedOnAnyThread) {
  MemoryLedger ledger(0);
  const CountedHostMemory counted(&ledger);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    auto tensors = std::make_shared<std::vector<at::Tensor>>();
    for (int j = 0; j < 50; ++j) tensors->push_back(at::empty({kFloats}));
    threads.emplace_back([tensors] {
      for (int j = 0; j < 50; ++j) {
        tensors->at(static_cast<size_t>(j)) = at::empty({kFloats});
      }
      tensors->clear();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.Snapshot().total_bytes, 0);
}

TEST(DeviceMemoryTest, BlocksKeptForReuseAreNotCharged) {
  MemoryLedger ledger(0);
  const CountedHostMemory counted(&ledger);
  for (int i = 0; i < 100; ++i) {
    at::Tensor first = at::full({kFloats}, 1.0f), second = at::full({kFloats}, 2.0f);
    EXPECT_EQ(ledger.Snapshot().total_bytes, 2 * kBytes);
    // Two live tensors never share a block.
    EXPECT_EQ((first + second).sum().item<float>(), 3.0f * kFloats);
  }
  EXPECT_EQ(ledger.Snapshot().total_bytes, 0);
}

TEST(DeviceMemoryTest, AnAbsurdSizeIsOutOfMemory) {
  MemoryLedger ledger(0);
  const CountedHostMemory counted(&ledger);
  const absl::Status status = RunContained([] {
    const at::Tensor absurd = at::empty({(int64_t{1} << 61)}, at::kByte);
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(DeviceMemoryTest, DataIsAlignedForVectorKernels) {
  MemoryLedger ledger(0);
  const CountedHostMemory counted(&ledger);
  for (int64_t count : {1, 3, 17, 1000}) {
    const at::Tensor tensor = at::empty({count}, at::kByte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u) << count;
  }
}

}  // namespace
}  // namespace blockswap::worker
