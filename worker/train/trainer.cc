// SPDX-License-Identifier: Apache-2.0
#include "worker/train/trainer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/byte_size.h"
#include "offload/base/proc_file.h"
#include "offload/base/status_macros.h"
#include "offload/plan/planner.h"
#include "worker/io/atomic_file.h"
#include "worker/io/checkpoint_directory.h"
#include "worker/train/compute_threads.h"
#include "worker/train/failure.h"

namespace blockswap::worker {
namespace {

bool IsOfHostMemory(absl::string_view message) {
  return absl::StrContains(message, "host memory") || absl::StrContains(message, "bad_alloc");
}

}  // namespace

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
  identity_ = IdentityOf(job_);
  BLOCKSWAP_ASSIGN_OR_RETURN(
      output_, OutputDirectory::Claim(options_.output_directory, config.output.name, identity_));
  BLOCKSWAP_ASSIGN_OR_RETURN(log_, TrainLog::Open(output_->log_file(), options_.log_to_stderr));
  for (const std::string& warning : job_.warnings) Warn("JOB", warning);
  BLOCKSWAP_RETURN_IF_ERROR(FindCheckpoint());
  threads_ = resumed_.has_value() && config.training.threads == 0
                 ? resumed_->threads
                 : ChooseThreads(config.training.threads);
  UseThreads(threads_);

  BLOCKSWAP_ASSIGN_OR_RETURN(
      session_,
      DeviceSession::Open({config.device, config.memory.vram_budget_bytes, options_.host}));
  offload::SwapPlan plan;
  BLOCKSWAP_RETURN_IF_ERROR(MakePlan(&plan));
  BLOCKSWAP_ASSIGN_OR_RETURN(loaded_, LoadedJob::Load(&job_, std::move(plan), session_.get()));
  runner_ = std::make_unique<StepRunner>(&job_, loaded_->walk_context(), &loaded_->optimizer());
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

absl::Status Trainer::MakePlan(offload::SwapPlan* plan) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const Machine machine, session_->Measure());
  absl::StatusOr<offload::SwapPlan> planned = offload::Plan(MakePlanRequest(job_, machine));
  if (!planned.ok()) return WithFailure(planned.status(), ExitCode::kInvalidInput, "WILL_NOT_FIT");
  *plan = *std::move(planned);
  BLOCKSWAP_RETURN_IF_ERROR(
      WriteFileAtomically(output_->plan_file(), offload::PlanToJson(*plan) + "\n"));
  log_->Info(absl::StrCat("device ", session_->description(), ", ", threads_, " threads\n",
                          offload::PlanToText(*plan)));
  return absl::OkStatus();
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
    BLOCKSWAP_RETURN_IF_ERROR(
        ReadTrainingState(resumed_from_, loaded_->adapter(), &loaded_->optimizer()));
    counters_ = resumed_->counters;
    loaded_->optimizer().set_updates(counters_.updates);
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

absl::Status Trainer::ExplainMemory(absl::Status status) const {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  if (IsOfHostMemory(status.message())) {
    return WithFailure(std::move(status), ExitCode::kHostOutOfMemory, "HOST_MEMORY_EXHAUSTED");
  }
  std::string message(status.message());
  if (loaded_ != nullptr) {
    const offload::SwapPlan& plan = loaded_->swapper().plan();
    const offload::MemorySnapshot memory = session_->runtime()->ledger().Snapshot();
    absl::StrAppend(&message, "; in step ", counters_.step + 1, " with ", plan.blocks_to_swap,
                    " blocks swapped, planned ", base::FormatByteSize(plan.prediction.device_bytes),
                    ", peak so far ", base::FormatByteSize(memory.total_peak_bytes),
                    "; raise memory.vram_budget, set memory.blocks_to_swap above ",
                    plan.blocks_to_swap, " or make the dataset's batches smaller");
  }
  absl::Status explained(status.code(), message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    explained.SetPayload(url, payload);
  });
  return WithFailure(std::move(explained), ExitCode::kDeviceOutOfMemory, "DEVICE_MEMORY_EXHAUSTED");
}

void Trainer::ReportMemory() {
  const offload::SwapPlan& plan = loaded_->swapper().plan();
  const offload::Prediction& planned = plan.prediction;
  const offload::SwapStats stats = loaded_->swapper().stats();
  MemoryReport report;
  report.planned_bytes = {
      {"ring", planned.ring_bytes},           {"resident_blocks", planned.resident_bytes},
      {"edge_weights", planned.edge_bytes},   {"adapter", planned.adapter_bytes},
      {"optimizer", planned.optimizer_bytes}, {"activations", planned.activation_bytes}};
  report.measured = session_->runtime()->ledger().Snapshot();
  report.host_rss_bytes = base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
  report.host_pinned_bytes = stats.pinned_bytes;
  report.host_master_bytes = stats.host_master_bytes;
  report.pinning_fell_back =
      plan.pin_policy != offload::PinPolicy::kNever && stats.pinned_bytes < stats.host_master_bytes;
  if (report.pinning_fell_back &&
      counters_.step == (resumed_.has_value() ? resumed_->counters.step : 0)) {
    Warn("PINNING_FELL_BACK",
         absl::StrCat("host masters are page-locked for ", base::FormatByteSize(stats.pinned_bytes),
                      " of ", base::FormatByteSize(stats.host_master_bytes),
                      "; raise the lock limit (ulimit -l) for faster copies"));
  }
  reporter_->Memory(report);
}

void Trainer::Warn(absl::string_view reason, const std::string& message) {
  if (log_ != nullptr) log_->Warn(absl::StrCat(reason, ": ", message));
  reporter_->Warning(reason, message);
}

CheckpointProperties Trainer::Properties() const {
  return {counters_, job_.total_steps, threads_, session_->description(), identity_};
}

}  // namespace blockswap::worker
