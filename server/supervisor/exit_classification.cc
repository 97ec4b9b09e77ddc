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
  failure.retryable =
      IsRetryable(failure.category) || failure.category == FailureCategory::kOutOfMemoryDevice;
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
  const bool clean = context.exit.signal == 0;
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
