// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/queued_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

// What was measured counts more than what was planned.
double ExpectedSeconds(const PlanNeeds& needs, const Progress& progress) {
  const double step =
      progress.seconds_per_step > 0 ? progress.seconds_per_step : needs.step_seconds;
  const int64_t total = progress.total_steps > 0 ? progress.total_steps : needs.total_steps;
  return step > 0 ? step * static_cast<double>(std::max<int64_t>(0, total - progress.step)) : 0;
}

// What both records have.
template <typename Job>
QueuedJob Common(const Job& job) {
  QueuedJob queued;
  queued.id = job.id;
  queued.sequence = job.created_sequence;
  queued.create_micros = job.create_micros;
  queued.priority = job.priority;
  queued.held = job.held;
  queued.requested_device = job.requested_device;
  queued.needs = job.needs;
  queued.stored_reason = job.state_reason;
  return queued;
}

}  // namespace

QueuedJob QueuedJobOf(const JobRecord& job) {
  QueuedJob queued = Common(job);
  queued.output_directory = job.output_directory;
  queued.stored_message = job.state_message;
  queued.expected_seconds = ExpectedSeconds(job.needs, job.progress);
  return queued;
}

QueuedJob QueuedJobOf(const WaitingJob& job, const std::string& outputs_root) {
  QueuedJob queued = Common(job);
  queued.output_directory = absl::StrCat(outputs_root, "/", job.id);
  queued.expected_seconds = ExpectedSeconds(job.needs, Progress());
  return queued;
}

}  // namespace blockswap::server
