// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace blockswap::worker {

double LearningRateAt(const TrainingConfig& config, int64_t step, int64_t total_steps) {
  const ScheduleConfig& schedule = config.schedule;
  const double done = static_cast<double>(step - 1);
  const double warmup = static_cast<double>(schedule.warmup_steps);
  if (done < warmup) return config.learning_rate * done / warmup;
  if (schedule.type == ScheduleType::kConstant) return config.learning_rate;

  const double decay_steps = std::max(1.0, static_cast<double>(total_steps) - warmup);
  const double progress = std::min(1.0, (done - warmup) / decay_steps);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return config.learning_rate * (cosine * (1.0 - schedule.min_lr_ratio) + schedule.min_lr_ratio);
}

}  // namespace blockswap::worker
