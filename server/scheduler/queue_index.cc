// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/queue_index.h"

#include <algorithm>
#include <utility>

#include "server/jobs/transitions.h"

namespace blockswap::server {

QueueChange QueueChangeOf(const JobRecord& job) {
  QueueChange change;
  change.waits = IsWaiting(job.state);
  change.is_over = IsTerminal(job.state);
  change.deadline_wall_micros = job.deadline_micros;
  if (change.waits) {
    change.job = QueuedJobOf(job);
    change.ready_wall_micros = job.ready_micros;
  } else {
    change.job.id = job.id;
    change.job.sequence = job.created_sequence;
  }
  return change;
}

QueueChange QueueChangeOf(const WaitingJob& job, const std::string& outputs_root) {
  QueueChange change;
  change.waits = true;
  change.job = QueuedJobOf(job, outputs_root);
  change.ready_wall_micros = job.ready_micros;
  change.deadline_wall_micros = job.deadline_micros;
  return change;
}

int64_t QueueIndex::Settle(int64_t wall, int64_t wall_now, int64_t steady_now, Moment& moment) {
  if (moment.wall != wall) moment = {wall, steady_now + (wall - wall_now)};
  return moment.steady;
}

void QueueIndex::Apply(std::vector<QueueChange> changes, int64_t wall_micros,
                       int64_t steady_micros) {
  const auto before = [](const QueuedJob& job, int64_t sequence) {
    return job.sequence < sequence;
  };
  // Of several changes of one job the last one counts.
  std::stable_sort(changes.begin(), changes.end(),
                   [](const auto& a, const auto& b) { return a.job.sequence < b.job.sequence; });
  std::vector<QueuedJob> added;
  bool removes = false;
  for (size_t i = 0; i < changes.size(); ++i) {
    QueueChange& change = changes[i];
    QueuedJob& job = change.job;
    if (i + 1 < changes.size() && changes[i + 1].job.sequence == job.sequence) continue;
    if (change.is_over) {
      clocks_.erase(job.id);
    } else if (change.ready_wall_micros != 0 || change.deadline_wall_micros != 0 ||
               clocks_.count(job.id) != 0) {
      Clocks& clocks = clocks_[job.id];
      job.ready_micros =
          change.ready_wall_micros == 0
              ? 0
              : Settle(change.ready_wall_micros, wall_micros, steady_micros, clocks.ready);
      if (change.deadline_wall_micros == 0) {
        clocks.deadline = {};
      } else {
        job.deadline_micros =
            Settle(change.deadline_wall_micros, wall_micros, steady_micros, clocks.deadline);
      }
    }
    const auto found = std::lower_bound(jobs_.begin(), jobs_.end(), job.sequence, before);
    const bool is_here = found != jobs_.end() && found->sequence == job.sequence;
    if (!change.waits) {
      if (is_here) found->id.clear();
      removes = removes || is_here;
    } else if (is_here) {
      *found = std::move(job);
    } else {
      added.push_back(std::move(job));
    }
  }
  if (removes) std::erase_if(jobs_, [](const QueuedJob& job) { return job.id.empty(); });
  const auto middle = static_cast<std::ptrdiff_t>(jobs_.size());
  std::move(added.begin(), added.end(), std::back_inserter(jobs_));
  std::inplace_merge(
      jobs_.begin(), jobs_.begin() + middle, jobs_.end(),
      [](const QueuedJob& a, const QueuedJob& b) { return a.sequence < b.sequence; });
}

int64_t QueueIndex::DeadlineOf(const std::string& id) const {
  const auto found = clocks_.find(id);
  if (found == clocks_.end() || found->second.deadline.wall == 0) return kNever;
  return found->second.deadline.steady;
}

}  // namespace blockswap::server
