// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/progress_figures.h"

#include <algorithm>
#include <cmath>

namespace blockswap::server {

double RemainingSeconds(int64_t step, int64_t total_steps,
                        const std::deque<double>& recent_step_seconds) {
  double sum = 0;
  int64_t count = 0;
  for (const double seconds : recent_step_seconds) {
    if (!std::isfinite(seconds) || seconds < 0) continue;
    sum += seconds;
    ++count;
  }
  if (count == 0) return 0;
  return sum / static_cast<double>(count) *
         static_cast<double>(std::max<int64_t>(0, total_steps - step));
}

double Fraction(const Progress& progress) {
  if (progress.total_steps <= 0) return 0;
  if (progress.step >= progress.total_steps) return 1;
  return std::max(0.0, static_cast<double>(progress.step) / static_cast<double>(progress.total_steps));
}

void AdvanceTo(int64_t step, Progress& progress) {
  progress.step = progress.total_steps > 0 ? std::min(step, progress.total_steps) : step;
}

void Complete(Progress& progress) {
  if (progress.step > 0) progress.total_steps = progress.step;
  progress.step = progress.total_steps;
  progress.eta_seconds = 0;
}

}  // namespace blockswap::server
