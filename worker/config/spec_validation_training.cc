// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "worker/config/spec_validation_sections.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kMostSteps = 1'000'000'000;
constexpr int64_t kLargestSeed = (int64_t{1} << 53) - 1;  // JSON readers keep it exact
constexpr auto kClosed = FieldChecker::Bound::kClosed;
constexpr auto kOpen = FieldChecker::Bound::kOpen;

void CheckOptimizer(const v1::OptimizerSpec& spec, FieldChecker* check, AdamWConfig* config) {
  int only = 0;
  check->Choice<int>("training.optimizer.type", spec.type(), {{"adamw", 0}}, {}, &only);
  check->Real("training.optimizer.beta1", spec.has_beta1(), spec.beta1(), kClosed, 0, kOpen, 1,
              &config->beta1);
  check->Real("training.optimizer.beta2", spec.has_beta2(), spec.beta2(), kClosed, 0, kOpen, 1,
              &config->beta2);
  check->Real("training.optimizer.eps", spec.has_eps(), spec.eps(), kOpen, 0, kClosed, 1,
              &config->eps);
  check->Real("training.optimizer.weight_decay", spec.has_weight_decay(), spec.weight_decay(),
              kClosed, 0, kClosed, 100, &config->weight_decay);
}

void CheckSchedule(const v1::TrainingSpec& training, FieldChecker* check, ScheduleConfig* config) {
  const v1::SchedulerSpec& spec = training.scheduler();
  check->Choice<ScheduleType>(
      "training.scheduler.type", spec.type(),
      {{"constant", ScheduleType::kConstant}, {"cosine", ScheduleType::kCosine}}, {},
      &config->type);
  check->Whole("training.scheduler.warmup_steps", spec.has_warmup_steps(), spec.warmup_steps(), 0,
               kMostSteps, &config->warmup_steps);
  if (training.has_max_steps() && training.max_steps() > 0 &&
      config->warmup_steps > training.max_steps()) {
    check->Violate("training.scheduler.warmup_steps",
                   absl::StrCat("must be at most training.max_steps, ", training.max_steps(),
                                ", is ", config->warmup_steps));
  }
  check->Real("training.scheduler.min_lr_ratio", spec.has_min_lr_ratio(), spec.min_lr_ratio(),
              kClosed, 0, kClosed, 1, &config->min_lr_ratio);
}

void CheckTimesteps(const v1::TrainingSpec& spec, FieldChecker* check, TrainingConfig* config) {
  check->Choice<TimestepSampling>("training.timestep_sampling", spec.timestep_sampling(),
                                  {{"uniform", TimestepSampling::kUniform},
                                   {"sigmoid", TimestepSampling::kSigmoid},
                                   {"shift", TimestepSampling::kShift},
                                   {"qwen_shift", TimestepSampling::kQwenShift}},
                                  {}, &config->timestep_sampling);
  check->Real("training.discrete_flow_shift", spec.has_discrete_flow_shift(),
              spec.discrete_flow_shift(), kOpen, 0, kClosed, 100, &config->discrete_flow_shift);
  check->Real("training.sigmoid_scale", spec.has_sigmoid_scale(), spec.sigmoid_scale(), kOpen, 0,
              kClosed, 100, &config->sigmoid_scale);
  check->Real("training.min_timestep", spec.has_min_timestep(), spec.min_timestep(), kClosed, 0,
              kClosed, 1000, &config->min_timestep);
  check->Real("training.max_timestep", spec.has_max_timestep(), spec.max_timestep(), kClosed, 0,
              kClosed, 1000, &config->max_timestep);
  if (config->min_timestep >= config->max_timestep) {
    check->Violate("training.min_timestep",
                   absl::StrCat("must be below training.max_timestep, ", config->max_timestep,
                                ", is ", config->min_timestep));
  }
}

void CheckSteps(const v1::TrainingSpec& spec, FieldChecker* check, TrainingConfig* config) {
  int64_t steps = 0, epochs = 0;
  check->Whole("training.max_steps", spec.has_max_steps(), spec.max_steps(), 1, kMostSteps, &steps);
  check->Whole("training.max_epochs", spec.has_max_epochs(), spec.max_epochs(), 1, kMostSteps,
               &epochs);
  if (!spec.has_max_steps() && !spec.has_max_epochs()) {
    check->Violate("training.max_steps", "is required unless training.max_epochs is given");
  }
  if (spec.has_max_steps()) config->max_steps = steps;
  if (spec.has_max_epochs()) config->max_epochs = epochs;
}

}  // namespace

void CheckTraining(const v1::TrainingSpec& spec, FieldChecker* check, TrainingConfig* config) {
  CheckSteps(spec, check, config);
  check->Real("training.learning_rate", spec.has_learning_rate(), spec.learning_rate(), kOpen, 0,
              kClosed, 10, &config->learning_rate);
  CheckOptimizer(spec.optimizer(), check, &config->adamw);
  CheckSchedule(spec, check, &config->schedule);
  check->Whole("training.seed", spec.has_seed(), spec.seed(), 0, kLargestSeed, &config->seed);
  CheckTimesteps(spec, check, config);
  check->Whole("training.gradient_accumulation_steps", spec.has_gradient_accumulation_steps(),
               spec.gradient_accumulation_steps(), 1, 65536, &config->gradient_accumulation_steps);
  check->Real("training.max_grad_norm", spec.has_max_grad_norm(), spec.max_grad_norm(), kClosed, 0,
              kClosed, 1e6, &config->max_grad_norm);
  if (spec.has_gradient_checkpointing()) {
    config->gradient_checkpointing = spec.gradient_checkpointing();
  }
  check->Whole("training.threads", spec.has_threads(), spec.threads(), 1, 1024, &config->threads);
  check->Choice<NonfinitePolicy>(
      "training.on_nonfinite", spec.on_nonfinite(),
      {{"stop", NonfinitePolicy::kStop}, {"skip", NonfinitePolicy::kSkip}}, {},
      &config->on_nonfinite);
  if (spec.has_musubi_timestep_offset()) {
    config->musubi_timestep_offset = spec.musubi_timestep_offset();
  }
}

}  // namespace blockswap::worker
