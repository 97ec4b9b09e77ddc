// SPDX-License-Identifier: Apache-2.0
// All waiting jobs in memory, kept by the changes that the store reports: a pass over the queue
// reads no row.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_QUEUE_INDEX_H_
#define BLOCKSWAP_SERVER_SCHEDULER_QUEUE_INDEX_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/scheduler/queued_job.h"

namespace blockswap::server {

// What a commit made of a job.
struct QueueChange {
  bool waits = false, is_over = false;
  // Of a job that waits in full, else id and sequence only. Its backoff and deadline are by the
  // wall clock; 0: none.
  QueuedJob job;
  int64_t ready_wall_micros = 0, deadline_wall_micros = 0;
};

QueueChange QueueChangeOf(const JobRecord& job);
QueueChange QueueChangeOf(const WaitingJob& job, const std::string& outputs_root);

// Thread safety: none; the scheduler's thread. Invariant: jobs() has each waiting job once, by
// rising sequence.
class QueueIndex final {
 public:
  // Changes of one job in the order of their commits. Both times are now.
  void Apply(std::vector<QueueChange> changes, int64_t wall_micros, int64_t steady_micros);

  const std::vector<QueuedJob>& jobs() const { return jobs_; }
  // By the monotonic clock, of any unfinished job; kNever: it has none.
  int64_t DeadlineOf(const std::string& id) const;

 private:
  // A moment of the wall clock that was put on the monotonic one when it was first seen: a later
  // step of the wall clock does not move it.
  struct Moment {
    int64_t wall = 0, steady = 0;
  };
  struct Clocks {
    Moment ready, deadline;
  };
  static int64_t Settle(int64_t wall, int64_t wall_now, int64_t steady_now, Moment& moment);

  std::vector<QueuedJob> jobs_;
  std::unordered_map<std::string, Clocks> clocks_;  // of unfinished jobs with a time to watch
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_QUEUE_INDEX_H_
