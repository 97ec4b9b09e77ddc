// SPDX-License-Identifier: Apache-2.0
// Statuses that know how the process has to end: exit code, category and reason travel with the
// message.
#ifndef BLOCKSWAP_WORKER_TRAIN_FAILURE_H_
#define BLOCKSWAP_WORKER_TRAIN_FAILURE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {

// `status` with the way out attached; what was attached before is kept, because the first to know
// is the one nearest the fault. `reason` is UPPER_SNAKE ("DISK_FULL").
absl::Status WithFailure(absl::Status status, ExitCode code, absl::string_view reason);

// How the process ends for `status`. Without an attached failure the status code decides; the
// mapping is total.
ExitReport ToExitReport(const absl::Status& status);

// "NUMERICS" for kNumerics: the FailureCategory of the API without its prefix; empty for the codes
// that are no failure.
absl::string_view FailureCategoryName(ExitCode code);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_FAILURE_H_
