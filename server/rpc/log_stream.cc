// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/log_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/jobs/transitions.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"
#include "server/supervisor/process_launcher.h"

namespace blockswap::server {
namespace {

constexpr size_t kChunk = 64 << 10;

}  // namespace

int64_t OffsetOfLastLines(int fd, int64_t lines) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0 || lines <= 0) return facts.st_size;
  std::string block(kChunk, '\0');
  int64_t end = facts.st_size, found = 0;
  bool is_last_byte = true;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(kChunk));
    const ssize_t got = ::pread(fd, block.data(), static_cast<size_t>(end - begin), begin);
    if (got <= 0) return 0;
    for (int64_t i = got - 1; i >= 0; --i) {
      // The newline that ends the file ends the last line, it does not begin another.
      if (block[static_cast<size_t>(i)] == '\n' && !is_last_byte && ++found == lines)
        return begin + i + 1;
      is_last_byte = false;
    }
    end = begin;
  }
  return 0;
}

LogStream::LogStream(RpcContext& rpc) : StreamReactor(rpc, "logs") {}

grpc::ServerWriteReactor<v1::LogChunk>* LogStream::Start(RpcContext& rpc,
                                                         const v1::StreamJobLogsRequest& request) {
  auto* stream = new LogStream(rpc);
  const bool too_many =
      rpc.streams.fetch_add(1, std::memory_order_relaxed) >= rpc.options.max_streams;
  const std::shared_ptr<EventSink> sink = stream->Connect();
  base::MutexLock lock(stream->mutex_);
  absl::Status begun =
      too_many ? WithReason(absl::ResourceExhaustedError("too many streams are open"), "QUEUE_FULL")
               : stream->Begin(request);
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
  if (request.attempt() < 0 || request.attempt() > std::max(job.attempt, 1)) {
    return absl::InvalidArgumentError(absl::StrCat("attempt: ", request.attempt(),
                                                   " is not one of the ", job.attempt,
                                                   " attempts of job ", job_id_));
  }
  if (request.offset() < 0 || request.tail_lines() < 0) {
    return absl::InvalidArgumentError("from: must not be negative");
  }
  output_directory_ = job.output_directory;
  follows_ = request.follow();
  all_attempts_ = request.attempt() == 0;
  attempt_ = request.attempt() == 0 ? std::max(job.attempt, 1) : request.attempt();
  offset_ = request.offset();
  if (request.from_case() == v1::StreamJobLogsRequest::kTailLines)
    tail_lines_ = request.tail_lines();
  return absl::OkStatus();
}

bool LogStream::OpenLocked() {
  if (file_.valid()) return true;
  file_ = UniqueFd(::open(AttemptLogPath(output_directory_, attempt_).c_str(),
                          O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file_.valid()) return false;
  if (tail_lines_ >= 0) offset_ = OffsetOfLastLines(file_.get(), tail_lines_);
  tail_lines_ = -1;
  return true;
}

std::string LogStream::ReadLocked() {
  if (!OpenLocked()) return std::string();
  std::string text(kChunk, '\0');
  const ssize_t got = ::pread(file_.get(), text.data(), text.size(), offset_);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  // Whole lines where possible; a line longer than a chunk is cut.
  const size_t last_newline = text.rfind('\n');
  if (text.size() == kChunk && last_newline != std::string::npos) text.resize(last_newline + 1);
  return text;
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
      offset_ = 0;
      file_.Reset();
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
  if (!end_.has_value()) *writing_.mutable_text() = ReadLocked();
  if (writing_.text().empty() && !end_.has_value()) {
    const bool was_terminal = saw_terminal_;
    AtEndLocked();
    // A job that is over needs no tick: read the rest right away.
    if (!end_.has_value() && saw_terminal_ && !was_terminal) {
      *writing_.mutable_text() = ReadLocked();
      if (writing_.text().empty()) AtEndLocked();
    }
  }
  if (writing_.text().empty() && !end_.has_value()) return;
  writing_.set_attempt(attempt_);
  writing_.set_offset(offset_);
  offset_ += static_cast<int64_t>(writing_.text().size());
  if (writing_.text().empty()) {
    writing_.set_end(*end_);
    end_written_ = true;
  }
  is_writing_ = true;
  StartWrite(&writing_);
}

void LogStream::Tick(SteadyTime) {
  base::MutexLock lock(mutex_);
  WriteNextLocked();
}

void LogStream::ShutDown() {
  base::MutexLock lock(mutex_);
  if (!end_.has_value()) end_ = v1::JobEvent::END_REASON_SERVER_SHUTDOWN;
  WriteNextLocked();
}

}  // namespace blockswap::server
