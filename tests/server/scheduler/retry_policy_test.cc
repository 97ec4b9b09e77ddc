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
  int64_t expected_ms = 10000;
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

TEST(RetryPolicyTest, StorageThatMayComeBackIsRetriedUpToTheLimit) {
  JobRecord job;
  job.max_restarts = 1;
  Failure failure = Of(FailureCategory::kStorage);
  failure.retryable = true;
  const auto decision = DecideRetry(job, failure, {}, kNow, {});
  EXPECT_TRUE(decision.retries);
  EXPECT_TRUE(decision.counts);
  EXPECT_GT(decision.backoff.count(), 0);
  EXPECT_FALSE(DecideRetry(job, failure, {Counted(kNow - 1)}, kNow, {}).retries);
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

TEST(RetryPolicyTest, RestartsOfTheServerCostNothing) {
  JobRecord job;
  job.max_restarts = 0;
  Failure failure = Of(FailureCategory::kPreempted);
  failure.reason = "SERVER_RESTARTED";
  const auto decision = DecideRetry(job, failure, {}, kNow, {});
  EXPECT_TRUE(decision.retries);
  EXPECT_FALSE(decision.counts);
  EXPECT_EQ(decision.backoff.count(), 0);
}

TEST(RetryPolicyTest, AnHourOfProgressForgivesEarlierFailures) {
  JobRecord job;
  job.max_restarts = 1;
  RetryHistory history;
  history.ended.start_micros = kNow - kHour;
  history.ended.end_micros = kNow;
  history.ended.start_step = 10;
  const std::vector<AttemptRecord> attempts = {Counted(kNow - kHour)};
  const Failure crash = Of(FailureCategory::kWorkerCrash);
  // An hour without a step is none of progress.
  history.ended.end_step = 10;
  EXPECT_FALSE(DecideRetry(job, crash, attempts, kNow, {}, history).retries);
  history.ended.end_step = 11;
  EXPECT_TRUE(DecideRetry(job, crash, attempts, kNow, {}, history).retries);
  history.ended.start_micros += 1;
  EXPECT_FALSE(DecideRetry(job, crash, attempts, kNow, {}, history).retries);
}

TEST(RetryPolicyTest, NewCheckpointsForgiveEarlierFailures) {
  JobRecord job;
  job.max_restarts = 1;
  RetryHistory history;
  history.ended.start_micros = kNow - 100;
  history.ended.end_micros = kNow;
  history.ended.start_step = 4;
  const auto written = [&history](int64_t step) {
    CheckpointRecord checkpoint;
    checkpoint.step = step;
    checkpoint.create_micros = kNow - 50;
    history.checkpoints.push_back(checkpoint);
  };
  const std::vector<AttemptRecord> attempts = {Counted(kNow - kHour)};
  const Failure crash = Of(FailureCategory::kWorkerCrash);
  written(5);
  written(6);
  written(4);  // written again, not new
  EXPECT_FALSE(DecideRetry(job, crash, attempts, kNow, {}, history).retries);
  written(7);
  EXPECT_TRUE(DecideRetry(job, crash, attempts, kNow, {}, history).retries);
}

TEST(RetryPolicyTest, JitterShortensTheBackoffByAtMostAFifth) {
  JobRecord job;
  RetryHistory history;
  history.jitter = 0.5;
  const Failure crash = Of(FailureCategory::kWorkerCrash);
  EXPECT_EQ(DecideRetry(job, crash, {}, kNow, {}, history).backoff.count(), 9000);
  history.jitter = 0.999999;
  EXPECT_GE(DecideRetry(job, crash, {}, kNow, {}, history).backoff.count(), 8000);
}

}  // namespace
}  // namespace blockswap::server
