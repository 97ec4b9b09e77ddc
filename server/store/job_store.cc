// SPDX-License-Identifier: Apache-2.0
#include "server/store/job_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/store/history_rows.h"
#include "server/store/job_rows.h"
#include "server/store/link_rows.h"
#include "server/store/row_text.h"
#include "server/store/schema.h"
#include "server/store/store_file.h"

namespace blockswap::server {
namespace {

constexpr char kQueuePauseKey[] = "queue_pause";

class Timer final {
 public:
  explicit Timer(const JobStore::TimingListener& listener) : listener_(listener) {}
  ~Timer() {
    if (listener_) {
      listener_(true, std::chrono::duration<double>(SteadyNow() - start_).count());
    }
  }

 private:
  const JobStore::TimingListener& listener_;
  SteadyTime start_ = SteadyNow();
};

absl::StatusOr<std::string> MetaValue(Database& database, const char* key,
                                      const std::string& when_absent) {
  auto query = database.Prepare("SELECT value FROM meta WHERE key=?");
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool found, query.BindText(key).Step());
  if (found) return query.Text(0);
  auto insert = database.Prepare("INSERT INTO meta (key, value) VALUES (?,?)");
  BLOCKSWAP_RETURN_IF_ERROR(insert.BindText(key).BindBlob(when_absent).Run());
  return when_absent;
}

absl::Status IllegalTransition(const JobRecord& job, JobState to) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is ", StateName(job.state),
                                                 " and cannot become ", StateName(to))),
      "INVALID_STATE", {{"state", std::string(StateName(job.state))}});
}

}  // namespace

JobStore::JobStore(std::string path, std::unique_ptr<Database> writer,
                   std::unique_ptr<Database> reader)
    : path_(std::move(path)), writer_(std::move(writer)), reader_(std::move(reader)) {}

JobStore::~JobStore() = default;

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path) {
  BLOCKSWAP_RETURN_IF_ERROR(PrepareStoreFile(path));
  BLOCKSWAP_ASSIGN_OR_RETURN(auto writer, Database::Open(path, /*read_only=*/false));
  BLOCKSWAP_RETURN_IF_ERROR(MigrateSchema(*writer, path));
  BLOCKSWAP_ASSIGN_OR_RETURN(auto reader, Database::Open(path, /*read_only=*/true));
  std::unique_ptr<JobStore> store(new JobStore(path, std::move(writer), std::move(reader)));
  BLOCKSWAP_RETURN_IF_ERROR(store->LoadMeta());
  return store;
}

void JobStore::SetListeners(EventListener events, TimingListener timing) {
  on_events_ = std::move(events);
  on_timing_ = std::move(timing);
}

void JobStore::SetJobListener(JobListener listener) {
  base::MutexLock lock(write_mutex_);
  on_job_ = std::move(listener);
}

absl::Status JobStore::LoadMeta() {
  base::MutexLock lock(write_mutex_);
  BLOCKSWAP_ASSIGN_OR_RETURN(epoch_, MetaValue(*writer_, "epoch", RandomUuid()));
  BLOCKSWAP_ASSIGN_OR_RETURN(secret_, MetaValue(*writer_, "secret", RandomBytes(32)));
  auto query = writer_->Prepare("SELECT COALESCE(MAX(sequence), 0) FROM events");
  BLOCKSWAP_RETURN_IF_ERROR(query.Step().status());
  last_sequence_.store(query.Int(0), std::memory_order_release);
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string floor, MetaValue(*writer_, kEventsFloorKey, "0"));
  int64_t oldest = 0;
  if (!absl::SimpleAtoi(floor, &oldest)) {
    return absl::DataLossError(absl::StrCat("state store: ", kEventsFloorKey, " is no number"));
  }
  events_floor_.store(oldest, std::memory_order_release);
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string pause, MetaValue(*writer_, kQueuePauseKey, ""));
  {
    base::MutexLock pause_lock(pause_mutex_);
    pause_ = QueuePauseFromText(pause);
  }
  return LoadCounts();
}

absl::Status JobStore::LoadCounts() {
  auto query = writer_->Prepare("SELECT state, COUNT(*) FROM jobs GROUP BY state");
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    if (query.Int(0) < 1 || query.Int(0) > kNumJobStates) {
      return absl::DataLossError(
          absl::StrCat("state store: a job has state ", query.Int(0), ", which does not exist"));
    }
    Count(static_cast<JobState>(query.Int(0)), query.Int(1));
  }
}

void JobStore::Count(JobState state, int64_t change) {
  counts_[static_cast<size_t>(state)].fetch_add(change, std::memory_order_relaxed);
}

int64_t JobStore::CountOf(JobState state) const {
  return counts_[static_cast<size_t>(state)].load(std::memory_order_relaxed);
}

absl::StatusOr<JobRecord> JobStore::GetJobLocked(Database& database, const char* where,
                                                 const std::string& key) {
  auto query = database.Prepare(absl::StrCat(SelectJobs(), " WHERE ", where, "=?").c_str());
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool found, query.BindText(key).Step());
  if (!found) return JobNotFound(key);
  return ReadJob(query);
}

absl::StatusOr<std::optional<JobRecord>> JobStore::FindRequestLocked(
    Database& database, const std::string& request_id, const std::string& request_hash) {
  std::optional<JobRecord> none;
  if (request_id.empty()) return none;
  auto query = database.Prepare("SELECT hash, job_id FROM request_ids WHERE request_id=?");
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool found, query.BindText(request_id).Step());
  if (!found) return none;
  if (query.Text(0) != request_hash) {
    return WithReason(absl::AlreadyExistsError(absl::StrCat(
                          "request id ", request_id, " was used for another request (job ",
                          query.Text(1), "); use a new id for a new request")),
                      "REQUEST_ID_REUSED", {{"request_id", request_id}, {"job", query.Text(1)}});
  }
  if (query.Text(1).empty()) {
    return WithReason(
        absl::NotFoundError(absl::StrCat("the job that request id ", request_id,
                                         " made was deleted; use a new id for a new request")),
        "JOB_NOT_FOUND", {{"request_id", request_id}});
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord job, GetJobLocked(database, "id", query.Text(1)));
  return std::optional<JobRecord>(std::move(job));
}

absl::StatusOr<JobStore::Created> JobStore::CreateJob(JobRecord job, const std::string& request_id,
                                                      const std::string& request_hash,
                                                      int64_t max_unfinished) {
  base::MutexLock lock(write_mutex_);
  Timer timer(on_timing_);
  auto begun = Transaction::Begin(*writer_);
  if (!begun.ok()) return Failed(begun.status());
  Transaction transaction = *std::move(begun);
  // Looked up inside the transaction: of fifty equal requests at once, one inserts and the others
  // find it.
  BLOCKSWAP_ASSIGN_OR_RETURN(auto earlier, FindRequestLocked(*writer_, request_id, request_hash));
  if (earlier.has_value()) return Created{*std::move(earlier), false};
  if (GetJobLocked(*writer_, "id", job.id).ok()) {
    return WithReason(absl::AlreadyExistsError(absl::StrCat("job ", job.id, " exists")),
                      "JOB_EXISTS", {{"job", job.id}});
  }
  // Exact: only who holds the writer's lock changes the counts.
  int64_t unfinished = 0;
  for (int state = 1; state <= kNumJobStates; ++state) {
    if (!IsTerminal(static_cast<JobState>(state)))
      unfinished += CountOf(static_cast<JobState>(state));
  }
  if (unfinished >= max_unfinished) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "the queue is full: ", unfinished, " unfinished jobs of at most ",
                          max_unfinished, "; wait until some are over, or cancel them")),
                      "QUEUE_FULL", {{"limit", absl::StrCat(max_unfinished)}, {"subject", "jobs"}});
  }
  job.create_micros = job.update_micros = WallMicros();
  job.created_sequence = last_sequence() + 1;
  JobChange change;
  change.events.push_back(MakeEvent(EventType::kCreated, job.state_reason, job.state_message));
  NumberEvents(job, change.events);
  absl::Status written = InsertJob(*writer_, job);
  for (const EventRecord& event : change.events) {
    if (written.ok()) written = InsertEvent(*writer_, event);
  }
  if (written.ok() && !request_id.empty()) {
    auto insert = writer_->Prepare(
        "INSERT INTO request_ids (request_id, hash, job_id, create_micros) VALUES (?,?,?,?)");
    written = insert.BindText(request_id)
                  .BindBlob(request_hash)
                  .BindText(job.id)
                  .Bind(job.create_micros)
                  .Run();
  }
  if (written.ok()) written = transaction.Commit();
  if (!written.ok()) return Failed(std::move(written));
  Count(job.state, 1);
  Committed(job, change.events);
  return Created{std::move(job), true};
}

absl::StatusOr<JobRecord> JobStore::UpdateJob(const std::string& id, Mutation mutate) {
  base::MutexLock lock(write_mutex_);
  Timer timer(on_timing_);
  auto begun = Transaction::Begin(*writer_);
  if (!begun.ok()) return Failed(begun.status());
  Transaction transaction = *std::move(begun);
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord before, GetJobLocked(*writer_, "id", id));
  JobRecord job = before;
  JobChange change;
  BLOCKSWAP_RETURN_IF_ERROR(mutate(job, change));
  const bool changes_state = job.state != before.state;
  if (changes_state && !CanTransition(before.state, job.state)) {
    return IllegalTransition(before, job.state);
  }
  if (changes_state || job.state_reason != before.state_reason) {
    const bool told =
        std::any_of(change.events.begin(), change.events.end(),
                    [](const auto& event) { return event.type == EventType::kStateChanged; });
    if (!told) {
      EventRecord event = MakeEvent(EventType::kStateChanged, job.state_reason, job.state_message);
      if (job.failure.category != FailureCategory::kNone) event.failure = job.failure;
      change.events.push_back(std::move(event));
    }
  }
  absl::Status written = WriteChange(before, job, change);
  if (written.ok()) written = transaction.Commit();
  if (!written.ok()) return Failed(std::move(written));
  Count(before.state, -1);
  Count(job.state, 1);
  Committed(job, change.events);
  return job;
}

absl::Status JobStore::SaveLink(const std::string& device_key, const MeasuredLink& link) {
  base::MutexLock lock(write_mutex_);
  absl::Status written = PutLink(*writer_, device_key, link);
  return written.ok() ? written : Failed(std::move(written));
}

absl::Status JobStore::WriteChange(const JobRecord& before, JobRecord& job, JobChange& change) {
  // The wall clock may have been set back meanwhile: nothing ends before it began.
  if (job.end_micros != 0) {
    job.end_micros = std::max({job.end_micros, job.start_micros, job.create_micros});
  }
  if (change.attempt.has_value() && change.attempt->end_micros != 0) {
    change.attempt->end_micros = std::max(change.attempt->end_micros, change.attempt->start_micros);
  }
  job.update_micros = WallMicros();
  ++job.version;
  BLOCKSWAP_RETURN_IF_ERROR(UpdateJobRow(*writer_, before, job));
  if (change.attempt.has_value()) {
    BLOCKSWAP_RETURN_IF_ERROR(PutAttempt(*writer_, job.uid, *change.attempt));
  }
  if (change.checkpoint.has_value()) {
    BLOCKSWAP_RETURN_IF_ERROR(PutCheckpoint(*writer_, job.uid, *change.checkpoint));
  }
  if (change.drop_checkpoint.has_value()) {
    auto drop = writer_->Prepare("DELETE FROM checkpoints WHERE job_uid=? AND step=?");
    BLOCKSWAP_RETURN_IF_ERROR(drop.BindText(job.uid).Bind(*change.drop_checkpoint).Run());
  }
  if (change.drop_points_after.has_value()) {
    auto drop = writer_->Prepare("DELETE FROM metric_points WHERE job_uid=? AND step>?");
    BLOCKSWAP_RETURN_IF_ERROR(drop.BindText(job.uid).Bind(*change.drop_points_after).Run());
  }
  for (const MetricPoint& point : change.points) {
    BLOCKSWAP_RETURN_IF_ERROR(PutMetricPoint(*writer_, job.uid, point));
  }
  NumberEvents(job, change.events);
  for (const EventRecord& event : change.events) {
    BLOCKSWAP_RETURN_IF_ERROR(InsertEvent(*writer_, event));
  }
  return absl::OkStatus();
}

void JobStore::NumberEvents(const JobRecord& job, std::vector<EventRecord>& events) {
  int64_t next = last_sequence();
  for (EventRecord& event : events) {
    event.sequence = ++next;
    event.job_id = job.id;
    event.tenant = job.tenant;
    event.time_micros = job.update_micros;
    event.state = job.state;
    event.attempt = job.attempt;
  }
}

void JobStore::Committed(const JobRecord& job, const std::vector<EventRecord>& events) {
  writable_.store(true, std::memory_order_relaxed);
  if (on_job_) on_job_(job);
  if (events.empty()) return;
  last_sequence_.store(events.back().sequence, std::memory_order_release);
  if (on_events_) on_events_(events);
}

absl::Status JobStore::SetQueuePause(const std::optional<QueuePause>& pause) {
  base::MutexLock lock(write_mutex_);
  auto put = writer_->Prepare("INSERT OR REPLACE INTO meta (key, value) VALUES (?,?)");
  const std::string text = pause.has_value() ? QueuePauseToText(*pause) : std::string();
  absl::Status written = put.BindText(kQueuePauseKey).BindBlob(text).Run();
  if (!written.ok()) return Failed(std::move(written));
  base::MutexLock pause_lock(pause_mutex_);
  pause_ = pause;
  return absl::OkStatus();
}

std::optional<QueuePause> JobStore::queue_pause() const {
  base::MutexLock lock(pause_mutex_);
  return pause_;
}

JobStore::ErrorCounts JobStore::errors() const {
  return {read_only_errors_.load(std::memory_order_relaxed),
          corrupt_errors_.load(std::memory_order_relaxed),
          internal_errors_.load(std::memory_order_relaxed)};
}

absl::Status JobStore::Failed(absl::Status status) {
  // Everything else is an answer to the caller: a taken id, a full queue.
  if (ReasonOf(status) == "STORE_READ_ONLY") {
    read_only_errors_.fetch_add(1, std::memory_order_relaxed);
  } else if (absl::IsDataLoss(status)) {
    corrupt_errors_.fetch_add(1, std::memory_order_relaxed);
  } else if (absl::IsInternal(status)) {
    internal_errors_.fetch_add(1, std::memory_order_relaxed);
  }
  if (ReasonOf(status) == "STORE_READ_ONLY" &&
      writable_.exchange(false, std::memory_order_relaxed)) {
    LogError("{}", std::string(status.message()));
  }
  return status;
}

bool JobStore::ProbeWritable() {
  base::MutexLock lock(write_mutex_);
  auto begun = Transaction::Begin(*writer_);
  absl::Status status = begun.status();
  if (status.ok()) {
    Transaction transaction = *std::move(begun);
    // Larger than a page, so that a disk with a few bytes left does not pass.
    auto put = writer_->Prepare("INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', ?)");
    status = put.BindBlob(RandomBytes(8192)).Run();
    if (status.ok()) status = transaction.Commit();
  }
  if (status.ok() && !writable_.exchange(true, std::memory_order_relaxed)) {
    LogInfo("state store: writable again");
  }
  if (!status.ok()) Failed(status).IgnoreError();  // only the flag matters here
  return status.ok();
}

absl::Status JobStore::PruneRequestIds(int64_t age_micros) {
  base::MutexLock lock(write_mutex_);
  auto prune = writer_->Prepare(
      "DELETE FROM request_ids WHERE create_micros<? AND NOT EXISTS "
      "(SELECT 1 FROM jobs WHERE jobs.id=request_ids.job_id)");
  absl::Status status = prune.Bind(WallMicros() - age_micros).Run();
  return status.ok() ? status : Failed(std::move(status));
}

}  // namespace blockswap::server
