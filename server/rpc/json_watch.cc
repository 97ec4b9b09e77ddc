// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/json_watch.h"

#include "absl/strings/escaping.h"
#include "server/rpc/json_answer.h"
#include "server/rpc/json_conversion.h"
#include "server/rpc/watch_stream.h"

namespace blockswap::server {
namespace {

constexpr std::chrono::seconds kStartTimeout{10};

}  // namespace

absl::Status QueuedWatch::Start(v1::TrainingService::Stub& stub, const HttpRequest& http,
                                const v1::WatchJobsRequest& request) {
  PassOn(http, context_);
  reader_ = stub.AsyncWatchJobs(&context_, request, &queue_, nullptr);
  WaitOrCancel();
  reader_->ReadInitialMetadata(nullptr);
  const bool answered = WaitOrCancel() == Outcome::kDone;
  if (answered && context_.GetServerInitialMetadata().count(WatchStream::kOpenKey) != 0) {
    return absl::OkStatus();
  }
  const absl::Status status = FromGrpcStatus(Finish());
  return status.ok() ? absl::UnavailableError("the watch ended before it began") : status;
}

QueuedWatch::~QueuedWatch() {
  if (reader_ != nullptr) {
    context_.TryCancel();
    if (is_reading_) Wait(std::nullopt);
    if (!is_finished_) Finish();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

WatchItem QueuedWatch::Next(std::chrono::milliseconds patience) {
  WatchItem item;
  if (is_finished_) {
    item.kind = WatchItem::Kind::kEnd;
    return item;
  }
  if (!is_reading_) reader_->Read(&event_, nullptr);
  is_reading_ = true;
  const Outcome outcome = Wait(patience);
  if (outcome == Outcome::kNothing) return item;
  is_reading_ = false;
  if (outcome == Outcome::kFailed) {
    const absl::Status status = FromGrpcStatus(Finish());
    item.kind = WatchItem::Kind::kEnd;
    item.json = status.ok() ? "{}" : JsonErrorText(status);
    return item;
  }
  item.id = absl::WebSafeBase64Escape(event_.resume_token());
  if (event_.type() == v1::JobEvent::TYPE_BOOKMARK) {
    item.kind = WatchItem::Kind::kBookmark;
    return item;
  }
  item.kind = WatchItem::Kind::kEvent;
  event_.clear_resume_token();  // it is the id
  item.json = ToJson(event_);
  return item;
}

QueuedWatch::Outcome QueuedWatch::Wait(std::optional<std::chrono::milliseconds> patience) {
  void* tag = nullptr;
  bool ok = false;
  if (!patience.has_value())
    return queue_.Next(&tag, &ok) && ok ? Outcome::kDone : Outcome::kFailed;
  const auto deadline = std::chrono::system_clock::now() + *patience;
  const auto status = queue_.AsyncNext(&tag, &ok, deadline);
  if (status == grpc::CompletionQueue::TIMEOUT) return Outcome::kNothing;
  return status == grpc::CompletionQueue::GOT_EVENT && ok ? Outcome::kDone : Outcome::kFailed;
}

QueuedWatch::Outcome QueuedWatch::WaitOrCancel() {
  const Outcome outcome = Wait(kStartTimeout);
  if (outcome != Outcome::kNothing) return outcome;
  context_.TryCancel();
  return Wait(std::nullopt);
}

grpc::Status QueuedWatch::Finish() {
  grpc::Status status;
  reader_->Finish(&status, nullptr);
  Wait(std::nullopt);
  is_finished_ = true;
  return status;
}

}  // namespace blockswap::server
