// SPDX-License-Identifier: Apache-2.0
// TrainingService: jobs, their events, logs and figures.
#ifndef BLOCKSWAP_SERVER_RPC_TRAINING_SERVICE_H_
#define BLOCKSWAP_SERVER_RPC_TRAINING_SERVICE_H_

#include <atomic>
#include <functional>
#include <string>

#include "blockswap/v1/training.grpc.pb.h"
#include "server/events/event_hub.h"
#include "server/metrics/server_metrics.h"
#include "server/rpc/spec_checker.h"
#include "server/rpc/tokens.h"
#include "server/rpc/work_pool.h"
#include "server/scheduler/scheduler.h"
#include "server/store/job_store.h"

namespace blockswap::server {

// InvalidArgument SPEC_INVALID: too many.
absl::Status CheckLabels(const v1::JobSpec& spec);

struct TrainingServiceOptions {
  std::string outputs_root;
  int64_t max_unfinished_jobs = 10000;
  int64_t max_spec_bytes = 256 << 10;
  int max_streams = 256;
  std::chrono::milliseconds bookmark_interval{15000};
};

// What the service and its streams share. Everything here is thread safe and outlives the service.
struct RpcContext {
  JobStore& store;
  EventHub& hub;
  Scheduler& scheduler;
  DeviceTable& devices;
  ServerMetrics& metrics;
  SpecChecker& checker;
  const TokenMaker tokens;
  TrainingServiceOptions options;
  std::atomic<bool> accepting{true};  // relaxed: false once the server is on its way down
  std::atomic<int> streams{0};        // relaxed: a limit, not a guard
};

// Thread safety: safe. No handler throws: gRPC 1.51 would swallow it.
class TrainingServiceImpl final : public v1::TrainingService::CallbackService {
 public:
  using Unary = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  explicit TrainingServiceImpl(RpcContext& context);

  Unary* CreateJob(Context*, const v1::CreateJobRequest*, v1::Job*) override;
  Unary* PlanJob(Context*, const v1::PlanJobRequest*, v1::PlanJobResponse*) override;
  Unary* GetJob(Context*, const v1::GetJobRequest*, v1::Job*) override;
  Unary* ListJobs(Context*, const v1::ListJobsRequest*, v1::ListJobsResponse*) override;
  Unary* UpdateJob(Context*, const v1::UpdateJobRequest*, v1::Job*) override;
  Unary* CancelJob(Context*, const v1::CancelJobRequest*, v1::Job*) override;
  Unary* SuspendJob(Context*, const v1::SuspendJobRequest*, v1::Job*) override;
  Unary* ResumeJob(Context*, const v1::ResumeJobRequest*, v1::Job*) override;
  Unary* RetryJob(Context*, const v1::RetryJobRequest*, v1::Job*) override;
  Unary* CheckpointJob(Context*, const v1::CheckpointJobRequest*, v1::Job*) override;
  Unary* SampleJob(Context*, const v1::SampleJobRequest*, v1::Job*) override;
  Unary* DeleteJob(Context*, const v1::DeleteJobRequest*, google::protobuf::Empty*) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJobs(Context*, const v1::WatchJobsRequest*) override;
  grpc::ServerWriteReactor<v1::LogChunk>* StreamJobLogs(Context*,
                                                        const v1::StreamJobLogsRequest*) override;
  Unary* ListJobEvents(Context*, const v1::ListJobEventsRequest*,
                       v1::ListJobEventsResponse*) override;
  Unary* ListAttempts(Context*, const v1::ListAttemptsRequest*, v1::ListAttemptsResponse*) override;
  Unary* ListCheckpoints(Context*, const v1::ListCheckpointsRequest*,
                         v1::ListCheckpointsResponse*) override;
  Unary* GetCheckpoint(Context*, const v1::GetCheckpointRequest*, v1::Checkpoint*) override;
  Unary* DeleteCheckpoint(Context*, const v1::DeleteCheckpointRequest*,
                          google::protobuf::Empty*) override;
  Unary* ListMetricPoints(Context*, const v1::ListMetricPointsRequest*,
                          v1::ListMetricPointsResponse*) override;

 private:
  // Fills `response` and returns how the call ends; runs on a pool thread.
  absl::Status DoCreateJob(const v1::CreateJobRequest& request, v1::Job* response);
  absl::Status DoPlanJob(const v1::PlanJobRequest& request, v1::PlanJobResponse* response);
  absl::Status DoUpdateJob(const v1::UpdateJobRequest& request, v1::Job* response);
  // `again`: the spec changed while the new one was planned.
  absl::StatusOr<JobRecord> TryUpdate(const v1::UpdateJobRequest& request, const std::string& id,
                                      bool* again);
  absl::StatusOr<JobRecord> MakeJob(const v1::CreateJobRequest& request,
                                    const CheckedSpec& checked);
  Unary* RunOnPool(Context* context, std::function<absl::Status()> work);
  absl::Status Fill(const absl::StatusOr<JobRecord>& job, v1::JobView view, v1::Job* response);

  RpcContext& rpc_;
  WorkPool pool_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_TRAINING_SERVICE_H_
