// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/exit_classification.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

namespace blockswap::server {
namespace {

ExitContext Exited(int code, bool was_ready = true) {
  ExitContext context;
  context.exit.exit_code = code;
  context.was_ready = was_ready;
  context.last_step = 7;
  return context;
}

TEST(ExitClassificationTest, EveryDocumentedCodeHasItsCategory) {
  const std::pair<int, FailureCategory> table[] = {
      {10, FailureCategory::kInvalidInput},   {11, FailureCategory::kOutOfMemoryDevice},
      {12, FailureCategory::kDeviceFault},    {13, FailureCategory::kStorage},
      {14, FailureCategory::kNumerics},       {15, FailureCategory::kOutOfMemoryHost},
      {20, FailureCategory::kServerInternal},
  };
  for (const auto& [code, category] : table) {
    const Outcome outcome = ClassifyExit(Exited(code));
    EXPECT_EQ(outcome.kind, OutcomeKind::kFailed) << code;
    EXPECT_EQ(outcome.failure.category, category) << code;
    EXPECT_EQ(outcome.failure.exit_code, code);
    EXPECT_EQ(outcome.failure.step, 7);
  }
  EXPECT_EQ(ClassifyExit(Exited(0)).kind, OutcomeKind::kSucceeded);
  EXPECT_EQ(ClassifyExit(Exited(3)).kind, OutcomeKind::kCancelled);
  EXPECT_EQ(ClassifyExit(Exited(4)).kind, OutcomeKind::kSuspended);
}

TEST(ExitClassificationTest, EverythingElseIsACrash) {
  for (int code = 1; code < 256; ++code) {
    if (code == 3 || code == 4 || (code >= 10 && code <= 15) || code == 20) continue;
    EXPECT_EQ(ClassifyExit(Exited(code)).failure.category, FailureCategory::kWorkerCrash) << code;
  }
}

TEST(ExitClassificationTest, SignalIsNamed) {
  ExitContext context = Exited(0);
  context.exit.signal = SIGSEGV;
  const Outcome outcome = ClassifyExit(context);
  EXPECT_EQ(outcome.failure.reason, "WORKER_SIGNALLED");
  EXPECT_EQ(outcome.failure.signal, SIGSEGV);
  EXPECT_TRUE(outcome.failure.retryable);
}

TEST(ExitClassificationTest, SuccessBeforeTrainingBeganIsNone) {
  const Outcome outcome = ClassifyExit(Exited(0, /*was_ready=*/false));
  EXPECT_EQ(outcome.kind, OutcomeKind::kFailed);
  EXPECT_EQ(outcome.failure.reason, "WORKER_EXITED_EARLY");
}

TEST(ExitClassificationTest, LastWordsCountOnlyWhenTheyFitTheExitCode) {
  ExitContext context = Exited(14);
  context.report.emplace();
  context.report->exit_code = 14;
  context.report->failure.reason = "NONFINITE_LOSS";
  context.report->failure.message = "loss is nan at step 8";
  EXPECT_EQ(ClassifyExit(context).failure.reason, "NONFINITE_LOSS");
  EXPECT_EQ(ClassifyExit(context).failure.message, "loss is nan at step 8");
  context.exit.exit_code = 12;
  EXPECT_EQ(ClassifyExit(context).failure.reason, "DEVICE_FAULT");
}

TEST(ExitClassificationTest, WhatTheServerImposedExplainsTheKill) {
  ExitContext context = Exited(0);
  context.exit.signal = SIGKILL;
  context.imposed.category = FailureCategory::kStalled;
  context.imposed.reason = "NO_PROGRESS";
  EXPECT_EQ(ClassifyExit(context).failure.category, FailureCategory::kStalled);
}

TEST(ExitClassificationTest, InputsAndNumericsAreNeverRetried) {
  for (const int code : {10, 13, 14, 15, 20})
    EXPECT_FALSE(ClassifyExit(Exited(code)).failure.retryable) << code;
  for (const int code : {11, 12, 99})
    EXPECT_TRUE(ClassifyExit(Exited(code)).failure.retryable) << code;
}

// Row 2 of tests/faults.
TEST(ExitClassificationTest, FilesThatCannotBeWrittenMayBeTriedAgainAFullDiskNot) {
  for (const char* reason : {"SAVE_FAILED", "DISK_FULL", "STORAGE"}) {
    ExitContext context = Exited(13);
    context.report.emplace();
    context.report->exit_code = 13;
    context.report->failure.reason = reason;
    context.report->failure.message = "cannot write /outputs/job";
    const Outcome outcome = ClassifyExit(context);
    EXPECT_EQ(outcome.failure.category, FailureCategory::kStorage);
    EXPECT_EQ(outcome.failure.reason, reason);
    EXPECT_EQ(outcome.failure.retryable, std::string(reason) == "SAVE_FAILED");
  }
}

TEST(ExitClassificationTest, WhatTheKernelEndedForWantOfMemoryIsNotTriedAgain) {
  ExitContext context = Exited(0);
  context.exit.signal = SIGKILL;
  context.exit.out_of_memory = "used up to 2.0 GiB, its limit is 2.0 GiB";
  const Outcome outcome = ClassifyExit(context);
  EXPECT_EQ(outcome.failure.category, FailureCategory::kOutOfMemoryHost);
  EXPECT_EQ(outcome.failure.message, context.exit.out_of_memory);
  EXPECT_EQ(outcome.failure.signal, SIGKILL);
  EXPECT_FALSE(outcome.failure.retryable);
}

TEST(ExitClassificationTest, OfAnAdoptedWorkerItsOwnWordsCount) {
  ExitContext context = Exited(0, /*was_ready=*/false);
  context.exit.known = false;
  EXPECT_EQ(ClassifyExit(context).failure.reason, "WORKER_VANISHED");
  EXPECT_TRUE(ClassifyExit(context).failure.retryable);
  context.report.emplace();
  EXPECT_EQ(ClassifyExit(context).kind, OutcomeKind::kSucceeded);
  context.report->exit_code = 4;
  EXPECT_EQ(ClassifyExit(context).kind, OutcomeKind::kSuspended);
  context.report->exit_code = 14;
  context.report->failure.message = "loss is nan at step 8";
  EXPECT_EQ(ClassifyExit(context).failure.category, FailureCategory::kNumerics);
  EXPECT_EQ(ClassifyExit(context).failure.message, "loss is nan at step 8");
}

TEST(ExitClassificationTest, DeadlineCountsHoweverTheWorkerStopped) {
  ExitContext context;
  context.imposed.category = FailureCategory::kTimeout;
  context.imposed.reason = "DEADLINE_EXCEEDED";
  context.was_ready = true;
  for (const int code : {3, 4, 20}) {
    context.exit.exit_code = code;
    const Outcome outcome = ClassifyExit(context);
    EXPECT_EQ(outcome.kind, OutcomeKind::kFailed) << code;
    EXPECT_EQ(outcome.failure.category, FailureCategory::kTimeout) << code;
    EXPECT_FALSE(outcome.failure.retryable) << code;
  }
  // Done just in time.
  context.exit.exit_code = 0;
  EXPECT_EQ(ClassifyExit(context).kind, OutcomeKind::kSucceeded);
}

}  // namespace
}  // namespace blockswap::server
