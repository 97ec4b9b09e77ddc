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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/channel/reporter.h"
#include "worker/config/job_inspection.h"
#include "worker/data/dataset.h"
#include "worker/sampler/sample_gallery.h"
#include "worker/train/boundary_store.h"
#include "worker/train/device_session.h"
#include "worker/train/elastic_planner.h"
#include "worker/train/loaded_job.h"
#include "worker/train/metrics_log.h"
#include "worker/train/output_directory.h"
#include "worker/train/plan_history.h"
#include "worker/train/saver.h"
#include "worker/train/step_runner.h"
#include "worker/train/train_log.h"
#include "worker/train/training_state.h"

namespace blockswap::worker {

struct TrainerOptions {
  std::string output_directory;
  offload::HostDeviceOptions host;  // link speeds of the host device
  std::vector<int> masters_fds;     // of the server, to share base weights in, see LoadOptions
  bool log_to_stderr = false;       // every line of log.txt, for who reads our standard error
  // Stop requests besides the reporter's (signals); may be empty.
  std::function<StopRequest()> stop_requested;
  // Changes every plan before it is carried out, for tests of what the planner would not choose.
  std::function<void(offload::SwapPlan*)> edit_plan = nullptr;
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
  absl::Status FindCheckpoint();
  absl::Status RestoreCheckpoint();
  // Streamed blocks against copies of their own, on the first batch; a difference ends the job.
  absl::Status SelfTest();
  absl::Status TrainSteps();
  absl::Status RunStep(int64_t step);
  // Gradients and update of a step; one that fails has changed nothing unless state_is_whole_ says
  // so.
  absl::Status TryStep(int64_t step, StepOutcome* outcome);
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
  WalkContext Context(bool with_adapter) const;

  // trainer_memory.cc
  absl::Status MakePlan(offload::SwapPlan* plan);
  absl::Status RecordPlan(const offload::SwapPlan& plan, const std::string& reason);
  // Host buffers of the plan's activation offload, taken before the first step needs them.
  absl::Status ReserveBoundaries(const offload::SwapPlan& plan);
  // Goes on under `plan` where it differs from the present one; a failure keeps the present one.
  absl::Status Adopt(offload::SwapPlan plan, const std::string& reason);
  // The same with another hard limit from then on.
  absl::Status AdoptUnder(std::optional<int64_t> budget_bytes, offload::SwapPlan plan,
                          const std::string& reason);
  // A plan for the machine as it is now and for what was learned; a refusal is a warning.
  void Replan(const std::string& reason);
  // After a step: new settings, a peak or a speed that was not as planned, less free memory.
  void AdjustPlan();
  void NoteStepTime(const StepOutcome& outcome, absl::Duration stall);
  void LearnSpeed();
  void ApplyMemoryUpdate(const MemoryConfig& update);
  // Runs `body`, again under a smaller plan while device memory runs out in it. REQUIRES: a `body`
  // that fails leaves nothing half done.
  absl::Status WithRoom(absl::FunctionRef<absl::Status()> body);
  absl::Status MakeRoom(const absl::Status& exhausted, int tries);
  // Runs `body` under the plan for sampling.vram_budget, then returns to the training plan.
  absl::Status WithSamplingPlan(absl::FunctionRef<absl::Status()> body);
  // What the machine offers, for a plan under another budget than the present one.
  void RefreshBeyondBudget();
  void StartPeaks();
  // Weights and saved activations together.
  offload::SwapStats TransferStats() const;
  absl::Status ExplainMemory(absl::Status status);
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
  std::unique_ptr<ElasticPlanner> planner_;
  std::vector<PlanChange> plan_changes_;
  std::unique_ptr<BoundaryStore> boundaries_;
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
  offload::SwapStats stats_before_;       // what the self-test moved is no step's
  int64_t first_step_ = 0;                // the attempt began after it
  int64_t peak_before_ = 0;               // device bytes, of earlier plans
  offload::MemorySnapshot peaks_before_;  // the same by purpose, as far as the ledger knows
  int64_t learned_bytes_ = 0;             // by which the present plan's prediction was too low
  int64_t refused_available_ = -1;        // device bytes for which there was no plan
  bool speed_learned_ = false;
  struct {
    absl::Duration compute, step;
    int64_t steps = 0;
  } timing_;  // of steps under the present plan
  absl::Time started_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_TRAINER_H_
