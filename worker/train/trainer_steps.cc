// SPDX-License-Identifier: Apache-2.0
// The trainer's loop: what happens in a step, after it, and at the end.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "worker/sampler/flow_sampler.h"
#include "worker/train/failure.h"
#include "worker/train/self_test.h"
#include "worker/train/trainer.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kStepsBetweenMemoryReports = 50;
constexpr int64_t kLeftOutThatEnd = 3;
constexpr int64_t kZeroGradientsThatEnd = 2;
constexpr size_t kMaxItemsNamed = 5;

std::string NameItems(const std::vector<std::string>& items) {
  std::string names = absl::StrJoin(
      items.begin(),
      items.begin() + static_cast<std::ptrdiff_t>(std::min(items.size(), kMaxItemsNamed)), ", ");
  if (items.size() > kMaxItemsNamed)
    absl::StrAppend(&names, " and ", items.size() - kMaxItemsNamed, " more");
  return names;
}

// The adapter's own file of a step is due where the job asks for it.
bool IsDue(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

absl::Status Trainer::SelfTest() {
  const std::vector<int> blocks = BlocksToTest(loaded_->swapper().plan(), job_.profile.lists);
  // A resumed base is not what its checkpoint file holds any more.
  if (blocks.empty() || job_.config.network.trains_base) {
    log_->Info("self-test: no frozen block is streamed");
    return absl::OkStatus();
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const MicroBatch micro, runner_->FirstMicroBatch(counters_.step + 1));
  const SelfTestSubject subject{
      session_->runtime(), &job_.profile.blocks,
      [this](int block, absl::Span<std::byte> bytes) { return loaded_->ReadBlock(block, bytes); }};
  const absl::StatusOr<SelfTestResult> result =
      RunSelfTest(Context(/*with_adapter=*/true), subject, blocks, micro.inputs);
  if (absl::IsDataLoss(result.status())) {
    return WithFailure(result.status(), ExitCode::kDeviceFault, "SELF_TEST_FAILED");
  }
  if (absl::IsResourceExhausted(result.status())) {
    log_->Info(absl::StrCat("self-test left out: ", result.status().message()));
  } else {
    BLOCKSWAP_RETURN_IF_ERROR(result.status());
    log_->Info(absl::StrCat("self-test: blocks ", absl::StrJoin(result->compared, ", "),
                            " have the same bits streamed and resident, ", result->left_out.size(),
                            " left out for want of memory, took ",
                            absl::FormatDuration(result->took)));
  }
  BLOCKSWAP_RETURN_IF_ERROR(loaded_->swapper().BeginPass(offload::PassKind::kTraining));
  stats_before_ = TransferStats();
  session_->ReleaseCached();
  session_->ResetPeaks();
  return absl::OkStatus();
}

absl::Status Trainer::TrainSteps() {
  BLOCKSWAP_RETURN_IF_ERROR(SelfTest());
  if (!prompts_.empty() && !gallery_->HasRound(0)) BLOCKSWAP_RETURN_IF_ERROR(Sample(0));
  reporter_->Phase("training");
  for (int64_t step = counters_.step + 1; step <= job_.total_steps; ++step) {
    BLOCKSWAP_RETURN_IF_ERROR(StopStatus());
    BLOCKSWAP_RETURN_IF_ERROR(RunStep(step));
    BLOCKSWAP_RETURN_IF_ERROR(AfterStep(step));
  }
  return absl::OkStatus();
}

absl::Status Trainer::RunStep(int64_t step) {
  const absl::Time begin = absl::Now();
  const offload::SwapStats before = TransferStats();
  StepOutcome outcome;
  BLOCKSWAP_RETURN_IF_ERROR(WithRoom([&] { return TryStep(step, &outcome); }));
  TrainingCounters next = counters_;
  next.step = step;
  next.epoch = outcome.position.epoch;
  if (outcome.fault == NumericFault::kNone) {
    next.updates = loaded_->trained().updates();
    next.left_out_in_a_row = 0;
    next.zero_gradients_in_a_row =
        outcome.gradient_norm == 0 ? next.zero_gradients_in_a_row + 1 : 0;
  } else {
    ++next.steps_left_out;
    ++next.left_out_in_a_row;
  }
  counters_ = next;
  ReportStep(step, outcome, before, absl::Now() - begin);
  return absl::OkStatus();
}

absl::Status Trainer::TryStep(int64_t step, StepOutcome* outcome) {
  BLOCKSWAP_ASSIGN_OR_RETURN(*outcome,
                             runner_->ComputeGradients(step, [this] { return StopStatus(); }));
  BLOCKSWAP_RETURN_IF_ERROR(JudgeStep(step, *outcome));
  if (outcome->fault != NumericFault::kNone) return absl::OkStatus();
  state_is_whole_ = false;
  const absl::Status updated = runner_->Update(outcome);
  // An update that failed before it counted has changed nothing.
  state_is_whole_ = updated.ok() || loaded_->trained().updates() == counters_.updates;
  return updated;
}

absl::Status Trainer::JudgeStep(int64_t step, const StepOutcome& outcome) {
  if (outcome.fault != NumericFault::kNone) return LeaveStepOut(step, outcome);
  if (outcome.gradient_norm == 0 &&
      counters_.zero_gradients_in_a_row + 1 >= kZeroGradientsThatEnd) {
    return WithFailure(absl::InternalError(absl::StrCat(
                           "gradient norm is exactly 0 for ", kZeroGradientsThatEnd,
                           " steps, the last is step ", step, ": the adapter does not learn")),
                       ExitCode::kNumerics, "GRADIENT_IS_ZERO");
  }
  return absl::OkStatus();
}

absl::Status Trainer::LeaveStepOut(int64_t step, const StepOutcome& outcome) {
  const bool of_loss = outcome.fault == NumericFault::kLoss;
  const std::string message =
      absl::StrCat(of_loss ? "loss" : "gradient", " of step ", step,
                   " is not finite, items: ", NameItems(outcome.faulty_items));
  const char* reason = of_loss ? "NONFINITE_LOSS" : "NONFINITE_GRADIENT";
  const bool too_many = counters_.left_out_in_a_row + 1 >= kLeftOutThatEnd;
  if (job_.config.training.on_nonfinite == NonfinitePolicy::kStop || too_many) {
    return WithFailure(
        absl::InternalError(absl::StrCat(message, too_many ? " (third step in a row)" : "",
                                         "; check these items and lower training.learning_rate")),
        ExitCode::kNumerics, reason);
  }
  Warn(reason, absl::StrCat(message, "; the step is left out"));
  return absl::OkStatus();
}

void Trainer::ReportStep(int64_t step, const StepOutcome& outcome, const offload::SwapStats& before,
                         absl::Duration elapsed) {
  StepMetrics metrics;
  StepReport& report = metrics.report;
  report.step = step;
  report.epoch = outcome.position.epoch;
  report.loss = outcome.loss;
  report.learning_rate = outcome.learning_rate;
  report.grad_norm = outcome.gradient_norm;
  report.seconds = absl::ToDoubleSeconds(elapsed);
  report.samples = outcome.samples;
  report.tokens = outcome.tokens;
  report.phase_seconds = outcome.phase_seconds;
  double other = report.seconds;
  for (const auto& [phase, seconds] : outcome.phase_seconds) other -= seconds;
  report.phase_seconds["other"] = std::max(0.0, other);
  report.swap = TransferStats();
  report.device_bytes_peak = std::max(peak_before_, session_->peak_bytes());
  NoteStepTime(outcome, (report.swap.forward_stall - before.forward_stall) +
                            (report.swap.backward_stall - before.backward_stall));
  metrics.before = before;
  metrics.skipped = outcome.fault != NumericFault::kNone;
  const absl::Status written = metrics_->Append(MetricsLine(metrics));
  // Once per outage: the lines wait in memory and the next save reports the disk anyway.
  if (!written.ok() && ++metrics_failures_ == 1) Warn("DISK_FULL", std::string(written.message()));
  if (written.ok()) metrics_failures_ = 0;
  log_->Info(absl::StrFormat(
      "step %d of %d, epoch %d, loss %.6f, learning rate %.3e, gradient norm %.4f, %.3f s", step,
      job_.total_steps, report.epoch, report.loss, report.learning_rate, report.grad_norm,
      report.seconds));
  reporter_->Step(report);
}

absl::Status Trainer::AfterStep(int64_t step) {
  const bool save_due = IsDue(step, job_.config.output.save_every_steps);
  if (save_due) BLOCKSWAP_RETURN_IF_ERROR(saver_->SaveAdapterOfStep(counters_, started_));
  if (save_due || reporter_->TakeCheckpointRequest()) {
    BLOCKSWAP_RETURN_IF_ERROR(saver_->SaveCheckpoint(Properties(), /*required=*/false));
    reporter_->Phase("training");
  }
  const bool sample_due =
      IsDue(step, job_.config.sampling.every_steps) || reporter_->TakeSampleRequest();
  if (sample_due && !prompts_.empty()) {
    BLOCKSWAP_RETURN_IF_ERROR(Sample(step));
    reporter_->Phase("training");
  }
  if (step < job_.total_steps) AdjustPlan();
  if (step == first_step_ + 1 || step % kStepsBetweenMemoryReports == 0 || step == job_.total_steps)
    ReportMemory();
  return absl::OkStatus();
}

absl::Status Trainer::Sample(int64_t round) {
  reporter_->Phase("sampling");
  const WalkContext context = Context(/*with_adapter=*/round != 0);
  std::vector<at::Tensor> latents_CHW;
  BLOCKSWAP_RETURN_IF_ERROR(WithSamplingPlan([&]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(latents_CHW, SampleLatents(context, prompts_, job_.config.training,
                                                          [this] { return StopStatus(); }));
    return absl::OkStatus();
  }));
  StartPeaks();  // pictures may be larger than what trains
  const absl::StatusOr<std::string> file = gallery_->AddRound(round, latents_CHW);
  if (!file.ok()) {
    Warn(absl::IsDataLoss(file.status()) ? "SAMPLE_NOT_FINITE" : "SAMPLE_NOT_SAVED",
         absl::StrCat("step ", round, ": ", file.status().message()));
    return absl::OkStatus();
  }
  if (round == 0 && !gallery_->can_draw()) {
    Warn("NO_DECODER",
         absl::StrCat(
             "latents of ", job_.model.latent_channels,
             " channels need a VAE, which is not available yet; the samples are saved as latents"));
  }
  reporter_->SampleReady(round, *file);
  return absl::OkStatus();
}

absl::Status Trainer::Finish() {
  if (counters_.step != job_.total_steps) {
    return absl::InternalError(
        absl::StrCat("planned ", job_.total_steps, " steps, did ", counters_.step));
  }
  reporter_->Phase("finishing");
  if (saver_->last_checkpoint_step() != counters_.step) {
    BLOCKSWAP_RETURN_IF_ERROR(saver_->SaveCheckpoint(Properties(), /*required=*/true));
  }
  BLOCKSWAP_RETURN_IF_ERROR(saver_->SaveFinalAdapter(counters_, started_));
  if (prompts_.empty()) return absl::OkStatus();
  if (!gallery_->HasRound(counters_.step)) BLOCKSWAP_RETURN_IF_ERROR(Sample(counters_.step));
  const bool both_rounds = gallery_->HasRound(0) && gallery_->HasRound(counters_.step);
  if (!gallery_->can_draw() || !both_rounds) return absl::OkStatus();
  const absl::StatusOr<std::string> sheet = gallery_->WriteSheet(counters_.step);
  if (sheet.ok()) {
    reporter_->SampleReady(counters_.step, *sheet);
  } else {
    Warn("SAMPLE_NOT_SAVED", std::string(sheet.status().message()));
  }
  return absl::OkStatus();
}

absl::Status Trainer::StopStatus() {
  StopRequest request = reporter_->stop_requested();
  if (options_.stop_requested) request = std::max(request, options_.stop_requested());
  switch (request) {
    case StopRequest::kNone:
      return absl::OkStatus();
    case StopRequest::kCancel:
      return WithFailure(
          absl::CancelledError(absl::StrCat("cancelled after step ", counters_.step)),
          ExitCode::kCancelled, "CANCELLED");
    case StopRequest::kSuspend:
      return WithFailure(
          absl::CancelledError(absl::StrCat("suspended after step ", counters_.step)),
          ExitCode::kSuspended, "SUSPENDED");
    case StopRequest::kNow:
      return WithFailure(
          absl::CancelledError(absl::StrCat("stopped at once after step ", counters_.step)),
          ExitCode::kCancelled, "STOPPED_NOW");
  }
  return absl::OkStatus();
}

}  // namespace blockswap::worker
