// SPDX-License-Identifier: Apache-2.0
// The seam behind which a job spec is validated and planned: files and planner in the daemon, a
// script in tests.
#ifndef BLOCKSWAP_SERVER_RPC_SPEC_CHECKER_H_
#define BLOCKSWAP_SERVER_RPC_SPEC_CHECKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "blockswap/v1/training.pb.h"
#include "server/device/device_table.h"
#include "server/jobs/job.h"

namespace blockswap::server {

struct CheckedSpec {
  v1::MemoryPlan plan;
  PlanNeeds needs;
  std::string device;  // it was planned for, or the device profile
  int64_t total_steps = 0, num_items = 0;
  std::vector<std::string> warnings;
  std::vector<v1::PlanAlternative> alternatives;  // of PlanOnly
};

// Thread safety: safe; may read files for seconds.
class SpecChecker {
 public:
  virtual ~SpecChecker() = default;
  // SPEC_INVALID with all violations, PATH_NOT_ALLOWED, WILL_NOT_FIT, or DataLoss for a corrupt
  // file.
  virtual absl::StatusOr<CheckedSpec> Check(const v1::JobSpec& spec,
                                            const std::vector<DeviceState>& devices) = 0;
  // The same, for somebody who wants to know and not to run: with alternatives, and for a known card
  // instead of one of `devices` when `device_profile` is not empty.
  virtual absl::StatusOr<CheckedSpec> PlanOnly(const v1::JobSpec& spec,
                                               const std::vector<DeviceState>& devices,
                                               const std::string& device_profile) = 0;
  virtual std::vector<std::string> architectures() const = 0;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_SPEC_CHECKER_H_
