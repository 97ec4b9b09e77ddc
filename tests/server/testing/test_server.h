// SPDX-License-Identifier: Apache-2.0
// A daemon in this process on a temporary directory, with fake workers, and a client of it.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_TEST_SERVER_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_TEST_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "blockswap/v1/admin.grpc.pb.h"
#include "blockswap/v1/training.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "server/daemon.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {

// Accepts every spec, except names that begin with "invalid" (two violations), "outside" and
// "huge". The labels device_mib and disk_mib say what the job needs.
class ScriptedChecker final : public SpecChecker {
 public:
  absl::StatusOr<CheckedSpec> Check(const v1::JobSpec& spec,
                                    const std::vector<DeviceState>& devices) override;
  // Its one alternative takes a byte more.
  absl::StatusOr<CheckedSpec> PlanOnly(const v1::JobSpec& spec,
                                       const std::vector<DeviceState>& devices,
                                       const std::string& device_profile) override;
  std::vector<std::string> architectures() const override { return {"fake"}; }
};

// Short times, a fake worker, nothing outside `directory`.
ServerConfig TestConfig(const std::string& directory);

class TestServer final {
 public:
  explicit TestServer(
      const std::string& directory,
      const std::function<void(ServerConfig&)>& adjust = [](ServerConfig&) {});
  ~TestServer();

  v1::TrainingService::Stub& training() { return *training_; }
  v1::AdminService::Stub& admin() { return *admin_; }
  Daemon& daemon() { return *daemon_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }

  // `script` goes to the fake worker.
  v1::CreateJobRequest Request(const std::string& name, const std::string& script) const;
  grpc::Status Create(const v1::CreateJobRequest& request, v1::Job* job);
  v1::Job MustCreate(const std::string& name, const std::string& script);
  v1::Job Get(const std::string& name);
  // Follows the job's events until `done` says so or the stream ends; returns what it saw.
  std::vector<v1::JobEvent> Watch(const std::string& name,
                                  const std::function<bool(const v1::JobEvent&)>& done);
  std::vector<v1::JobEvent> WatchToEnd(const std::string& name);
  v1::Job WaitTerminal(const std::string& name);
  v1::Job WaitState(const std::string& name, v1::JobState state);
  std::string Log(const std::string& name, int attempt);
  std::vector<v1::Attempt> Attempts(const std::string& name);

 private:
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TrainingService::Stub> training_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

std::string ErrorReason(const grpc::Status& status);
google::rpc::BadRequest ErrorViolations(const grpc::Status& status);
// The file the fake worker waits for at hold_at.
void LetGo(const v1::Job& job);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_TEST_SERVER_H_
