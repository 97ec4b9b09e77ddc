// SPDX-License-Identifier: Apache-2.0
#include "worker/train/trainer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "offload/plan/planner.h"
#include "worker/io/checkpoint_directory.h"
#include "worker/train/compute_threads.h"
#include "worker/train/failure.h"
#include "worker/train/host_modulation_choice.h"

namespace blockswap::worker {

Trainer::Trainer(JobInspection job, TrainerOptions options, Reporter* reporter)
    : job_(std::move(job)), options_(std::move(options)), reporter_(reporter) {}

Trainer::~Trainer() = default;

ExitReport Trainer::Run() {
  started_ = absl::Now();
  absl::Status status = RunToEnd();
  if (!status.ok()) status = EndEarly(std::move(status));
  ExitReport report = ToExitReport(status);
  report.step = counters_.step;
  if (status.ok()) {
    report.adapter_file = output_->adapter_file();
    report.message = absl::StrCat("trained ", counters_.step, " of ", job_.total_steps, " steps");
  }
  if (log_ != nullptr)
    log_->Info(absl::StrCat("exit ", static_cast<int>(report.code), ": ", report.message));
  reporter_->Exiting(report);
  return report;
}

absl::Status Trainer::RunToEnd() {
  reporter_->Phase("loading");
  BLOCKSWAP_RETURN_IF_ERROR(ExplainMemory(Load()));
  BLOCKSWAP_RETURN_IF_ERROR(RestoreCheckpoint());
  BLOCKSWAP_RETURN_IF_ERROR(ExplainMemory(TrainSteps()));
  return ExplainMemory(Finish());
}

absl::Status Trainer::Load() {
  const TrainConfig& config = job_.config;
  const auto open_session = [&]() -> absl::StatusOr<DeviceSession*> {
    BLOCKSWAP_ASSIGN_OR_RETURN(
        session_,
        DeviceSession::Open({config.device, config.memory.vram_budget_bytes, options_.host}));
    return session_.get();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string modulation,
                             SettleHostModulation(options_.output_directory, open_session, &job_));
  identity_ = IdentityOf(job_);
  BLOCKSWAP_ASSIGN_OR_RETURN(
      output_, OutputDirectory::Claim(options_.output_directory, config.output.name, identity_));
  BLOCKSWAP_ASSIGN_OR_RETURN(log_, TrainLog::Open(output_->log_file(), options_.log_to_stderr));
  for (const std::string& warning : job_.warnings) Warn("JOB", warning);
  const std::string quantization = QuantizationText(job_.model);
  if (!quantization.empty()) log_->Info(quantization);
  BLOCKSWAP_RETURN_IF_ERROR(FindCheckpoint());
  threads_ = resumed_.has_value() && config.training.threads == 0
                 ? resumed_->threads
                 : ChooseThreads(config.training.threads);
  UseThreads(threads_);

  if (session_ == nullptr) BLOCKSWAP_RETURN_IF_ERROR(open_session().status());
  if (!modulation.empty()) log_->Info(modulation);
  offload::SwapPlan plan;
  BLOCKSWAP_RETURN_IF_ERROR(MakePlan(&plan));
  LoadOptions load{options_.masters_fds,
                   [this](int64_t done, int64_t total) { reporter_->LoadProgress(done, total); }};
  BLOCKSWAP_ASSIGN_OR_RETURN(
      loaded_, LoadedJob::Load(&job_, std::move(plan), session_.get(), std::move(load)));
  for (const std::string& note : loaded_->TakeNotes()) log_->Info(note);
  const bool lock = session_->runtime()->copies_need_pinned_memory() &&
                    config.memory.pinned_memory != offload::PinPolicy::kNever;
  boundaries_ = std::make_unique<BoundaryStore>(session_->runtime(), lock);
  BLOCKSWAP_RETURN_IF_ERROR(ReserveBoundaries(loaded_->swapper().plan()));
  runner_ =
      std::make_unique<StepRunner>(&job_, Context(/*with_adapter=*/true), &loaded_->trained());
  gallery_ = std::make_unique<SampleGallery>(output_->samples(), &job_.model);
  if (!config.sampling.prompts_path.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const Family* family, FindFamily(job_.model.family));
    BLOCKSWAP_ASSIGN_OR_RETURN(
        prompts_, ReadSamplePrompts(config.sampling.prompts_path, *family, job_.model));
    for (SamplePrompt& prompt : prompts_)
      prompt.steps = config.sampling.steps.value_or(static_cast<int>(prompt.steps));
  }
  return absl::OkStatus();
}

WalkContext Trainer::Context(bool with_adapter) const {
  WalkContext context = with_adapter ? loaded_->walk_context() : loaded_->base_walk_context();
  context.boundaries = boundaries_.get();
  return context;
}

absl::Status Trainer::FindCheckpoint() {
  const absl::StatusOr<CommittedCheckpoint> newest =
      FindNewestCheckpoint(output_->checkpoints(), &skipped_checkpoints_);
  for (const std::string& skipped : skipped_checkpoints_) Warn("CHECKPOINT_SKIPPED", skipped);
  if (absl::IsNotFound(newest.status())) return absl::OkStatus();
  BLOCKSWAP_RETURN_IF_ERROR(newest.status());
  BLOCKSWAP_ASSIGN_OR_RETURN(resumed_, FromProperties(newest->properties));
  const std::string difference = DescribeDifference(resumed_->identity, identity_);
  if (!difference.empty()) {
    return WithFailure(
        absl::FailedPreconditionError(absl::StrCat(
            "checkpoint ", newest->directory, " is of a job with another result: ", difference)),
        ExitCode::kInvalidInput, "CHECKPOINT_OF_ANOTHER_JOB");
  }
  if (resumed_->counters.step > job_.total_steps) {
    return WithFailure(
        absl::FailedPreconditionError(
            absl::StrCat("checkpoint ", newest->directory, " is of step ", resumed_->counters.step,
                         ", the job has ", job_.total_steps, " steps; raise training.max_steps")),
        ExitCode::kInvalidInput, "CHECKPOINT_BEYOND_END");
  }
  resumed_from_ = newest->directory;
  return absl::OkStatus();
}

absl::Status Trainer::RestoreCheckpoint() {
  if (resumed_.has_value()) {
    counters_ = resumed_->counters;
    first_step_ = counters_.step;
    BLOCKSWAP_RETURN_IF_ERROR(loaded_->trained().ReadState(resumed_from_, counters_.updates));
    log_->Info(absl::StrCat("continuing ", resumed_from_, " after step ", counters_.step, " of ",
                            job_.total_steps));
    if (resumed_->threads != threads_ || resumed_->device != session_->description()) {
      Warn(
          "OTHER_MACHINE",
          absl::StrCat("the checkpoint was made on ", resumed_->device, " with ", resumed_->threads,
                       " threads; the last bits may differ from an unbroken run's"));
    }
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(metrics_, MetricsLog::Open(output_->metrics_file(), counters_.step));
  saver_ = std::make_unique<Saver>(&job_, loaded_.get(), output_.get(), metrics_.get(), reporter_);
  saver_->set_last_checkpoint_step(counters_.step);

  ReadyReport ready;
  ready.plan_json = offload::PlanToJson(loaded_->swapper().plan());
  ready.plan_text = offload::PlanToText(loaded_->swapper().plan());
  ready.device = session_->description();
  ready.resumed_from = resumed_from_;
  ready.start_step = counters_.step;
  ready.total_steps = job_.total_steps;
  ready.skipped_checkpoints = skipped_checkpoints_;
  reporter_->Ready(ready);
  ReportMemory();
  return absl::OkStatus();
}

absl::Status Trainer::EndEarly(absl::Status status) {
  const ExitReport report = ToExitReport(status);
  const bool state_is_good =
      report.code != ExitCode::kDeviceFault && report.code != ExitCode::kStorage &&
      report.code != ExitCode::kInternal && state_is_whole_ && report.reason != "STOPPED_NOW";
  if (saver_ == nullptr || !state_is_good || counters_.step == saver_->last_checkpoint_step())
    return status;
  // A suspended job counts on its checkpoint; after anything else a failed save must not hide why
  // the job ends.
  const bool required = report.code == ExitCode::kSuspended;
  const absl::Status saved = saver_->SaveCheckpoint(Properties(), required);
  if (saved.ok()) return status;
  if (required) return saved;
  Warn("SAVE_FAILED", std::string(saved.message()));
  return status;
}

void Trainer::Warn(absl::string_view reason, const std::string& message) {
  if (log_ != nullptr) log_->Warn(absl::StrCat(reason, ": ", message));
  reporter_->Warning(reason, message);
}

CheckpointProperties Trainer::Properties() const {
  return {counters_, job_.total_steps, threads_, session_->description(), identity_};
}

}  // namespace blockswap::worker
