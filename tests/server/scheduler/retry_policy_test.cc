// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/retry_policy.h"

#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

constexpr int64_t kHour = int64_t{3600} * 1000000;
constexpr int64_t kNow = 1000 * kHour;

Failure Of(FailureCategory category) {
  Failure failure;
  failure.category = category;
  return failure;
}

AttemptRecord Counted(int64_t end_micros) {
  AttemptRecord attempt;
  attempt.end_micros = end_micros;
  attempt.counts_as_retry = true;
  return attempt;
}

TEST(RetryPolicyTest, CrashesAreRetriedWithDoublingBackoffUpToTheLimit) {
  JobRecord job;
  job.max_restarts = 3;
  std::vector<AttemptRecord> attempts;
  int64_t expected_ms = 1000;
  for (int restart = 0; restart < 3; ++restart) {
    const auto decision = DecideRetry(job, Of(FailureCategory::kWorkerCrash), attempts, kNow, {});
    EXPECT_TRUE(decision.retries);
    EXPECT_TRUE(decision.counts);
    EXPECT_EQ(decision.backoff.count(), expected_ms);
    expected_ms *= 2;
    attempts.push_back(Counted(kNow - 1));
  }
  EXPECT_FALSE(DecideRetry(job, Of(FailureCategory::kWorkerCrash), attempts, kNow, {}).retries);
}

TEST(RetryPolicyTest, OldAndUncountedAttemptsAreForgotten) {
  JobRecord job;
  job.max_restarts = 1;
  AttemptRecord server_restart;
  server_restart.end_micros = kNow - 1;
  const std::vector<AttemptRecord> attempts = {Counted(kNow - 25 * kHour), server_restart};
  EXPECT_TRUE(DecideRetry(job, Of(FailureCategory::kStalled), attempts, kNow, {}).retries);
}

TEST(RetryPolicyTest, BackoffHasACeiling) {
  JobRecord job;
  job.max_restarts = 100;
  const std::vector<AttemptRecord> attempts(60, Counted(kNow - 1));
  const RetryOptions options;
  EXPECT_EQ(DecideRetry(job, Of(FailureCategory::kWorkerCrash), attempts, kNow, options).backoff,
            options.max_backoff);
}

TEST(RetryPolicyTest, WhatWouldRepeatItselfIsNotRetried) {
  JobRecord job;
  for (const auto category : {FailureCategory::kInvalidInput, FailureCategory::kNumerics,
                              FailureCategory::kOutOfMemoryHost, FailureCategory::kStorage,
                              FailureCategory::kServerInternal}) {
    EXPECT_FALSE(DecideRetry(job, Of(category), {}, kNow, {}).retries)
        << static_cast<int>(category);
  }
}

TEST(RetryPolicyTest, DeviceOutOfMemoryIsTriedOnceWithMoreSwap) {
  JobRecord job;
  job.needs.blocks_to_swap = 20;
  job.needs.max_blocks_to_swap = 59;
  auto decision = DecideRetry(job, Of(FailureCategory::kOutOfMemoryDevice), {}, kNow, {});
  EXPECT_TRUE(decision.retries);
  EXPECT_FALSE(decision.counts);
  EXPECT_EQ(decision.swap_override, 25);
  job.out_of_memory_retried = true;
  EXPECT_FALSE(DecideRetry(job, Of(FailureCategory::kOutOfMemoryDevice), {}, kNow, {}).retries);
}

TEST(RetryPolicyTest, DeviceOutOfMemoryWithEverythingAwayIsFinal) {
  JobRecord job;
  job.needs.blocks_to_swap = job.needs.max_blocks_to_swap = 59;
  EXPECT_FALSE(DecideRetry(job, Of(FailureCategory::kOutOfMemoryDevice), {}, kNow, {}).retries);
}

}  // namespace
}  // namespace blockswap::server
