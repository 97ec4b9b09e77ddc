// SPDX-License-Identifier: Apache-2.0
// Validates and plans a job from the headers of its files, without torch.
#ifndef BLOCKSWAP_SERVER_RPC_SPEC_INSPECTOR_H_
#define BLOCKSWAP_SERVER_RPC_SPEC_INSPECTOR_H_

#include <string>
#include <vector>

#include "server/rpc/spec_checker.h"
#include "worker/config/job_inspection.h"
#include "worker/config/train_config.h"
#include "worker/io/rooted_path.h"

namespace blockswap::server {

// Thread safety: safe, without state.
class SpecInspector final : public SpecChecker {
 public:
  explicit SpecInspector(worker::Roots roots) : roots_(std::move(roots)) {}

  absl::StatusOr<CheckedSpec> Check(const v1::JobSpec& spec,
                                    const std::vector<DeviceState>& devices) override;
  absl::StatusOr<CheckedSpec> PlanOnly(const v1::JobSpec& spec,
                                       const std::vector<DeviceState>& devices,
                                       const std::string& device_profile) override;
  std::vector<std::string> architectures() const override;

 private:
  // For as long as the answer lives, this thread opens files of jobs below their roots only.
  worker::ScopedOpenRoots OnlyBelowRoots() const;
  absl::StatusOr<worker::TrainConfig> Validate(const v1::JobSpec& spec) const;

  const worker::Roots roots_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_SPEC_INSPECTOR_H_
