// SPDX-License-Identifier: Apache-2.0
// How far a job is and how long it will take, from the durations of its own steps alone.
#ifndef BLOCKSWAP_SERVER_JOBS_PROGRESS_FIGURES_H_
#define BLOCKSWAP_SERVER_JOBS_PROGRESS_FIGURES_H_

#include <cstdint>
#include <deque>

#include "server/jobs/job.h"

namespace blockswap::server {

// Seconds that the steps still to be made will take, by the mean of the last ones: neither saves and
// samples between steps nor steps of an earlier attempt count, and no clock is read that could jump.
// 0 when nothing is left, and while nothing is known (no step has been timed).
double RemainingSeconds(int64_t step, int64_t total_steps,
                        const std::deque<double>& recent_step_seconds);

// 0 to 1: exactly 1 once all steps are made, 0 while their number is not known.
double Fraction(const Progress& progress);

// Takes a finished step over; a step beyond the last one counts as the last.
void AdvanceTo(int64_t step, Progress& progress);

// A job that succeeded has made all its steps, however early it stopped.
void Complete(Progress& progress);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_JOBS_PROGRESS_FIGURES_H_
