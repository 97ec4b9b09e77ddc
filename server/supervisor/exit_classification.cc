// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/exit_classification.h"

#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

struct CodeMeaning {
  int code;
  FailureCategory category;
  const char* reason;
  const char* message;
};

constexpr CodeMeaning kMeanings[] = {
    {10, FailureCategory::kInvalidInput, "INVALID_INPUT", "the worker refused its input"},
    {11, FailureCategory::kOutOfMemoryDevice, "DEVICE_OUT_OF_MEMORY",
     "the device ran out of memory"},
    {12, FailureCategory::kDeviceFault, "DEVICE_FAULT", "the device reported a fault"},
    {13, FailureCategory::kStorage, "STORAGE", "the worker could not read or write its files"},
    {14, FailureCategory::kNumerics, "NUMERICS", "training met a number that is not finite"},
    {15, FailureCategory::kOutOfMemoryHost, "HOST_OUT_OF_MEMORY", "the host ran out of memory"},
    {20, FailureCategory::kServerInternal, "WORKER_INTERNAL", "the worker met an internal error"},
};

Outcome Failed(Failure failure) {
  // Files that cannot be written, unlike a disk that is full or files that cannot be read: a mount
  // or a right may come back.
  const bool may_pass =
      failure.category == FailureCategory::kStorage && failure.reason == "SAVE_FAILED";
  failure.retryable = IsRetryable(failure.category) || may_pass ||
                      failure.category == FailureCategory::kOutOfMemoryDevice;
  return {OutcomeKind::kFailed, std::move(failure)};
}

Failure Crash(const ExitContext& context, std::string reason, std::string message) {
  Failure failure;
  failure.category = FailureCategory::kWorkerCrash;
  failure.reason = std::move(reason);
  failure.message = std::move(message);
  failure.exit_code = context.exit.exit_code;
  failure.signal = context.exit.signal;
  failure.step = context.last_step;
  return failure;
}

Outcome ClassifyCode(const ExitContext& context) {
  const int code = context.exit.exit_code;
  for (const CodeMeaning& meaning : kMeanings) {
    if (meaning.code != code) continue;
    Failure failure = Crash(context, meaning.reason, meaning.message);
    failure.category = meaning.category;
    if (context.report.has_value() && context.report->exit_code == code &&
        !context.report->failure.message.empty()) {
      const Failure& told = context.report->failure;
      failure.message = told.message;
      if (!told.reason.empty()) failure.reason = told.reason;
      if (told.step != 0) failure.step = told.step;
    }
    return Failed(std::move(failure));
  }
  return Failed(Crash(context, "WORKER_EXITED",
                      absl::StrCat("the worker exited with the unexpected code ", code)));
}

}  // namespace

bool IsRetryable(FailureCategory category) {
  return category == FailureCategory::kWorkerCrash || category == FailureCategory::kDeviceFault ||
         category == FailureCategory::kStalled || category == FailureCategory::kPreempted;
}

Outcome ClassifyExit(const ExitContext& context) {
  if (!context.exit.known && context.report.has_value()) {
    ExitContext told = context;
    told.exit = ProcessExit();
    told.exit.exit_code = context.report->exit_code;
    // A worker that says it finished has trained, whoever heard it begin.
    told.was_ready = true;
    return ClassifyExit(told);
  }
  const bool clean = context.exit.known && context.exit.signal == 0;
  // Stopped for its deadline, however politely it went; one that was done just then has succeeded.
  const bool is_late = context.imposed.category == FailureCategory::kTimeout;
  if (is_late && clean && context.exit.exit_code == 0) return {OutcomeKind::kSucceeded, {}};
  if (is_late) {
    Failure failure = context.imposed;
    failure.exit_code = context.exit.exit_code;
    failure.signal = context.exit.signal;
    failure.step = context.last_step;
    return Failed(std::move(failure));
  }
  // Asked to stop for cancellation or suspension and it did: that holds whatever else the server
  // had on its mind.
  if (clean && context.exit.exit_code == 3) return {OutcomeKind::kCancelled, {}};
  if (clean && context.exit.exit_code == 4) return {OutcomeKind::kSuspended, {}};
  if (context.imposed.category != FailureCategory::kNone) {
    Failure failure = context.imposed;
    failure.exit_code = context.exit.exit_code;
    failure.signal = context.exit.signal;
    failure.step = context.last_step;
    return Failed(std::move(failure));
  }
  if (!context.exit.out_of_memory.empty()) {
    Failure failure = Crash(context, "HOST_OUT_OF_MEMORY", context.exit.out_of_memory);
    failure.category = FailureCategory::kOutOfMemoryHost;
    return Failed(std::move(failure));
  }
  if (!context.exit.known) {
    return Failed(Crash(
        context, "WORKER_VANISHED",
        absl::StrCat("the worker ended without a word, last reported step ", context.last_step)));
  }
  if (!clean) {
    return Failed(Crash(
        context, "WORKER_SIGNALLED",
        absl::StrCat("the worker was killed by signal ", context.exit.signal, " (",
                     strsignal(context.exit.signal), "), last reported step ", context.last_step)));
  }
  if (context.exit.exit_code == 0) {
    if (context.was_ready) return {OutcomeKind::kSucceeded, {}};
    return Failed(Crash(context, "WORKER_EXITED_EARLY",
                        "the worker exited without an error before training began"));
  }
  return ClassifyCode(context);
}

}  // namespace blockswap::server
