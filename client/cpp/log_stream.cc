// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/errors.h"
#include "client/cpp/server_client.h"

namespace blockswap::client {

absl::Status ServerClient::StreamLogsOnce(v1::StreamJobLogsRequest* request,
                                          const StreamOptions& options,
                                          const std::function<bool(const v1::LogChunk&)>& on_chunk,
                                          ResumeBackoff* backoff, bool* finished) {
  grpc::ClientContext context;
  if (options.deadline != absl::InfiniteFuture())
    context.set_deadline(absl::ToChronoTime(options.deadline));
  if (!Register(&context)) return absl::CancelledError("cancelled");
  const std::unique_ptr<grpc::ClientReader<v1::LogChunk>> reader =
      training_->StreamJobLogs(&context, *request);
  v1::LogChunk chunk;
  while (reader->Read(&chunk)) {
    backoff->Reset();
    if (!chunk.text().empty()) {
      request->set_attempt(chunk.attempt());
      request->set_offset(chunk.offset() + static_cast<int64_t>(chunk.text().size()));
    }
    if (chunk.end() != v1::JobEvent::END_REASON_UNSPECIFIED) {
      *finished = !request->follow() || chunk.end() == v1::JobEvent::END_REASON_JOB_TERMINAL;
    }
    if (!chunk.text().empty() && !on_chunk(chunk)) {
      *finished = true;
      context.TryCancel();
      break;
    }
  }
  const absl::Status status = ToAbslStatus(reader->Finish());
  Unregister(&context);
  return *finished ? absl::OkStatus() : status;
}

absl::Status ServerClient::StreamJobLogs(v1::StreamJobLogsRequest request,
                                         const StreamOptions& options,
                                         const std::function<bool(const v1::LogChunk&)>& on_chunk) {
  ResumeBackoff backoff(options);
  while (true) {
    bool finished = false;
    absl::Status status = StreamLogsOnce(&request, options, on_chunk, &backoff, &finished);
    if (finished) return absl::OkStatus();
    status = Resume(status, &backoff);
    if (!status.ok()) return status;
  }
}

}  // namespace blockswap::client
