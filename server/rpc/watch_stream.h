// SPDX-License-Identifier: Apache-2.0
// One WatchJobs call: snapshot, replay from the store, then live events, each in its order and
// without gaps.
#ifndef BLOCKSWAP_SERVER_RPC_WATCH_STREAM_H_
#define BLOCKSWAP_SERVER_RPC_WATCH_STREAM_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "blockswap/v1/training.grpc.pb.h"
#include "offload/base/mutex.h"
#include "server/events/event_hub.h"
#include "server/jobs/job_filter.h"
#include "server/rpc/stream_reactor.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {

// Deletes itself when the call is over. Thread safety: safe; called by gRPC and by the hub.
// Invariants: (1) one write at a time; (2) at most kRing stored events wait: then the stream ends
// with SLOW_CONSUMER; (3) END is the last message of every stream that the server ends, unless the
// client takes nothing for the time of a bookmark.
class WatchStream final : public StreamReactor<v1::JobEvent> {
 public:
  static constexpr size_t kRing = 1024;
  // In the metadata that comes before the first event: the watch is subscribed.
  static constexpr char kOpenKey[] = "blockswap-watch";

  static grpc::ServerWriteReactor<v1::JobEvent>* Start(RpcContext& rpc,
                                                       grpc::CallbackServerContext& context,
                                                       const v1::WatchJobsRequest& request);

 private:
  WatchStream(RpcContext& rpc, grpc::CallbackServerContext& context);
  absl::Status Begin(const v1::WatchJobsRequest& request);

  void Receive(const std::vector<SharedEvent>& events) override;
  void Tick(SteadyTime now) override;
  void ShutDown() override;
  void WriteNextLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<v1::JobEvent> NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<v1::JobEvent> NextStoredLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // More snapshots, then more of the past, as long as there is any.
  void RefillLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefillSnapshotLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next jobs of the snapshot; notes which events they show already.
  std::vector<JobRecord> ReadSnapshotLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Progress waits behind what is stored: of a state or attempt that was told to be over it may not
  // follow.
  void DropOlderProgressLocked(const std::string& job_id, JobState state, int attempt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WantsLocked(const EventRecord& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobEvent WithToken(v1::JobEvent event, int64_t sequence) const;
  v1::JobEvent EndEvent(v1::JobEvent::EndReason reason) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(v1::JobEvent::EndReason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void TickLocked(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether nothing can be written any more but what the client does not take.
  bool IsStuckLocked(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext& context_;  // gRPC's, until OnDone
  const std::chrono::system_clock::time_point deadline_;
  // Constant after Begin.
  JobFilter filter_;
  std::string job_id_, scope_;
  int64_t live_after_ = 0;  // the hub delivers what comes after this

  std::deque<v1::JobEvent> prepared_ ABSL_GUARDED_BY(mutex_);  // of snapshot and replay
  std::deque<SharedEvent> ring_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, SharedEvent> progress_ ABSL_GUARDED_BY(mutex_);
  v1::JobEvent writing_ ABSL_GUARDED_BY(mutex_);
  bool snapshot_left_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t snapshot_before_ ABSL_GUARDED_BY(mutex_) = 0;
  bool replays_ ABSL_GUARDED_BY(mutex_) = false;  // goes on from a token
  // Jobs that a later part of the snapshot shows newer than the watch: the last event that is in it.
  std::map<std::string, int64_t> covered_ ABSL_GUARDED_BY(mutex_);
  int64_t covered_until_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t cursor_ ABSL_GUARDED_BY(mutex_) =
      0;  // every wanted event up to here was written or prepared
  std::optional<v1::JobEvent::EndReason> end_ ABSL_GUARDED_BY(mutex_);
  bool end_written_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime last_write_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyTime> waits_since_ ABSL_GUARDED_BY(mutex_);  // for END to be taken
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_WATCH_STREAM_H_
