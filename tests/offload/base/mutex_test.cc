// SPDX-License-Identifier: Apache-2.0
#include "offload/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace blockswap::base {
namespace {

struct Shared {
  Mutex mutex;
  CondVar changed;
  int count ABSL_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, CountsFromManyThreads) {
  Shared shared;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&shared] {
      for (int j = 0; j < 1000; ++j) {
        MutexLock lock(shared.mutex);
        ++shared.count;
        shared.changed.SignalAll();
      }
    });
  }
  {
    MutexLock lock(shared.mutex);
    while (shared.count < 4000) shared.changed.Wait(shared.mutex);
    EXPECT_EQ(shared.count, 4000);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CondVarTest, WaitUntilEndsAtItsDeadline) {
  Shared shared;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  MutexLock lock(shared.mutex);
  while (shared.changed.WaitUntil(shared.mutex, deadline)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

}  // namespace
}  // namespace blockswap::base
