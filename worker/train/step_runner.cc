// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step_runner.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/objective/flow_matching.h"
#include "worker/optimizer/learning_rate.h"

namespace blockswap::worker {
namespace {

// Ends a walk whose loss is not finite before any gradient is made of it; never leaves this file.
absl::Status NotFinite() { return absl::AbortedError("loss is not finite"); }

void AddSeconds(StepOutcome* outcome, const char* phase, absl::Duration duration) {
  outcome->phase_seconds[phase] += absl::ToDoubleSeconds(duration);
}

int64_t TokensOf(const ModelInputs& inputs) {
  const at::Tensor& image = inputs.hidden_states_BSC;
  const at::Tensor& text = inputs.encoder_hidden_states_BTJ;
  int64_t tokens = image.size(0) * image.size(1);
  if (text.defined()) tokens += text.size(0) * text.size(1);
  return tokens;
}

// Appends the names of the samples that are to blame.
void NameFaultyItems(const LossValue& loss, const std::vector<std::string>& names,
                     std::vector<std::string>* faulty) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (!std::isfinite(loss.per_sample[i])) faulty->push_back(names[i]);
  }
}

}  // namespace

StepRunner::StepRunner(const JobInspection* job, const WalkContext& context, Trainable* trained)
    : job_(job), context_(context), trained_(trained) {}

StepOutcome StepRunner::StartStep(int64_t step) const {
  const TrainingConfig& training = job_->config.training;
  StepOutcome outcome;
  outcome.position = PositionOfStep(step, job_->dataset->batches_per_epoch(),
                                    training.gradient_accumulation_steps);
  outcome.learning_rate = LearningRateAt(training, step, job_->total_steps);
  return outcome;
}

absl::StatusOr<MicroBatch> StepRunner::FirstMicroBatch(int64_t step) {
  StepOutcome outcome = StartStep(step);
  absl::StatusOr<MicroBatch> micro = absl::UnknownError("not loaded");
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&] {
    micro = Load(/*batch=*/0, step, /*first_sample=*/0, &outcome);
    return micro.status();
  }));
  return micro;
}

absl::StatusOr<StepOutcome> StepRunner::ComputeGradients(
    int64_t step, const std::function<absl::Status()>& stop) {
  const absl::Time begin = absl::Now();
  StepOutcome outcome = StartStep(step);
  const int64_t num_batches = outcome.position.num_batches;
  const int64_t together = context_.swapper->plan().block_major ? num_batches : 1;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    trained_->ZeroGradients();
    BLOCKSWAP_RETURN_IF_ERROR(context_.swapper->BeginPass(offload::PassKind::kTraining));
    for (int64_t i = 0; i < num_batches && outcome.fault == NumericFault::kNone; i += together) {
      BLOCKSWAP_RETURN_IF_ERROR(RunMicroBatches(i, together, step, stop, &outcome));
    }
    if (outcome.fault == NumericFault::kNone) {
      BLOCKSWAP_ASSIGN_OR_RETURN(outcome.gradient_norm, trained_->GradientNorm());
    }
    return absl::OkStatus();
  }));
  if (outcome.fault == NumericFault::kNone && !std::isfinite(outcome.gradient_norm)) {
    outcome.fault = NumericFault::kGradient;
    outcome.faulty_items = ItemsOfStep(outcome.position);
  }
  outcome.compute = absl::Now() - begin - absl::Seconds(outcome.phase_seconds["data"]);
  return outcome;
}

std::vector<std::string> StepRunner::ItemsOfStep(const StepPosition& position) const {
  std::vector<std::string> names;
  for (int64_t i = 0; i < position.num_batches; ++i) {
    const Batch batch =
        job_->dataset->BatchAt(job_->config.training.seed, position.first_batch + i);
    for (const int64_t item : batch.items) {
      names.push_back(job_->dataset->items()[static_cast<size_t>(item)].name);
    }
  }
  return names;
}

absl::StatusOr<MicroBatch> StepRunner::Load(int64_t batch, int64_t step, int64_t first_sample,
                                            StepOutcome* outcome) {
  const absl::Time begin = absl::Now();
  const TrainingConfig& training = job_->config.training;
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const LoadedBatch loaded,
      LoadBatch(*job_->dataset,
                job_->dataset->BatchAt(training.seed, outcome->position.first_batch + batch)));
  MicroBatch micro =
      MakeMicroBatch(loaded, training, job_->model, {step, first_sample}, context_.device);
  AddSeconds(outcome, "data", absl::Now() - begin);
  return micro;
}

absl::Status StepRunner::RunMicroBatches(int64_t first, int64_t count, int64_t step,
                                         const std::function<absl::Status()>& stop,
                                         StepOutcome* outcome) {
  std::vector<MicroBatch> micros;
  int64_t first_sample = outcome->samples;
  for (int64_t i = first; i < first + count; ++i) {
    BLOCKSWAP_ASSIGN_OR_RETURN(MicroBatch micro, Load(i, step, first_sample, outcome));
    first_sample += static_cast<int64_t>(micro.names.size());
    micros.push_back(std::move(micro));
  }
  const double weight = 1.0 / static_cast<double>(outcome->position.num_batches);
  std::vector<WalkItem> items;
  for (const MicroBatch& micro : micros) {
    items.push_back({&micro.inputs, [&](const at::Tensor& output) -> absl::StatusOr<at::Tensor> {
                       const LossValue loss = MeanSquaredError(output, micro.target_BSF, weight);
                       outcome->loss += loss.mean * weight;
                       if (!std::isfinite(loss.mean)) {
                         outcome->fault = NumericFault::kLoss;
                         NameFaultyItems(loss, micro.names, &outcome->faulty_items);
                         return NotFinite();
                       }
                       outcome->samples += static_cast<int64_t>(micro.names.size());
                       outcome->tokens += TokensOf(micro.inputs);
                       return loss.output_gradient_BSF;
                     }});
  }
  const absl::Duration waited_before = context_.model->host_work().waited;
  const absl::StatusOr<WalkTimes> times = WalkTrainingTogether(context_, items, stop);
  if (outcome->fault == NumericFault::kLoss) return absl::OkStatus();
  BLOCKSWAP_RETURN_IF_ERROR(times.status());
  // For modulation that the host evaluates (Note [Host modulation]); only forward waits for it.
  const absl::Duration waited = context_.model->host_work().waited - waited_before;
  if (waited > absl::ZeroDuration()) AddSeconds(outcome, "modulation_wait", waited);
  AddSeconds(outcome, "forward", times->forward - waited);
  AddSeconds(outcome, "backward", times->backward);
  return absl::OkStatus();
}

absl::Status StepRunner::Update(StepOutcome* outcome) {
  const absl::Time begin = absl::Now();
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&] {
    return trained_->Update(outcome->gradient_norm, job_->config.training.max_grad_norm,
                            outcome->learning_rate);
  }));
  AddSeconds(outcome, "optimizer", absl::Now() - begin);
  return absl::OkStatus();
}

}  // namespace blockswap::worker
