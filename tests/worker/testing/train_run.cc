// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/testing/train_run.h"

#include <utility>

#include "worker/train/failure.h"
#include "worker/train/trainer.h"

namespace blockswap::worker::testing {

ExitReport TrainTiny(const TinyJob& job, const std::string& name, const RunOptions& options,
                     blockswap::testing::NullReporter* reporter) {
  absl::StatusOr<JobInspection> opened = job.Open(options.overrides);
  if (!opened.ok()) return ToExitReport(opened.status());
  if (options.edit) options.edit(&*opened);
  TrainerOptions trainer_options;
  trainer_options.output_directory = job.output(name);
  trainer_options.host = options.host;
  trainer_options.stop_requested = options.stop_requested;
  trainer_options.edit_plan = options.edit_plan;
  trainer_options.masters_fds = options.masters_fds;
  blockswap::testing::NullReporter silent;
  return Trainer(*std::move(opened), std::move(trainer_options),
                 reporter == nullptr ? &silent : reporter)
      .Run();
}

}  // namespace blockswap::worker::testing
