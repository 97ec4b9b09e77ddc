// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/watch_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/reason.h"
#include "server/jobs/transitions.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/service_guard.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {
namespace {

constexpr int kBatch = 200;  // jobs or events read from the store at a time
// Time to still get the END message out before the client's own deadline cuts the call.
constexpr std::chrono::milliseconds kDeadlineMargin{200};

}  // namespace

WatchStream::WatchStream(RpcContext& rpc, grpc::CallbackServerContext& context)
    : StreamReactor(rpc, "events", IdentityOf(rpc, context)),
      context_(context),
      deadline_(context.deadline()),
      last_write_(SteadyNow()) {}

grpc::ServerWriteReactor<v1::JobEvent>* WatchStream::Start(RpcContext& rpc,
                                                           grpc::CallbackServerContext& context,
                                                           const v1::WatchJobsRequest& request) {
  auto* stream = new WatchStream(rpc, context);
  absl::Status begun = absl::OkStatus();
  if (rpc.streams.fetch_add(1, std::memory_order_relaxed) >= rpc.options.max_streams) {
    rpc.metrics.WatchDropped("limit");
    begun = WithReason(absl::ResourceExhaustedError(absl::StrCat(
                           "too many streams: at most ", rpc.options.max_streams, " may be open")),
                       "TOO_MANY_STREAMS", {{"subject", "streams"}});
  }
  if (begun.ok()) begun = stream->CountForTenant();
  if (begun.ok()) begun = stream->Begin(request);
  base::MutexLock lock(stream->mutex_);
  if (!begun.ok()) {
    stream->over_ = true;
    stream->Finish(ToGrpcStatus(begun));
  } else {
    context.AddInitialMetadata(kOpenKey, "open");
    stream->StartSendInitialMetadata();
    stream->WriteNextLocked();
  }
  return stream;
}

absl::Status WatchStream::Begin(const v1::WatchJobsRequest& request) {
  auto filter = ParseJobFilter(request.filter());
  if (!filter.ok()) {
    return SpecInvalid({{"filter", std::string(filter.status().message())}});
  }
  filter_ = *std::move(filter);
  filter_.tenant = TenantFilterOf(caller_);
  if (!request.job().empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(job_id_, JobIdOf(request.job()));
    BLOCKSWAP_RETURN_IF_ERROR(rpc_.store.GetJob(job_id_).status());
  }
  scope_ = absl::StrCat("watch\n", request.filter(), "\n", job_id_, "\n", filter_.tenant);
  std::optional<int64_t> resume_after;
  if (!request.resume_token().empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(resume_after,
                               rpc_.tokens.ParseResumeToken(request.resume_token(), scope_));
    if (*resume_after > rpc_.store.last_sequence()) {
      return WithReason(absl::OutOfRangeError("the resume token is ahead of the state store"),
                        "RESUME_TOKEN_EXPIRED");
    }
    if (*resume_after < rpc_.store.oldest_resumable()) {
      return WithReason(
          absl::OutOfRangeError(absl::StrCat("the resume token is of event ", *resume_after,
                                             ", the events up to ", rpc_.store.oldest_resumable(),
                                             " are forgotten; list the jobs and watch anew")),
          "RESUME_TOKEN_EXPIRED", {{"oldest", absl::StrCat(rpc_.store.oldest_resumable())}});
    }
  }
  const std::shared_ptr<EventSink> sink = Connect();
  // Events from here on wait in the ring while snapshot and past are written.
  const int64_t stored = rpc_.store.last_sequence();
  live_after_ = rpc_.hub.Subscribe(sink, stored);
  base::MutexLock lock(mutex_);
  snapshot_left_ = request.include_snapshot();
  // Without a token the watch begins now: what was stored before is in the snapshot, though the hub
  // may still have it to deliver.
  cursor_ = resume_after.value_or(std::max(stored, live_after_));
  replays_ = resume_after.has_value();
  return absl::OkStatus();
}

void WatchStream::Receive(const std::vector<SharedEvent>& events) {
  base::MutexLock lock(mutex_);
  if (over_ || end_.has_value()) return;
  for (const SharedEvent& event : events) {
    if (!job_id_.empty() && event->job_id != job_id_) continue;
    if (event->sequence == 0) {
      progress_[event->job_id] = event;
      continue;
    }
    DropOlderProgressLocked(event->job_id, event->state, event->attempt);
    if (ring_.size() < kRing) {
      ring_.push_back(event);
    } else {
      rpc_.metrics.WatchDropped("slow_consumer");
      EndLocked(v1::JobEvent::END_REASON_SLOW_CONSUMER);
      break;
    }
  }
  WriteNextLocked();
}

void WatchStream::DropOlderProgressLocked(const std::string& job_id, JobState state, int attempt) {
  const auto waiting = progress_.find(job_id);
  if (waiting == progress_.end()) return;
  if (waiting->second->state != state || waiting->second->attempt != attempt) {
    progress_.erase(waiting);
  }
}

bool WatchStream::IsStuckLocked(SteadyTime now) {
  if (!is_writing_ || !(over_ || end_.has_value())) return false;
  if (!waits_since_.has_value()) waits_since_ = now;
  return now - *waits_since_ >=
         std::chrono::microseconds(rpc_.bookmark_micros.load(std::memory_order_relaxed));
}

void WatchStream::Tick(SteadyTime now) {
  bool is_stuck = false;
  {
    base::MutexLock lock(mutex_);
    EndIfRevokedLocked();
    is_stuck = IsStuckLocked(now);
    if (!over_ && !is_writing_) TickLocked(now);
  }
  // A client that is there but never reads would keep its stream, and its place among those that
  // may be open, as long as it likes. Without the lock, since this may call OnCancel; the caller's
  // lock on the link keeps the stream until it returns.
  if (is_stuck) context_.TryCancel();
}

void WatchStream::TickLocked(SteadyTime now) {
  if (std::chrono::system_clock::now() + kDeadlineMargin >= deadline_) {
    EndLocked(v1::JobEvent::END_REASON_DEADLINE);
  } else if (now - last_write_ >=
             std::chrono::microseconds(rpc_.bookmark_micros.load(std::memory_order_relaxed))) {
    v1::JobEvent bookmark;
    bookmark.set_type(v1::JobEvent::TYPE_BOOKMARK);
    prepared_.push_back(WithToken(std::move(bookmark), cursor_));
  }
  WriteNextLocked();
}

void WatchStream::ShutDown() {
  base::MutexLock lock(mutex_);
  if (!end_.has_value()) EndLocked(v1::JobEvent::END_REASON_SERVER_SHUTDOWN);
  WriteNextLocked();
}

void WatchStream::EndLocked(v1::JobEvent::EndReason reason) {
  end_ = reason;
  progress_.clear();
  // Who could not follow gets no more; the token says where to go on.
  if (reason != v1::JobEvent::END_REASON_JOB_TERMINAL) {
    ring_.clear();
    prepared_.clear();
    snapshot_left_ = false;
  }
}

v1::JobEvent WatchStream::WithToken(v1::JobEvent event, int64_t sequence) const {
  event.set_resume_token(rpc_.tokens.ResumeToken(sequence, scope_));
  return event;
}

v1::JobEvent WatchStream::EndEvent(v1::JobEvent::EndReason reason) const {
  v1::JobEvent end;
  end.set_type(v1::JobEvent::TYPE_END);
  end.set_end_reason(reason);
  if (!job_id_.empty()) end.set_job(absl::StrCat("jobs/", job_id_));
  return WithToken(std::move(end), cursor_);
}

bool WatchStream::WantsLocked(const EventRecord& event) {
  if (!job_id_.empty() && event.job_id != job_id_) return false;
  const auto covered = covered_.find(event.job_id);
  if (covered != covered_.end() && event.sequence != 0 && event.sequence <= covered->second) {
    return false;
  }
  if (filter_.is_empty()) return true;
  auto job = rpc_.store.GetJob(event.job_id);
  // Whose a job was that is gone, only its fresh event tells.
  if (!job.ok()) {
    return event.type == EventType::kDeleted &&
           (filter_.tenant.empty() || event.tenant == filter_.tenant);
  }
  job->state = event.state;
  return filter_.Matches(*job);
}

std::vector<JobRecord> WatchStream::ReadSnapshotLocked() {
  auto read = job_id_.empty() ? rpc_.store.ListJobsAsOf(filter_, snapshot_before_, kBatch)
                              : rpc_.store.GetJobAsOf(job_id_);
  if (!read.ok()) return {};
  // With a token the client wants the past as it was, event by event.
  if (!replays_ && read->sequence > cursor_) {
    if (snapshot_before_ == 0) {
      // Nothing was told yet: the watch begins where its first jobs were read.
      cursor_ = read->sequence;
    } else {
      for (const JobRecord& job : read->jobs) covered_[job.id] = read->sequence;
      covered_until_ = read->sequence;
    }
  }
  return std::move(read->jobs);
}

void WatchStream::RefillSnapshotLocked() {
  const std::vector<JobRecord> jobs = ReadSnapshotLocked();
  snapshot_left_ = job_id_.empty() && static_cast<int>(jobs.size()) == kBatch;
  if (!jobs.empty()) snapshot_before_ = jobs.back().created_sequence;
  for (const JobRecord& job : jobs) {
    DropOlderProgressLocked(job.id, job.state, job.attempt);
    EventRecord event = MakeEvent(EventType::kSnapshot, job.state_reason, job.state_message);
    event.job_id = job.id;
    event.time_micros = job.update_micros;
    event.state = job.state;
    event.attempt = job.attempt;
    event.progress = job.progress;
    if (job.failure.category != FailureCategory::kNone) event.failure = job.failure;
    prepared_.push_back(ToProto(event));
  }
  if (snapshot_left_) return;
  v1::JobEvent end;
  end.set_type(v1::JobEvent::TYPE_SNAPSHOT_END);
  prepared_.push_back(WithToken(std::move(end), cursor_));
}

void WatchStream::RefillLocked() {
  while (prepared_.empty() && snapshot_left_) RefillSnapshotLocked();
  while (prepared_.empty() && cursor_ < live_after_) {
    const auto events = rpc_.store.EventsAfter(cursor_, job_id_, kBatch);
    if (!events.ok() || events->empty()) {
      cursor_ = live_after_;
      return;
    }
    for (const EventRecord& event : *events) {
      if (event.sequence > live_after_) {
        cursor_ = live_after_;
        return;
      }
      cursor_ = event.sequence;
      if (WantsLocked(event)) prepared_.push_back(WithToken(ToProto(event), event.sequence));
    }
  }
}

std::optional<v1::JobEvent> WatchStream::NextStoredLocked() {
  RefillLocked();
  if (!prepared_.empty()) {
    v1::JobEvent event = std::move(prepared_.front());
    prepared_.pop_front();
    return event;
  }
  while (!ring_.empty()) {
    const SharedEvent event = ring_.front();
    ring_.pop_front();
    // Read from the store already.
    if (event->sequence <= cursor_) continue;
    cursor_ = event->sequence;
    if (cursor_ > covered_until_) covered_.clear();
    if (WantsLocked(*event)) return WithToken(ToProto(*event), event->sequence);
  }
  return std::nullopt;
}

std::optional<v1::JobEvent> WatchStream::NextLocked() {
  if (end_.has_value() && *end_ != v1::JobEvent::END_REASON_JOB_TERMINAL) {
    end_written_ = true;
    return EndEvent(*end_);
  }
  std::optional<v1::JobEvent> stored = NextStoredLocked();
  if (stored.has_value()) return stored;
  if (!progress_.empty()) {
    const SharedEvent event = progress_.begin()->second;
    progress_.erase(progress_.begin());
    if (WantsLocked(*event)) return ToProto(*event);
  }
  if (job_id_.empty()) return std::nullopt;
  const auto job = rpc_.store.GetJob(job_id_);
  // The last events may still be on their way through the hub: the end comes behind them.
  if (absl::IsNotFound(job.status()) || (job.ok() && IsTerminal(job->state))) {
    const auto left = rpc_.store.EventsAfter(cursor_, job_id_, 1);
    if (left.ok() && left->empty()) {
      EndLocked(v1::JobEvent::END_REASON_JOB_TERMINAL);
      end_written_ = true;
      return EndEvent(v1::JobEvent::END_REASON_JOB_TERMINAL);
    }
  }
  return std::nullopt;
}

void WatchStream::WriteNextLocked() {
  if (over_ || is_writing_) return;
  if (end_written_) {
    over_ = true;
    if (end_ == v1::JobEvent::END_REASON_SLOW_CONSUMER) {
      Finish(ToGrpcStatus(WithReason(
          absl::ResourceExhaustedError(
              "the stream was read too slowly; watch again with the last token"),
          "SLOW_CONSUMER", {{"resume_token", rpc_.tokens.ResumeToken(cursor_, scope_)}})));
    } else if (end_ == v1::JobEvent::END_REASON_SERVER_SHUTDOWN) {
      Finish(ToGrpcStatus(
          WithReason(absl::UnavailableError("the server is shutting down"), "SHUTTING_DOWN")));
    } else {
      Finish(grpc::Status::OK);
    }
    return;
  }
  std::optional<v1::JobEvent> next = NextLocked();
  if (!next.has_value()) return;
  writing_ = *std::move(next);
  is_writing_ = true;
  last_write_ = SteadyNow();
  StartWrite(&writing_);
}

}  // namespace blockswap::server
