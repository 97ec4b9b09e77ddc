// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints and adapter files, and decides when a disk that refuses them ends the job.
#ifndef BLOCKSWAP_WORKER_TRAIN_SAVER_H_
#define BLOCKSWAP_WORKER_TRAIN_SAVER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/channel/reporter.h"
#include "worker/config/job_inspection.h"
#include "worker/train/loaded_job.h"
#include "worker/train/metrics_log.h"
#include "worker/train/output_directory.h"
#include "worker/train/training_state.h"

namespace blockswap::worker {

// Thread safety: the trainer's thread.
class Saver {
 public:
  // All outlive the saver.
  Saver(const JobInspection* job, LoadedJob* loaded, const OutputDirectory* output,
        MetricsLog* metrics, Reporter* reporter);

  // Commits a checkpoint of the state as it is, then prunes old ones. Older checkpoints are
  // untouched by a failure. A failed save is a warning; the third in a row is the job's failure
  // (STORAGE), as is a failed one that is `required`.
  absl::Status SaveCheckpoint(const CheckpointProperties& properties, bool required);
  // "<name>-stepNNNNNNNN.safetensors" under the same rule.
  absl::Status SaveAdapterOfStep(const TrainingCounters& counters, absl::Time started);
  // "<name>.safetensors"; always required.
  absl::Status SaveFinalAdapter(const TrainingCounters& counters, absl::Time started);

  int64_t last_checkpoint_step() const { return last_checkpoint_step_; }
  void set_last_checkpoint_step(int64_t step) { last_checkpoint_step_ = step; }

 private:
  absl::Status CommitState(const CheckpointProperties& properties);
  absl::Status SaveAdapterFile(const TrainingCounters& counters, absl::Time started,
                               const std::string& path) const;
  absl::Status Judge(absl::Status saved, bool required);

  const JobInspection* job_;
  LoadedJob* loaded_;
  const OutputDirectory* output_;
  MetricsLog* metrics_;
  Reporter* reporter_;
  int failures_in_a_row_ = 0;
  int64_t last_checkpoint_step_ = 0;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_SAVER_H_
