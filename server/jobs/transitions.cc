// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/transitions.h"

#include <array>

#include "absl/strings/match.h"

namespace blockswap::server {
namespace {

using enum JobState;

struct Edge {
  JobState from, to;
};

// Terminal states have no edge: they are final.
constexpr Edge kEdges[] = {
    {kQueued, kStarting},
    {kQueued, kCancelled},
    {kQueued, kSuspended},
    {kQueued, kFailed},
    {kStarting, kRunning},
    {kStarting, kRecovering},
    {kStarting, kCancelling},
    {kStarting, kSuspending},
    {kStarting, kFailed},
    {kRunning, kSucceeded},
    {kRunning, kFailed},
    {kRunning, kCancelling},
    {kRunning, kSuspending},
    {kRunning, kRecovering},
    // A worker that was asked to stop may have finished, or failed, on its own.
    {kSuspending, kSuspended},
    {kSuspending, kCancelling},
    {kSuspending, kSucceeded},
    {kSuspending, kFailed},
    {kSuspending, kRecovering},
    {kSuspended, kQueued},
    {kSuspended, kCancelled},
    // Its deadline passes while it is away.
    {kSuspended, kFailed},
    {kRecovering, kStarting},
    {kRecovering, kCancelled},
    {kRecovering, kFailed},
    {kRecovering, kSuspended},
    {kCancelling, kCancelled},
    {kCancelling, kSucceeded},
    {kCancelling, kFailed},
};

struct NamedState {
  JobState state;
  absl::string_view name;
};
constexpr NamedState kStateNames[] = {
    {kQueued, "QUEUED"},         {kStarting, "STARTING"},   {kRunning, "RUNNING"},
    {kSuspending, "SUSPENDING"}, {kSuspended, "SUSPENDED"}, {kRecovering, "RECOVERING"},
    {kCancelling, "CANCELLING"}, {kSucceeded, "SUCCEEDED"}, {kFailed, "FAILED"},
    {kCancelled, "CANCELLED"},
};

constexpr std::array<absl::string_view, kNumFailureCategories> kCategoryNames = {
    "NONE",
    "INVALID_INPUT",
    "OUT_OF_MEMORY_DEVICE",
    "OUT_OF_MEMORY_HOST",
    "DEVICE_FAULT",
    "STORAGE",
    "NUMERICS",
    "TIMEOUT",
    "STALLED",
    "PREEMPTED",
    "WORKER_CRASH",
    "SERVER_INTERNAL"};

}  // namespace

bool CanTransition(JobState from, JobState to) {
  for (const Edge& edge : kEdges) {
    if (edge.from == from && edge.to == to) return true;
  }
  return false;
}

bool IsTerminal(JobState state) {
  return state == kSucceeded || state == kFailed || state == kCancelled;
}

bool HasWorker(JobState state) {
  return state == kStarting || state == kRunning || state == kSuspending || state == kCancelling;
}

bool IsWaiting(JobState state) { return state == kQueued || state == kRecovering; }

absl::string_view AllowedVerbs(JobState state) {
  switch (state) {
    case kQueued:
    case kRecovering:
    case kStarting:
      return "cancel, suspend, update";
    case kRunning:
      return "cancel, suspend, update, checkpoint, sample";
    case kSuspending:
      return "cancel, update";
    case kSuspended:
      return "cancel, resume, update";
    case kCancelling:
      return "cancel";
    case kSucceeded:
    case kFailed:
    case kCancelled:
      return "retry, delete, update (labels)";
  }
  return "";
}

absl::string_view StateName(JobState state) {
  for (const NamedState& named : kStateNames) {
    if (named.state == state) return named.name;
  }
  return "UNSPECIFIED";
}

std::optional<JobState> ParseState(absl::string_view name) {
  for (const NamedState& named : kStateNames) {
    if (absl::EqualsIgnoreCase(named.name, name)) return named.state;
  }
  return std::nullopt;
}

absl::string_view CategoryName(FailureCategory category) {
  return kCategoryNames[static_cast<size_t>(category)];
}

FailureCategory ParseCategory(absl::string_view name) {
  for (size_t i = 0; i < kCategoryNames.size(); ++i) {
    if (kCategoryNames[i] == name) return static_cast<FailureCategory>(i);
  }
  return FailureCategory::kNone;
}

}  // namespace blockswap::server
