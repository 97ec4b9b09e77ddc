// SPDX-License-Identifier: Apache-2.0
// The calls about one job that tests make of every server, whether it is in their process or not.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_JOB_CALLS_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_JOB_CALLS_H_

#include <functional>
#include <string>
#include <vector>

#include "blockswap/v1/training.grpc.pb.h"

namespace blockswap::server {

// A call that fails fails the test.
v1::Job GetJob(v1::TrainingService::Stub& stub, const std::string& name);
std::vector<v1::Attempt> JobAttempts(v1::TrainingService::Stub& stub, const std::string& name);
std::string JobLog(v1::TrainingService::Stub& stub, const std::string& name, int attempt);

struct WatchedEvents {
  std::vector<v1::JobEvent> events;
  bool is_done = false;
};
// Follows the job's events, beginning with a snapshot, until `done` says so, the stream ends or a
// minute has passed. The last event is the one that `done` took.
WatchedEvents WatchJob(v1::TrainingService::Stub& stub, const std::string& name,
                       const std::function<bool(const v1::JobEvent&)>& done);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_JOB_CALLS_H_
