// SPDX-License-Identifier: Apache-2.0
// One job, its resident run, and a check of any other run against it, bit by bit.
#ifndef BLOCKSWAP_TESTS_WORKER_TESTING_PLAN_EQUALITY_H_
#define BLOCKSWAP_TESTS_WORKER_TESTING_PLAN_EQUALITY_H_

#include <functional>
#include <string>
#include <vector>

#include "offload/device/host_device.h"
#include "offload/plan/swap_plan.h"
#include "tests/worker/testing/tiny_job.h"

namespace blockswap::worker::testing {

// Overrides of a job.
std::vector<std::string> Swapping(int blocks, int ring, const std::string& pinned = "auto");

class PlanEquality {
 public:
  // `common`: overrides of every run.
  explicit PlanEquality(const TinyJobOptions& options, std::vector<std::string> common = {});

  // Trains under another plan; losses, gradient norms and adapter are those of the resident run.
  void Expect(const std::string& name, const std::vector<std::string>& overrides,
              const offload::HostDeviceOptions& host = {},
              const std::function<void(offload::SwapPlan*)>& edit_plan = nullptr,
              const std::vector<int>& masters_fds = {});

  const TinyJob& job() const { return job_; }

 private:
  const TinyJob job_;
  const std::vector<std::string> common_;
  RunResult resident_;
};

}  // namespace blockswap::worker::testing

#endif  // BLOCKSWAP_TESTS_WORKER_TESTING_PLAN_EQUALITY_H_
