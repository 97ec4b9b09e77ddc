// SPDX-License-Identifier: Apache-2.0
// One WatchJobs call as JSON, read with patience instead of for ever.
#ifndef BLOCKSWAP_SERVER_RPC_JSON_WATCH_H_
#define BLOCKSWAP_SERVER_RPC_JSON_WATCH_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "blockswap/v1/training.grpc.pb.h"
#include "server/rpc/json_gateway.h"

namespace blockswap::server {

// The call runs on a queue of its own, so that its reader can do something else meanwhile. Thread
// safety: one thread.
class QueuedWatch final : public JsonWatch {
 public:
  ~QueuedWatch() override;

  // Waits until the server has subscribed the watch, or refused it: no event after that is missed.
  absl::Status Start(v1::TrainingService::Stub& stub, const HttpRequest& http,
                     const v1::WatchJobsRequest& request);
  WatchItem Next(std::chrono::milliseconds patience) override;

 private:
  enum class Outcome { kDone, kFailed, kNothing };
  Outcome Wait(std::optional<std::chrono::milliseconds> patience);
  // Cancels the call when the time is over.
  Outcome WaitOrCancel();
  grpc::Status Finish();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::JobEvent>> reader_;
  v1::JobEvent event_;
  bool is_reading_ = false, is_finished_ = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_JSON_WATCH_H_
