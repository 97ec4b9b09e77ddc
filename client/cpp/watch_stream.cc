// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/errors.h"
#include "client/cpp/server_client.h"

namespace blockswap::client {

absl::Status ServerClient::WatchOnce(v1::WatchJobsRequest* request, const StreamOptions& options,
                                     const std::function<bool(const v1::JobEvent&)>& on_event,
                                     ResumeBackoff* backoff, bool* finished) {
  grpc::ClientContext context;
  if (options.deadline != absl::InfiniteFuture())
    context.set_deadline(absl::ToChronoTime(options.deadline));
  if (!Register(&context)) return absl::CancelledError("cancelled");
  const std::unique_ptr<grpc::ClientReader<v1::JobEvent>> reader =
      training_->WatchJobs(&context, *request);
  v1::JobEvent event;
  while (reader->Read(&event)) {
    backoff->Reset();
    if (!event.resume_token().empty()) {
      request->set_resume_token(event.resume_token());
      request->set_include_snapshot(false);
    }
    if (event.type() == v1::JobEvent::TYPE_BOOKMARK) continue;
    if (event.type() == v1::JobEvent::TYPE_END) {
      *finished = event.end_reason() == v1::JobEvent::END_REASON_JOB_TERMINAL;
      continue;
    }
    if (!on_event(event)) {
      *finished = true;
      context.TryCancel();
      break;
    }
  }
  const absl::Status status = ToAbslStatus(reader->Finish());
  Unregister(&context);
  return *finished ? absl::OkStatus() : status;
}

absl::Status ServerClient::WatchJobs(v1::WatchJobsRequest request, const StreamOptions& options,
                                     const std::function<bool(const v1::JobEvent&)>& on_event) {
  ResumeBackoff backoff(options);
  while (true) {
    bool finished = false;
    absl::Status status = WatchOnce(&request, options, on_event, &backoff, &finished);
    if (finished) return absl::OkStatus();
    if (DetailsOf(status).reason == "RESUME_TOKEN_EXPIRED" && !request.resume_token().empty()) {
      // What happened in between is lost, what is true now is not.
      request.clear_resume_token();
      request.set_include_snapshot(true);
      status = absl::OkStatus();
    }
    status = Resume(status, &backoff);
    if (!status.ok()) return status;
  }
}

}  // namespace blockswap::client
