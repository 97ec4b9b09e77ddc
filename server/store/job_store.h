// SPDX-License-Identifier: Apache-2.0
// The durable state of all jobs: every change is one transaction together with its events.
#ifndef BLOCKSWAP_SERVER_STORE_JOB_STORE_H_
#define BLOCKSWAP_SERVER_STORE_JOB_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/base/mutex.h"
#include "server/jobs/job.h"
#include "server/device/device_link.h"
#include "server/jobs/job_filter.h"
#include "server/store/database.h"

namespace blockswap::server {

// What goes into the store together with a changed job row.
struct JobChange {
  std::vector<EventRecord> events;  // type, reason, message, failure; the store fills in the rest
  std::optional<AttemptRecord> attempt;
  std::optional<CheckpointRecord> checkpoint;
  std::vector<MetricPoint> points;
  std::optional<int64_t>
      drop_points_after;  // a resumed attempt repeats the steps behind its checkpoint
};

// Thread safety: safe. Owns: one connection for writing and one for reading, so that reads go on
// while a write syncs. Errors: Unavailable with reason STORE_READ_ONLY while the disk is full;
// reads go on. NotFound JOB_NOT_FOUND. Invariants: (1) event sequences have no gaps; (2) a terminal
// state never changes; (3) state, event and request id agree.
class JobStore final {
 public:
  // Called after each commit with its events, in the order of their sequence, under the writer's
  // lock: must only queue.
  using EventListener = std::function<void(const std::vector<EventRecord>& events)>;
  // Reports how long a transaction took; `is_write` tells which kind.
  using TimingListener = std::function<void(bool is_write, double seconds)>;

  // DataLoss: the file is no store (it is never made anew silently). FailedPrecondition: newer
  // schema.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& path);
  ~JobStore();

  // Before any thread uses the store.
  void SetListeners(EventListener events, TimingListener timing);

  struct Created {
    JobRecord job;
    bool is_new = false;
  };
  // Stores job, CREATED event and request id in one transaction. The same request id with the same
  // hash answers the job it made; with another hash: AlreadyExists REQUEST_ID_REUSED. A taken id:
  // AlreadyExists JOB_EXISTS. `max_unfinished` reached: ResourceExhausted QUEUE_FULL.
  absl::StatusOr<Created> CreateJob(JobRecord job, const std::string& request_id,
                                    const std::string& request_hash, int64_t max_unfinished);
  // The job an earlier request made, if there is one; AlreadyExists as above.
  absl::StatusOr<std::optional<JobRecord>> FindRequest(const std::string& request_id,
                                                       const std::string& request_hash);

  // Loads the job, lets `mutate` change it, checks the transition and stores it with everything in
  // JobChange. A STATE_CHANGED event is added when state or reason changed and `mutate` made none.
  // FailedPrecondition INVALID_STATE for an illegal transition.
  using Mutation = absl::FunctionRef<absl::Status(JobRecord& job, JobChange& change)>;
  absl::StatusOr<JobRecord> UpdateJob(const std::string& id, Mutation mutate);

  absl::StatusOr<JobRecord> GetJob(const std::string& id);
  // Newest first, at most `limit`, only those created before sequence `before` (0: from the
  // newest).
  absl::StatusOr<std::vector<JobRecord>> ListJobs(const JobFilter& filter, int64_t before,
                                                  int limit);
  // QUEUED and RECOVERING jobs, those to start first at the front.
  absl::StatusOr<std::vector<JobRecord>> WaitingJobs();
  absl::StatusOr<std::vector<JobRecord>> JobsWithWorkers();
  absl::StatusOr<std::map<JobState, int64_t>> CountJobs();
  // 1-based; 0 when the job does not wait.
  absl::StatusOr<int64_t> QueuePosition(const JobRecord& job);
  absl::StatusOr<std::vector<AttemptRecord>> ListAttempts(const std::string& job_uid);
  absl::StatusOr<std::vector<CheckpointRecord>> ListCheckpoints(const std::string& job_uid);
  // At most `max_points` from `from_step` on, evenly thinned; the last one is always there.
  absl::StatusOr<std::vector<MetricPoint>> ListMetricPoints(const std::string& job_uid,
                                                            int64_t from_step, int64_t max_points);
  // Events after `sequence`, of one job or (empty) of all.
  absl::StatusOr<std::vector<EventRecord>> EventsAfter(int64_t sequence, const std::string& job_id,
                                                       int limit);

  // What the link test of a device measured, by uuid, driver and bus; nothing when it never ran.
  absl::StatusOr<std::optional<MeasuredLink>> FindLink(const std::string& device_key);
  absl::Status SaveLink(const std::string& device_key, const MeasuredLink& link);

  int64_t last_sequence() const { return last_sequence_.load(std::memory_order_acquire); }
  const std::string& epoch() const { return epoch_; }    // a new one for every new store
  const std::string& secret() const { return secret_; }  // for page tokens
  bool writable() const { return writable_.load(std::memory_order_relaxed); }
  // Tries a write; returns whether the store is writable (again).
  bool ProbeWritable();
  // Request ids older than `age_micros` whose job is gone.
  absl::Status PruneRequestIds(int64_t age_micros);

 private:
  JobStore(std::unique_ptr<Database> writer, std::unique_ptr<Database> reader);
  absl::Status LoadMeta();
  absl::StatusOr<JobRecord> GetJobLocked(Database& database, const char* where,
                                         const std::string& key);
  absl::StatusOr<std::optional<JobRecord>> FindRequestLocked(Database& database,
                                                             const std::string& request_id,
                                                             const std::string& request_hash);
  absl::Status WriteChange(JobRecord& job, JobChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void NumberEvents(const JobRecord& job, std::vector<EventRecord>& events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Publishes after a commit, or notes that the disk refused.
  void Committed(const std::vector<EventRecord>& events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status Failed(absl::Status status);

  // Constant after Open and SetListeners.
  std::string epoch_, secret_;
  EventListener on_events_;
  TimingListener on_timing_;

  std::atomic<int64_t> last_sequence_{
      0};  // release after commit: who sees it finds the events in the store
  std::atomic<bool> writable_{true};  // relaxed: a hint, the next write tells
  base::Mutex write_mutex_;
  std::unique_ptr<Database> writer_ ABSL_GUARDED_BY(write_mutex_);
  base::Mutex read_mutex_;
  std::unique_ptr<Database> reader_ ABSL_GUARDED_BY(read_mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_JOB_STORE_H_
