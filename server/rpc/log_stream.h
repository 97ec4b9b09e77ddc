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
#include "server/base/unique_fd.h"
#include "server/events/event_hub.h"
#include "server/rpc/stream_reactor.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {

// Byte offset at which the last `lines` lines of an open file begin.
int64_t OffsetOfLastLines(int fd, int64_t lines);

// Deletes itself when the call is over. Thread safety: safe.
class LogStream final : public StreamReactor<v1::LogChunk> {
 public:
  static grpc::ServerWriteReactor<v1::LogChunk>* Start(RpcContext& rpc,
                                                       const v1::StreamJobLogsRequest& request);

 private:
  explicit LogStream(RpcContext& rpc);
  absl::Status Begin(const v1::StreamJobLogsRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive(const std::vector<SharedEvent>&) override {}
  void Tick(SteadyTime now) override;
  void ShutDown() override;
  bool OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteNextLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // At the end of the log: another attempt follows, the job is over, or nothing yet.
  void AtEndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::string job_id_ ABSL_GUARDED_BY(mutex_), output_directory_ ABSL_GUARDED_BY(mutex_);
  bool follows_ ABSL_GUARDED_BY(mutex_) = false;
  bool all_attempts_ ABSL_GUARDED_BY(mutex_) =
      false;  // none was named: later ones are followed, too
  int attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  UniqueFd file_ ABSL_GUARDED_BY(mutex_);
  int64_t offset_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t tail_lines_ ABSL_GUARDED_BY(mutex_) = -1;
  v1::LogChunk writing_ ABSL_GUARDED_BY(mutex_);
  bool saw_terminal_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::JobEvent::EndReason> end_ ABSL_GUARDED_BY(mutex_);
  bool end_written_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_LOG_STREAM_H_
