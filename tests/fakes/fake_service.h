// SPDX-License-Identifier: Apache-2.0
// A server for client tests: plays back what a test wrote down and remembers what it was asked.
#ifndef BLOCKSWAP_TESTS_FAKES_FAKE_SERVICE_H_
#define BLOCKSWAP_TESTS_FAKES_FAKE_SERVICE_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "blockswap/v1/admin.grpc.pb.h"
#include "blockswap/v1/training.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "offload/base/mutex.h"

namespace blockswap::testing {

// One stream: its messages, then its end. Without `ends` it stays open until the client gives up.
template <typename Message>
struct StreamScript {
  std::vector<Message> messages;
  grpc::Status status = grpc::Status::OK;
  bool ends = true;
};

// Thread safety: members are guarded by `mutex`; a test that has no call under way may read them
// without.
class FakeService final : public v1::TrainingService::Service, public v1::AdminService::Service {
 public:
  // Listens on `<directory>/server.sock`.
  explicit FakeService(const std::string& directory);
  ~FakeService() override;

  std::string target() const { return "unix:" + path_; }
  v1::Job& AddJob(const std::string& id, v1::JobState state);
  // Blocks until `count` watch streams were opened.
  void AwaitWatches(size_t count);

  // An error with ErrorInfo and BadRequest, as the real server makes it.
  static grpc::Status Error(grpc::StatusCode code, const std::string& message,
                            const std::string& reason,
                            const std::map<std::string, std::string>& violations = {});

  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                         v1::Job* job) override;
  grpc::Status PlanJob(grpc::ServerContext*, const v1::PlanJobRequest* request,
                       v1::PlanJobResponse* plan) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* job) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request,
                         v1::Job* response) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::Job* job) override;
  grpc::Status ListMetricPoints(grpc::ServerContext*, const v1::ListMetricPointsRequest* request,
                                v1::ListMetricPointsResponse* response) override;
  grpc::Status WatchJobs(grpc::ServerContext* context, const v1::WatchJobsRequest* request,
                         grpc::ServerWriter<v1::JobEvent>* writer) override;
  grpc::Status StreamJobLogs(grpc::ServerContext* context, const v1::StreamJobLogsRequest* request,
                             grpc::ServerWriter<v1::LogChunk>* writer) override;
  // These answer with the job, or with what the tests wrote down, and are kept in `calls`.
  grpc::Status SuspendJob(grpc::ServerContext*, const v1::SuspendJobRequest* request,
                          v1::Job* job) override;
  grpc::Status ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest* request,
                         v1::Job* job) override;
  grpc::Status CheckpointJob(grpc::ServerContext*, const v1::CheckpointJobRequest* request,
                             v1::Job* job) override;
  grpc::Status SampleJob(grpc::ServerContext*, const v1::SampleJobRequest* request,
                         v1::Job* job) override;
  grpc::Status RetryJob(grpc::ServerContext*, const v1::RetryJobRequest* request,
                        v1::Job* job) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty*) override;
  grpc::Status ListAttempts(grpc::ServerContext*, const v1::ListAttemptsRequest* request,
                            v1::ListAttemptsResponse* response) override;
  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override;
  grpc::Status GetCheckpoint(grpc::ServerContext*, const v1::GetCheckpointRequest* request,
                             v1::Checkpoint* checkpoint) override;
  grpc::Status DeleteCheckpoint(grpc::ServerContext*, const v1::DeleteCheckpointRequest* request,
                                google::protobuf::Empty*) override;
  grpc::Status ListJobEvents(grpc::ServerContext*, const v1::ListJobEventsRequest* request,
                             v1::ListJobEventsResponse* response) override;
  grpc::Status ListTemplates(grpc::ServerContext*, const v1::ListTemplatesRequest* request,
                             v1::ListTemplatesResponse* response) override;
  grpc::Status DrainDevice(grpc::ServerContext*, const v1::DrainDeviceRequest* request,
                           v1::Device* device) override;
  grpc::Status UndrainDevice(grpc::ServerContext*, const v1::UndrainDeviceRequest* request,
                             v1::Device* device) override;
  grpc::Status GetQueue(grpc::ServerContext*, const v1::GetQueueRequest* request,
                        v1::Queue* response) override;
  grpc::Status PauseQueue(grpc::ServerContext*, const v1::PauseQueueRequest* request,
                          v1::Queue* response) override;
  grpc::Status ResumeQueue(grpc::ServerContext*, const v1::ResumeQueueRequest* request,
                           v1::Queue* response) override;
  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest* request,
                         v1::GetConfigResponse* response) override;
  grpc::Status BackUpStore(grpc::ServerContext*, const v1::BackUpStoreRequest* request,
                           v1::BackUpStoreResponse* response) override;
  grpc::Status CheckStore(grpc::ServerContext*, const v1::CheckStoreRequest* request,
                          v1::CheckStoreResponse* response) override;
  grpc::Status ReloadConfig(grpc::ServerContext*, const v1::ReloadConfigRequest* request,
                            v1::ReloadConfigResponse* response) override;
  grpc::Status CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override;
  grpc::Status ListTokens(grpc::ServerContext* context, const v1::ListTokensRequest* request,
                          v1::ListTokensResponse* response) override;
  grpc::Status RevokeToken(grpc::ServerContext*, const v1::RevokeTokenRequest* request,
                           v1::Token* token) override;
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override;
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override;

  base::Mutex mutex;
  base::CondVar changed;
  std::deque<grpc::Status> failures;  // what the next unary calls answer; OK lets one through
  std::map<std::string, v1::Job> jobs;
  std::deque<StreamScript<v1::JobEvent>> watches;
  std::deque<StreamScript<v1::LogChunk>> logs;
  v1::MemoryPlan plan;
  std::vector<v1::PlanAlternative> alternatives;
  v1::ListMetricPointsResponse metrics;
  v1::ListAttemptsResponse attempts;
  v1::ListCheckpointsResponse checkpoints;
  v1::ListJobEventsResponse events;
  v1::ListTemplatesResponse templates;
  v1::Queue queue;
  v1::GetConfigResponse config;
  v1::CheckStoreResponse check;
  v1::ListTokensResponse tokens;
  std::vector<std::string> authorizations;  // what ListTokens was shown; "" for nothing
  std::vector<std::string> calls;           // "DrainDevice name: \"devices/gpu0\" reason: \"hot\""
  std::vector<v1::CreateJobRequest> create_requests;
  std::vector<v1::ListJobsRequest> list_requests;
  std::vector<v1::CancelJobRequest> cancel_requests;
  std::vector<v1::UpdateJobRequest> update_requests;
  std::vector<v1::WatchJobsRequest> watch_requests;
  std::vector<v1::StreamJobLogsRequest> log_requests;

 private:
  // Notes the call and returns its scripted failure, or OK.
  grpc::Status Note(const char* call, const google::protobuf::Message& request);
  // The same, then the job of that name.
  grpc::Status NoteForJob(const char* call, const google::protobuf::Message& request,
                          const std::string& name, v1::Job* job);
  // The scripted failure of this call, or OK.
  grpc::Status NextFailure();
  template <typename Message>
  grpc::Status Play(grpc::ServerContext* context, const StreamScript<Message>& script,
                    grpc::ServerWriter<Message>* writer);

  const std::string path_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace blockswap::testing

#endif  // BLOCKSWAP_TESTS_FAKES_FAKE_SERVICE_H_
