// SPDX-License-Identifier: Apache-2.0
// The durable state of all jobs: every change is one transaction together with its events.
#ifndef BLOCKSWAP_SERVER_STORE_JOB_STORE_H_
#define BLOCKSWAP_SERVER_STORE_JOB_STORE_H_

#include <array>
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
#include "server/device/device_link.h"
#include "server/jobs/job.h"
#include "server/jobs/job_filter.h"
#include "server/jobs/job_order.h"
#include "server/store/database.h"
#include "server/store/job_query.h"
#include "server/store/token_rows.h"

namespace blockswap::server {

// What goes into the store together with a changed job row.
struct JobChange {
  std::vector<EventRecord> events;  // type, reason, message, failure; the store fills in the rest
  std::optional<AttemptRecord> attempt;
  std::optional<CheckpointRecord> checkpoint;
  std::vector<MetricPoint> points;
  std::optional<int64_t>
      drop_points_after;  // a resumed attempt repeats the steps behind its checkpoint
  std::optional<int64_t> drop_checkpoint;  // of this step
};

// Steps from, to (0: to the last) and how many at most.
struct PointRange {
  int64_t from_step = 0, to_step = 0;
  int64_t max_points = 0;
};
struct ThinnedPoints {
  std::vector<MetricPoint> points;
  int64_t total = 0;  // in the range
};

struct StoreCheck {
  std::vector<std::string> problems;  // none: sound
  int64_t bytes = 0;
  int schema_version = 0;
};

// Jobs as one state of the store holds them, and the last event that is in it.
struct JobsAsOf {
  std::vector<JobRecord> jobs;
  int64_t sequence = 0;
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

  // Operations that failed for reasons of the disk or of ours since Open, for the metrics.
  struct ErrorCounts {
    int64_t read_only = 0, corrupt = 0, internal = 0;
  };
  ErrorCounts errors() const;

  // Called after each commit with the job it changed, under the writer's lock: must only queue.
  using JobListener = std::function<void(const JobRecord& job)>;

  // Before any thread uses the store.
  void SetListeners(EventListener events, TimingListener timing);

  // An empty listener ends it: none is running when the call returns.
  void SetJobListener(JobListener listener);

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
  absl::StatusOr<std::vector<JobRecord>> ListJobs(const JobListQuery& query);
  // Newest first, at most `limit`, only those created before sequence `before` (0: from the
  // newest), with the last event that they show.
  absl::StatusOr<JobsAsOf> ListJobsAsOf(const JobFilter& filter, int64_t before, int limit);
  absl::StatusOr<JobsAsOf> GetJobAsOf(const std::string& id);
  // QUEUED and RECOVERING jobs, those to start first at the front.
  absl::StatusOr<std::vector<JobRecord>> WaitingJobs();
  // The same without their rows: ten thousand of them in a few milliseconds.
  absl::StatusOr<std::vector<WaitingJob>> WaitingQueue();
  absl::StatusOr<std::vector<JobRecord>> JobsWithWorkers();
  // Unfinished jobs whose deadline has passed, the earliest first, whatever state they are in.
  absl::StatusOr<std::vector<std::string>> OverdueJobs(int64_t now_micros);
  // Kept in memory: costs nothing.
  absl::StatusOr<std::map<JobState, int64_t>> CountJobs();
  absl::StatusOr<int64_t> CountHeldJobs();
  // 1-based; 0 when the job does not wait.
  absl::StatusOr<int64_t> QueuePosition(const JobRecord& job);
  // Of those among `jobs` that wait, by id: one pass over the queue for all of them.
  absl::StatusOr<std::map<std::string, int64_t>> QueuePositions(const std::vector<JobRecord>& jobs);
  absl::StatusOr<std::vector<AttemptRecord>> ListAttempts(const std::string& job_uid);
  absl::StatusOr<std::vector<CheckpointRecord>> ListCheckpoints(const std::string& job_uid);
  // Evenly thinned; the first and the last one are always there. REQUIRES: max_points > 0.
  absl::StatusOr<ThinnedPoints> ListMetricPoints(const std::string& job_uid,
                                                 const PointRange& range);
  // Events after `sequence`, of one job or (empty) of all.
  absl::StatusOr<std::vector<EventRecord>> EventsAfter(int64_t sequence, const std::string& job_id,
                                                       int limit);

  // What the link test of a device measured, by uuid, driver and bus; nothing when it never ran.
  absl::StatusOr<std::optional<MeasuredLink>> FindLink(const std::string& device_key);
  absl::Status SaveLink(const std::string& device_key, const MeasuredLink& link);

  // Forgets the job with everything that belongs to it and tells watchers by a DELETED event, which
  // stays. `may` sees the job inside the transaction; its error is answered and nothing happens.
  // FailedPrecondition INVALID_STATE unless the job is terminal.
  absl::StatusOr<JobRecord> DeleteJob(const std::string& id, const EventRecord& event,
                                      absl::FunctionRef<absl::Status(const JobRecord& job)> may);
  // Terminal jobs that ended before `ended_before_micros`, and those beyond the newest `keep`;
  // those that ended first at the front, at most `limit`.
  absl::StatusOr<std::vector<std::string>> ExpiredJobs(int64_t ended_before_micros, int64_t keep,
                                                       int limit);
  // DELETED events older than that; a watcher that is further behind has to list anew.
  absl::Status PruneDeletedEvents(int64_t before_micros);
  // Watching can go on from here or later.
  int64_t oldest_resumable() const { return events_floor_.load(std::memory_order_acquire); }

  // Set: no waiting job is started until it is cleared; survives restarts.
  absl::Status SetQueuePause(const std::optional<QueuePause>& pause);
  std::optional<QueuePause> queue_pause() const;

  // A consistent copy, while everything goes on; AlreadyExists when `path` does.
  absl::Status BackUp(const std::string& path) const;
  // Reads everything; needs no lock.
  absl::StatusOr<StoreCheck> Check() const;

  // Sets the token's id.
  absl::Status AddToken(TokenRecord& token);
  // Stores when it was used and revoked; nothing else of a token changes.
  absl::Status SaveToken(const TokenRecord& token);
  absl::StatusOr<std::vector<TokenRecord>> ListTokens();
  absl::StatusOr<std::string> TenantOf(const std::string& job_id);

  int64_t last_sequence() const { return last_sequence_.load(std::memory_order_acquire); }
  const std::string& epoch() const { return epoch_; }    // a new one for every new store
  const std::string& secret() const { return secret_; }  // for page tokens
  bool writable() const { return writable_.load(std::memory_order_relaxed); }
  // Tries a write; returns whether the store is writable (again).
  bool ProbeWritable();
  // Request ids older than `age_micros` whose job is gone.
  absl::Status PruneRequestIds(int64_t age_micros);

 private:
  JobStore(std::string path, std::unique_ptr<Database> writer, std::unique_ptr<Database> reader);
  absl::Status LoadMeta();
  absl::Status LoadCounts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void Count(JobState state, int64_t change);
  int64_t CountOf(JobState state) const;
  absl::StatusOr<std::vector<JobRecord>> ListJobsLocked(const JobListQuery& query)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::StatusOr<int64_t> LastSequenceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::StatusOr<JobRecord> GetJobLocked(Database& database, const char* where,
                                         const std::string& key);
  absl::StatusOr<std::optional<JobRecord>> FindRequestLocked(Database& database,
                                                             const std::string& request_id,
                                                             const std::string& request_hash);
  absl::Status WriteChange(const JobRecord& before, JobRecord& job, JobChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void NumberEvents(const JobRecord& job, std::vector<EventRecord>& events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Publishes after a commit, or notes that the disk refused.
  void Committed(const JobRecord& job, const std::vector<EventRecord>& events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status Failed(absl::Status status);

  // Constant after Open and SetListeners.
  const std::string path_;
  std::string epoch_, secret_;
  EventListener on_events_;
  TimingListener on_timing_;

  std::atomic<int64_t> last_sequence_{
      0};  // release after commit: who sees it finds the events in the store
  std::atomic<int64_t> events_floor_{0};  // release after commit, as above
  std::atomic<bool> writable_{true};      // relaxed: a hint, the next write tells
  // By state; relaxed: each is right by itself, the sum may be off by the job that is being moved.
  std::array<std::atomic<int64_t>, kNumJobStates + 1> counts_{};
  mutable base::Mutex pause_mutex_;
  std::optional<QueuePause> pause_ ABSL_GUARDED_BY(pause_mutex_);
  std::atomic<int64_t> read_only_errors_{0}, corrupt_errors_{0}, internal_errors_{0};  // relaxed
  base::Mutex write_mutex_;
  JobListener on_job_ ABSL_GUARDED_BY(write_mutex_);
  std::unique_ptr<Database> writer_ ABSL_GUARDED_BY(write_mutex_);
  base::Mutex read_mutex_;
  std::unique_ptr<Database> reader_ ABSL_GUARDED_BY(read_mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_JOB_STORE_H_
