// SPDX-License-Identifier: Apache-2.0
// One StreamJobLogs call: chunks of an attempt's log by byte offset, then what is appended.
#ifndef BLOCKSWAP_SERVER_RPC_LOG_STREAM_H_
#define BLOCKSWAP_SERVER_RPC_LOG_STREAM_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "blockswap/v1/training.grpc.pb.h"
#include "offload/base/mutex.h"
#include "server/events/event_hub.h"
#include "server/rpc/stream_reactor.h"
#include "server/rpc/training_service.h"
#include "server/supervisor/attempt_log.h"

namespace blockswap::server {

// Deletes itself when the call is over. Thread safety: safe.
class LogStream final : public StreamReactor<v1::LogChunk> {
 public:
  static grpc::ServerWriteReactor<v1::LogChunk>* Start(RpcContext& rpc, const Identity& caller,
                                                       const v1::StreamJobLogsRequest& request);

 private:
  LogStream(RpcContext& rpc, const Identity& caller);
  absl::Status Begin(const v1::StreamJobLogsRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive(const std::vector<SharedEvent>&) override {}
  void Tick(SteadyTime now) override;
  void ShutDown() override;
  // Where the stream begins, once the log is there.
  absl::Status PlaceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteNextLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills the next chunk; false when there is nothing to tell.
  bool ReadLocked(bool is_over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // At the end of the log: another attempt follows, the job is over, or nothing yet.
  void AtEndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::string job_id_ ABSL_GUARDED_BY(mutex_), output_directory_ ABSL_GUARDED_BY(mutex_);
  bool follows_ ABSL_GUARDED_BY(mutex_) = false;
  bool all_attempts_ ABSL_GUARDED_BY(mutex_) =
      false;  // none was named: later ones are followed, too
  int attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::StreamJobLogsRequest request_ ABSL_GUARDED_BY(mutex_);
  LineLevel min_level_ ABSL_GUARDED_BY(mutex_) = LineLevel::kDebug;
  std::unique_ptr<AttemptLogReader> log_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LevelFilter> filter_ ABSL_GUARDED_BY(mutex_);
  bool is_placed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t offset_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::LogChunk writing_ ABSL_GUARDED_BY(mutex_);
  bool saw_terminal_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::JobEvent::EndReason> end_ ABSL_GUARDED_BY(mutex_);
  bool end_written_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_LOG_STREAM_H_
