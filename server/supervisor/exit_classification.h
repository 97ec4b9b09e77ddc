// SPDX-License-Identifier: Apache-2.0
// What the end of a worker process means for its job.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_EXIT_CLASSIFICATION_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_EXIT_CLASSIFICATION_H_

#include <optional>

#include "server/jobs/job.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

enum class OutcomeKind { kSucceeded, kCancelled, kSuspended, kFailed };

struct Outcome {
  OutcomeKind kind = OutcomeKind::kFailed;
  Failure failure;  // of kFailed
};

struct ExitContext {
  ProcessExit exit;
  std::optional<ExitingUpdate> report;  // the worker's last words
  Failure imposed;         // why the server itself killed the worker; category kNone: it did not
  bool was_ready = false;  // training had begun
  int64_t last_step = 0;
};

// What an adopted worker reported stands for the exit code nobody could collect. Exit codes are
// those of facts/service.md 2.7. A report that contradicts the exit code loses.
Outcome ClassifyExit(const ExitContext& context);

// WORKER_CRASH, DEVICE_FAULT, STALLED and PREEMPTED may be tried again; OUT_OF_MEMORY_DEVICE once,
// with more blocks away.
bool IsRetryable(FailureCategory category);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_EXIT_CLASSIFICATION_H_
