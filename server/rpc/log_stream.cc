// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/log_stream.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "proto/text/utf8.h"
#include "server/base/reason.h"
#include "server/jobs/transitions.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {
namespace {

using google::protobuf::util::TimeUtil;

constexpr size_t kChunk = 64 << 10;

bool IsValid(const google::protobuf::Timestamp& time) {
  return time.seconds() >= TimeUtil::kTimestampMinSeconds &&
         time.seconds() <= TimeUtil::kTimestampMaxSeconds && time.nanos() >= 0 &&
         time.nanos() < 1000000000;
}

}  // namespace

LogStream::LogStream(RpcContext& rpc, const Identity& caller)
    : StreamReactor(rpc, "logs", caller) {}

grpc::ServerWriteReactor<v1::LogChunk>* LogStream::Start(RpcContext& rpc, const Identity& caller,
                                                         const v1::StreamJobLogsRequest& request) {
  auto* stream = new LogStream(rpc, caller);
  const bool too_many =
      rpc.streams.fetch_add(1, std::memory_order_relaxed) >= rpc.options.max_streams;
  const std::shared_ptr<EventSink> sink = stream->Connect();
  base::MutexLock lock(stream->mutex_);
  absl::Status begun =
      too_many
          ? WithReason(absl::ResourceExhaustedError(absl::StrCat(
                           "too many streams: at most ", rpc.options.max_streams, " may be open")),
                       "TOO_MANY_STREAMS", {{"subject", "streams"}})
          : stream->CountForTenant();
  if (begun.ok()) begun = stream->Begin(request);
  if (!begun.ok()) {
    stream->over_ = true;
    stream->Finish(ToGrpcStatus(begun));
    return stream;
  }
  rpc.hub.Subscribe(sink, 0);
  stream->WriteNextLocked();
  return stream;
}

absl::Status LogStream::Begin(const v1::StreamJobLogsRequest& request) {
  BLOCKSWAP_ASSIGN_OR_RETURN(job_id_, JobIdOf(request.name()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.GetJob(job_id_));
  std::vector<Violation> violations;
  if (request.attempt() < 0 || request.attempt() > std::max(job.attempt, 1)) {
    violations.push_back({"attempt", absl::StrCat(request.attempt(), " is not one of the ",
                                                  job.attempt, " attempts of job ", job_id_)});
  }
  if (request.offset() < 0) violations.push_back({"offset", "must not be negative"});
  if (request.tail_lines() < 0) violations.push_back({"tail_lines", "must not be negative"});
  if (request.has_time() && !IsValid(request.time())) {
    violations.push_back({"time", "is no valid time"});
  }
  if (!violations.empty()) return SpecInvalid(violations);
  output_directory_ = job.output_directory;
  request_ = request;
  min_level_ = request.min_level() == v1::LOG_LEVEL_UNSPECIFIED
                   ? LineLevel::kDebug
                   : static_cast<LineLevel>(request.min_level());
  follows_ = request.follow();
  all_attempts_ = request.attempt() == 0;
  attempt_ = request.attempt() == 0 ? std::max(job.attempt, 1) : request.attempt();
  log_ = std::make_unique<AttemptLogReader>(output_directory_, attempt_);
  return PlaceLocked();
}

absl::Status LogStream::PlaceLocked() {
  if (is_placed_ || !log_->exists()) return absl::OkStatus();
  is_placed_ = true;
  bool starts_inside = false;
  if (request_.from_case() == v1::StreamJobLogsRequest::kTailLines) {
    offset_ = log_->OffsetOfLastLines(request_.tail_lines(), min_level_);
    starts_inside = offset_ > log_->begin();
  } else if (request_.from_case() == v1::StreamJobLogsRequest::kTime) {
    offset_ = log_->OffsetOfTime(TimeUtil::TimestampToMicroseconds(request_.time()));
  } else {
    offset_ = request_.offset();
    starts_inside = offset_ > log_->begin();
  }
  filter_ = std::make_unique<LevelFilter>(min_level_, starts_inside);
  const int64_t end = log_->end();
  if (offset_ <= end) return absl::OkStatus();
  return WithReason(
      absl::OutOfRangeError(absl::StrCat("offset ", offset_, " is behind the end of the log of ",
                                         "attempt ", attempt_, ", which has ", end,
                                         " bytes so far")),
      "OFFSET_OUT_OF_RANGE",
      {{"end", absl::StrCat(end)}, {"job", job_id_}, {"attempt_number", absl::StrCat(attempt_)}});
}

bool LogStream::ReadLocked(bool is_over) {
  const absl::Status placed = PlaceLocked();
  if (!placed.ok() || !is_placed_) return false;
  // Blocks without a line that passes are gone through at once.
  while (true) {
    const std::string text = log_->Read(&offset_, kChunk, is_over);
    if (text.empty()) return false;
    std::string passed;
    int64_t passed_at = offset_;
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t newline = text.find('\n', begin);
      const size_t end = newline == std::string::npos ? text.size() : newline + 1;
      const absl::string_view line = absl::string_view(text).substr(begin, end - begin);
      if (filter_->Passes(line)) {
        if (passed.empty()) passed_at = offset_ + static_cast<int64_t>(begin);
        passed.append(line.data(), line.size());
      } else if (!passed.empty()) {
        break;  // a chunk's text has no gaps
      }
      begin = end;
    }
    offset_ += static_cast<int64_t>(begin);
    if (passed.empty()) continue;
    writing_.set_offset(passed_at);
    // What an earlier server wrote may hold any bytes.
    *writing_.mutable_text() = proto::ToValidUtf8(passed);
    writing_.set_next_offset(offset_);
    return true;
  }
}

void LogStream::AtEndLocked() {
  if (!follows_) {
    end_ = v1::JobEvent::END_REASON_JOB_TERMINAL;
    return;
  }
  const auto job = rpc_.store.GetJob(job_id_);
  if (!job.ok()) return;
  if (job->attempt > attempt_) {
    if (all_attempts_) {
      ++attempt_;
      // From its beginning: "the last lines" and offsets were those of the first one.
      request_.clear_from();
      is_placed_ = false;
      offset_ = 0;
      log_ = std::make_unique<AttemptLogReader>(output_directory_, attempt_);
    } else {
      end_ = v1::JobEvent::END_REASON_JOB_TERMINAL;
    }
  } else if (IsTerminal(job->state)) {
    // The state is set after the last output was written, but this read came before: look once
    // more.
    if (std::exchange(saw_terminal_, true)) end_ = v1::JobEvent::END_REASON_JOB_TERMINAL;
  }
}

void LogStream::WriteNextLocked() {
  if (over_ || is_writing_) return;
  if (end_written_) {
    over_ = true;
    Finish(end_ == v1::JobEvent::END_REASON_SERVER_SHUTDOWN
               ? ToGrpcStatus(WithReason(absl::UnavailableError("the server is shutting down"),
                                         "SHUTTING_DOWN"))
               : grpc::Status::OK);
    return;
  }
  writing_.Clear();
  bool has_text = !end_.has_value() && ReadLocked(!follows_ || saw_terminal_);
  if (!has_text && !end_.has_value()) {
    const bool was_terminal = saw_terminal_;
    AtEndLocked();
    // A job that is over needs no tick: read the rest right away.
    if (!end_.has_value() && saw_terminal_ && !was_terminal) {
      has_text = ReadLocked(/*is_over=*/true);
      if (!has_text) AtEndLocked();
    }
  }
  if (!has_text && !end_.has_value()) return;
  writing_.set_attempt(attempt_);
  if (!has_text) {
    writing_.set_offset(offset_);
    writing_.set_next_offset(offset_);
    writing_.set_end(*end_);
    end_written_ = true;
  }
  is_writing_ = true;
  StartWrite(&writing_);
}

void LogStream::Tick(SteadyTime) {
  base::MutexLock lock(mutex_);
  if (EndIfRevokedLocked()) return;
  WriteNextLocked();
}

void LogStream::ShutDown() {
  base::MutexLock lock(mutex_);
  if (!end_.has_value()) end_ = v1::JobEvent::END_REASON_SERVER_SHUTDOWN;
  WriteNextLocked();
}

}  // namespace blockswap::server
