// SPDX-License-Identifier: Apache-2.0
#include "offload/device/memory_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t Current(const MemoryLedger& ledger, MemoryTag tag) {
  return ledger.Snapshot().current_bytes[static_cast<size_t>(tag)];
}

TEST(MemoryLedgerTest, CountsByTagWithExactBytesAndPeaks) {
  MemoryLedger ledger(1000);
  ASSERT_TRUE(ledger.Charge(MemoryTag::kRing, 300).ok());
  ASSERT_TRUE(ledger.Charge(MemoryTag::kAdapter, 700).ok());
  ledger.Release(MemoryTag::kRing, 300);
  const MemorySnapshot snapshot = ledger.Snapshot();
  EXPECT_EQ(snapshot.budget_bytes, 1000);
  EXPECT_EQ(snapshot.total_bytes, 700);
  EXPECT_EQ(snapshot.total_peak_bytes, 1000);
  EXPECT_EQ(Current(ledger, MemoryTag::kRing), 0);
  EXPECT_EQ(snapshot.peak_bytes[static_cast<size_t>(MemoryTag::kRing)], 300);
  ledger.ResetPeaks();
  EXPECT_EQ(ledger.Snapshot().total_peak_bytes, 700);
  EXPECT_EQ(ledger.Snapshot().peak_bytes[static_cast<size_t>(MemoryTag::kRing)], 0);
}

TEST(MemoryLedgerTest, RefusalNamesTagAskedInUseAndBudgetAndChargesNothing) {
  MemoryLedger ledger(1000);
  ASSERT_TRUE(ledger.Charge(MemoryTag::kEdgeWeights, 400).ok());
  const absl::Status refused = ledger.Charge(MemoryTag::kActivations, 601);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("activations"), HasSubstr("asked 601 bytes"), HasSubstr("in use 400"),
                    HasSubstr("budget 1000"), HasSubstr("free 600")));
  EXPECT_EQ(ledger.Snapshot().total_bytes, 400);
  EXPECT_EQ(ledger.Snapshot().total_peak_bytes, 400);
  EXPECT_TRUE(ledger.Charge(MemoryTag::kActivations, 600).ok());
}

TEST(MemoryLedgerTest, HugeRequestsDoNotOverflow) {
  MemoryLedger ledger(1000);
  ASSERT_TRUE(ledger.Charge(MemoryTag::kRing, 10).ok());
  EXPECT_EQ(ledger.Charge(MemoryTag::kRing, std::numeric_limits<int64_t>::max()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ledger.Charge(MemoryTag::kRing, -1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(MemoryLedgerTest, ZeroBudgetIsNoLimitAndASmallerOneBindsLater) {
  MemoryLedger ledger(0);
  ASSERT_TRUE(ledger.Charge(MemoryTag::kOther, int64_t{1} << 40).ok());
  ledger.SetBudget(100);
  EXPECT_FALSE(ledger.Charge(MemoryTag::kOther, 1).ok());
  ledger.Release(MemoryTag::kOther, int64_t{1} << 40);
  EXPECT_TRUE(ledger.Charge(MemoryTag::kOther, 100).ok());
}

TEST(MemoryLedgerTest, ChargesFromThreadsNeverExceedTheBudget) {
  MemoryLedger ledger(4096);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&ledger] {
      for (int j = 0; j < 2000; ++j) {
        if (ledger.Charge(MemoryTag::kActivations, 1500).ok()) {
          ledger.Release(MemoryTag::kActivations, 1500);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.Snapshot().total_bytes, 0);
  EXPECT_LE(ledger.Snapshot().total_peak_bytes, 4096);
}

TEST(MemoryLedgerDeathTest, ReleasingMoreThanChargedEndsTheProcess) {
  MemoryLedger ledger(0);
  ASSERT_TRUE(ledger.Charge(MemoryTag::kRing, 5).ok());
  EXPECT_DEATH(ledger.Release(MemoryTag::kRing, 6), "released 6 bytes of ring, only 5");
}

TEST(MemoryTagNameTest, EveryTagHasItsOwnName) {
  std::set<std::string> names;
  for (int tag = 0; tag < kNumMemoryTags; ++tag) {
    names.insert(std::string(MemoryTagName(static_cast<MemoryTag>(tag))));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumMemoryTags));
  EXPECT_EQ(names.count("unknown"), 0u);
}

}  // namespace
}  // namespace blockswap::offload
