// SPDX-License-Identifier: Apache-2.0
#include "worker/train/update_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace blockswap::worker {
namespace {

TEST(UpdateThreadTest, UpdatesWhatWasStartedInOrder) {
  std::vector<int> updated;  // read after Await, which orders it behind the thread
  UpdateThread thread(5, [&](int unit) {
    updated.push_back(unit);
    return absl::OkStatus();
  });
  EXPECT_TRUE(thread.IsDone(4)) << "nothing was started";
  for (int round = 0; round < 100; ++round) {
    thread.Start(/*first=*/1);
    EXPECT_TRUE(thread.IsDone(0));
    ASSERT_TRUE(thread.Await(4).ok());
    EXPECT_TRUE(thread.IsDone(4));
    EXPECT_EQ(updated, (std::vector<int>{1, 2, 3, 4}));
    updated.clear();
  }
}

TEST(UpdateThreadTest, AwaitsOneUnitWhileLaterOnesAreStillToCome) {
  std::atomic<bool> may_go_on{false};
  UpdateThread thread(3, [&](int unit) {
    if (unit == 1) may_go_on.wait(false);
    return absl::OkStatus();
  });
  thread.Start(0);
  ASSERT_TRUE(thread.Await(0).ok());
  EXPECT_FALSE(thread.IsDone(2));
  may_go_on = true;
  may_go_on.notify_all();
  EXPECT_TRUE(thread.Await(2).ok());
}

TEST(UpdateThreadTest, TheFirstFailureStaysAndNothingFollowsIt) {
  std::vector<int> updated;
  UpdateThread thread(4, [&](int unit) -> absl::Status {
    updated.push_back(unit);
    if (unit == 1) throw std::runtime_error("no more");
    return absl::OkStatus();
  });
  thread.Start(0);
  EXPECT_EQ(thread.Await(3).code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(updated, (std::vector<int>{0, 1}));
  thread.Start(2);
  EXPECT_FALSE(thread.Await(3).ok());
  EXPECT_EQ(updated, (std::vector<int>{0, 1}));
}

TEST(UpdateThreadTest, EndsWithUnitsStillToUpdate) {
  std::atomic<int> updated{0};
  {
    UpdateThread thread(1000, [&](int) {
      ++updated;
      return absl::OkStatus();
    });
    thread.Start(0);
    ASSERT_TRUE(thread.Await(0).ok());
  }
  EXPECT_GE(updated.load(), 1);
}

}  // namespace
}  // namespace blockswap::worker
