// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step_runner.h"

#include <cmath>

#include <ATen/ATen.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/objective/flow_matching.h"
#include "worker/optimizer/gradient_norm.h"
#include "worker/optimizer/learning_rate.h"

namespace blockswap::worker {
namespace {

// Ends a walk whose loss is not finite before any gradient is made of it; never leaves this file.
absl::Status NotFinite() { return absl::AbortedError("loss is not finite"); }

void AddSeconds(StepOutcome* outcome, const char* phase, absl::Duration duration) {
  outcome->phase_seconds[phase] += absl::ToDoubleSeconds(duration);
}

// Appends the names of the samples that are to blame.
void NameFaultyItems(const LossValue& loss, const std::vector<std::string>& names,
                     std::vector<std::string>* faulty) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (!std::isfinite(loss.per_sample[i])) faulty->push_back(names[i]);
  }
}

}  // namespace

StepRunner::StepRunner(const JobInspection* job, const WalkContext& context, AdamW* optimizer)
    : job_(job), context_(context), optimizer_(optimizer) {}

absl::StatusOr<StepOutcome> StepRunner::ComputeGradients(
    int64_t step, const std::function<absl::Status()>& stop) {
  const TrainingConfig& training = job_->config.training;
  StepOutcome outcome;
  outcome.position = PositionOfStep(step, job_->dataset->batches_per_epoch(),
                                    training.gradient_accumulation_steps);
  outcome.learning_rate = LearningRateAt(training, step, job_->total_steps);
  const double weight = 1.0 / static_cast<double>(outcome.position.num_batches);
  std::vector<std::string> names;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    context_.adapter->gradients().zero_();
    BLOCKSWAP_RETURN_IF_ERROR(context_.swapper->BeginPass(offload::PassKind::kTraining));
    for (int64_t i = 0; i < outcome.position.num_batches; ++i) {
      const Batch batch = job_->dataset->BatchAt(training.seed, outcome.position.first_batch + i);
      for (const int64_t item : batch.items)
        names.push_back(job_->dataset->items()[static_cast<size_t>(item)].name);
      BLOCKSWAP_RETURN_IF_ERROR(RunMicroBatch(batch, step, weight, stop, &outcome));
      if (outcome.fault != NumericFault::kNone) return absl::OkStatus();
    }
    outcome.gradient_norm = GlobalNorm(context_.adapter->gradients());
    return absl::OkStatus();
  }));
  if (outcome.fault == NumericFault::kNone && !std::isfinite(outcome.gradient_norm)) {
    outcome.fault = NumericFault::kGradient;
    outcome.faulty_items = names;
  }
  return outcome;
}

absl::Status StepRunner::RunMicroBatch(const Batch& batch, int64_t step, double weight,
                                       const std::function<absl::Status()>& stop,
                                       StepOutcome* outcome) {
  const absl::Time begin = absl::Now();
  BLOCKSWAP_ASSIGN_OR_RETURN(const LoadedBatch loaded, LoadBatch(*job_->dataset, batch));
  const MicroBatch micro = MakeMicroBatch(loaded, job_->config.training, job_->model,
                                          {step, outcome->samples}, context_.device);
  AddSeconds(outcome, "data", absl::Now() - begin);

  const LossFunction loss_function = [&](const at::Tensor& output) -> absl::StatusOr<at::Tensor> {
    const LossValue loss = MeanSquaredError(output, micro.target_BSF, weight);
    outcome->loss += loss.mean * weight;
    if (!std::isfinite(loss.mean)) {
      outcome->fault = NumericFault::kLoss;
      NameFaultyItems(loss, micro.names, &outcome->faulty_items);
      return NotFinite();
    }
    return loss.output_gradient_BSF;
  };
  const absl::StatusOr<WalkResult> walk =
      WalkTraining(context_, micro.inputs, loss_function, /*want_hidden_states_grad=*/false, stop);
  if (outcome->fault == NumericFault::kLoss) return absl::OkStatus();
  BLOCKSWAP_RETURN_IF_ERROR(walk.status());
  outcome->samples += static_cast<int64_t>(batch.items.size());
  AddSeconds(outcome, "forward", walk->forward);
  AddSeconds(outcome, "backward", walk->backward);
  return absl::OkStatus();
}

absl::Status StepRunner::Update(StepOutcome* outcome) {
  const absl::Time begin = absl::Now();
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    ClipByNorm(context_.adapter->gradients(), outcome->gradient_norm,
               job_->config.training.max_grad_norm);
    optimizer_->Step(context_.adapter->gradients(), outcome->learning_rate);
    return absl::OkStatus();
  }));
  AddSeconds(outcome, "optimizer", absl::Now() - begin);
  return absl::OkStatus();
}

}  // namespace blockswap::worker
