// SPDX-License-Identifier: Apache-2.0
// Trains one job from inspection to adapter file: load, plan, resume, step, sample, save, stop.
#ifndef BLOCKSWAP_WORKER_TRAIN_TRAINER_H_
#define BLOCKSWAP_WORKER_TRAIN_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/channel/reporter.h"
#include "worker/config/job_inspection.h"
#include "worker/data/dataset.h"
#include "worker/sampler/sample_gallery.h"
#include "worker/train/device_session.h"
#include "worker/train/loaded_job.h"
#include "worker/train/metrics_log.h"
#include "worker/train/output_directory.h"
#include "worker/train/saver.h"
#include "worker/train/step_runner.h"
#include "worker/train/train_log.h"
#include "worker/train/training_state.h"

namespace blockswap::worker {

struct TrainerOptions {
  std::string output_directory;
  offload::HostDeviceOptions host;  // link speeds of the host device
  bool log_to_stderr = false;  // every line of log.txt, for who reads our standard error
  // Stop requests besides the reporter's (signals); may be empty.
  std::function<StopRequest()> stop_requested;
};

// One use. Thread safety: one thread, which becomes the trainer's.
class Trainer {
 public:
  // `reporter` outlives the trainer.
  Trainer(JobInspection job, TrainerOptions options, Reporter* reporter);
  ~Trainer();

  // Everything, to the end. Continues the newest good checkpoint of the output directory; the
  // result is the same as of an unbroken run, whatever the memory settings of each attempt. Sends
  // the report through the reporter, too.
  ExitReport Run();

 private:
  absl::Status RunToEnd();
  absl::Status Load();
  absl::Status MakePlan(offload::SwapPlan* plan);
  absl::Status FindCheckpoint();
  absl::Status RestoreCheckpoint();
  absl::Status TrainSteps();
  absl::Status RunStep(int64_t step);
  absl::Status JudgeStep(int64_t step, const StepOutcome& outcome);
  absl::Status LeaveStepOut(int64_t step, const StepOutcome& outcome);
  void ReportStep(int64_t step, const StepOutcome& outcome, const offload::SwapStats& before,
                  absl::Duration elapsed);
  absl::Status AfterStep(int64_t step);
  absl::Status Finish();
  // Samples all prompts into the gallery, with the adapter or (round 0) without. Failures of the
  // disk are warnings.
  absl::Status Sample(int64_t round);
  absl::Status StopStatus();
  absl::Status EndEarly(absl::Status status);
  absl::Status ExplainMemory(absl::Status status) const;
  void ReportMemory();
  void Warn(absl::string_view reason, const std::string& message);
  CheckpointProperties Properties() const;

  JobInspection job_;
  const TrainerOptions options_;
  Reporter* const reporter_;
  std::unique_ptr<TrainLog> log_;
  JobIdentity identity_;
  std::unique_ptr<OutputDirectory> output_;
  std::unique_ptr<DeviceSession> session_;
  std::unique_ptr<LoadedJob> loaded_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<SampleGallery> gallery_;
  std::vector<SamplePrompt> prompts_;
  TrainingCounters counters_;
  std::string resumed_from_;  // directory, or empty
  std::optional<CheckpointProperties> resumed_;
  std::vector<std::string> skipped_checkpoints_;
  bool state_is_whole_ = true;  // false while an update is under way
  int threads_ = 1;
  int metrics_failures_ = 0;
  absl::Time started_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_TRAINER_H_
