// SPDX-License-Identifier: Apache-2.0
// Runs a tiny job's trainer inside the test process.
#ifndef BLOCKSWAP_TESTS_WORKER_TESTING_TRAIN_RUN_H_
#define BLOCKSWAP_TESTS_WORKER_TESTING_TRAIN_RUN_H_

#include <functional>
#include <string>
#include <vector>

#include "offload/device/host_device.h"
#include "tests/fakes/null_reporter.h"
#include "tests/worker/testing/tiny_job.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker::testing {

struct RunOptions {
  std::vector<std::string> overrides;
  offload::HostDeviceOptions host;
  std::function<StopRequest()> stop_requested;
  std::function<void(JobInspection*)> edit;  // past validation, just before training
  std::function<void(offload::SwapPlan*)> edit_plan = nullptr;
  std::vector<int> masters_fds = {};  // memory to share weights in, as a server gives it
};

// Trains to the end into job.output(`name`). `reporter` may be null.
ExitReport TrainTiny(const TinyJob& job, const std::string& name, const RunOptions& options = {},
                     blockswap::testing::NullReporter* reporter = nullptr);

}  // namespace blockswap::worker::testing

#endif  // BLOCKSWAP_TESTS_WORKER_TESTING_TRAIN_RUN_H_
