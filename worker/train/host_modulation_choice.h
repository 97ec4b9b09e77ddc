// SPDX-License-Identifier: Apache-2.0
// Settles memory.host_modulation: auto once for a job, by trial, before anything is recorded.
#ifndef BLOCKSWAP_WORKER_TRAIN_HOST_MODULATION_CHOICE_H_
#define BLOCKSWAP_WORKER_TRAIN_HOST_MODULATION_CHOICE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "offload/plan/swap_plan.h"
#include "worker/config/job_inspection.h"
#include "worker/train/device_session.h"

namespace blockswap::worker {

struct HostModulationVerdict {
  bool on = false;
  std::string reason;  // one sentence with the figures
};

// Which of the two plans takes less time per step, when the host needs `host_step` for the
// modulation of one. On only for a gain worth another rounding; off where no speed is known.
HostModulationVerdict JudgeHostModulation(const absl::StatusOr<offload::SwapPlan>& on_device,
                                          const absl::StatusOr<offload::SwapPlan>& on_host,
                                          absl::Duration host_step);

// How long the host takes for the modulation of one pass: some blocks' weights read and multiplied,
// scaled to all. REQUIRES: model.host_modulation is set.
absl::StatusOr<absl::Duration> TimeHostModulation(const ModelDescription& model,
                                                  const CheckpointSource& source, int threads);

// Sets job->model and profile as the setting says; for auto, as job.json in `output_directory`
// has it, since a job never changes its mind; where there is none, off on the host device and as
// judged on others. `session` is asked only for that. Returns what to tell people; empty when the
// setting leaves nothing to choose.
absl::StatusOr<std::string> SettleHostModulation(
    const std::string& output_directory,
    const std::function<absl::StatusOr<DeviceSession*>()>& session, JobInspection* job);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_HOST_MODULATION_CHOICE_H_
