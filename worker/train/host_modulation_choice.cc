// SPDX-License-Identifier: Apache-2.0
#include "worker/train/host_modulation_choice.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "offload/plan/planner.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/model/host_modulation.h"
#include "worker/train/job_identity.h"
#include "worker/train/output_directory.h"

namespace blockswap::worker {
namespace {

// A step that is faster by less is not worth being bound to a choice that re-planning cannot undo.
constexpr double kLeastGain = 0.02;
// Beyond any last-level cache, and read in a fraction of a second.
constexpr int64_t kTrialBytes = int64_t{512} << 20;

// The first blocks, as many as a trial reads.
ModelDescription TrialModel(const ModelDescription& model) {
  ModelDescription trial = model;
  int64_t bytes = 0;
  size_t blocks = 0;
  for (; blocks < model.blocks.size() && bytes < kTrialBytes; ++blocks) {
    for (TensorSpec tensor : model.blocks[blocks].tensors) {
      if (!tensor.on_host) continue;
      tensor.on_host = false;
      bytes += PackedTensorBytes(tensor, model.dtype);
    }
  }
  trial.blocks.resize(blocks);
  return trial;
}

std::map<int, at::Tensor> TrialInputs(const ModelDescription& model) {
  std::map<int, at::Tensor> inputs;
  const DescribedBlock& block = model.blocks.front();
  for (size_t slot = 0; slot < block.linears.size(); ++slot) {
    if (!block.tensors[2 * slot].on_host) continue;
    inputs[static_cast<int>(slot)] = at::ones({1, block.linears[slot].in_features});
  }
  return inputs;
}

// Of the second of two passes: the first one may fetch the file from a disk.
absl::Duration TimePass(HostModulation* modulation, const ModelDescription& model) {
  const std::map<int, at::Tensor> inputs = TrialInputs(model);
  absl::Duration took;
  for (int i = 0; i < 2; ++i) {
    const absl::Time begin = absl::Now();
    const auto pass = modulation->Start(inputs);
    for (size_t block = 0; block < model.blocks.size(); ++block) {
      for (const auto& [slot, input] : inputs) pass->Take(static_cast<int>(block), slot);
    }
    took = absl::Now() - begin;
  }
  return took;
}

absl::StatusOr<HostModulationVerdict> Judge(DeviceSession* session, JobInspection* job) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const Machine machine, session->Measure());
  const absl::StatusOr<offload::SwapPlan> on_device = offload::Plan(MakePlanRequest(*job, machine));
  if (!UseHostModulation(true, job)) return HostModulationVerdict{};
  const absl::StatusOr<offload::SwapPlan> on_host = offload::Plan(MakePlanRequest(*job, machine));
  BLOCKSWAP_ASSIGN_OR_RETURN(const absl::Duration pass,
                             TimeHostModulation(job->model, *job->weights, at::get_num_threads()));
  return JudgeHostModulation(on_device, on_host,
                             pass * job->config.training.gradient_accumulation_steps);
}

}  // namespace

HostModulationVerdict JudgeHostModulation(const absl::StatusOr<offload::SwapPlan>& on_device,
                                          const absl::StatusOr<offload::SwapPlan>& on_host,
                                          absl::Duration host_step) {
  if (!on_host.ok()) return {false, "modulation stays on the device: no plan fits without it"};
  if (!on_device.ok()) {
    return {true, "modulation is evaluated on the host: only so the job fits the device"};
  }
  const absl::Duration device = on_device->prediction.step;
  const absl::Duration host = std::max(on_host->prediction.step, host_step);
  if (device == absl::ZeroDuration() || on_host->prediction.step == absl::ZeroDuration()) {
    return {false, "modulation stays on the device: no speed is known to judge by"};
  }
  const bool on = host < device * (1 - kLeastGain);
  return {on,
          absl::StrCat("modulation ", on ? "is evaluated on the host" : "stays on the device",
                       ": a step is expected to take ", absl::FormatDuration(host), " so and ",
                       absl::FormatDuration(device), " with its weights streamed; the host needs ",
                       absl::FormatDuration(host_step), " of it")};
}

absl::StatusOr<absl::Duration> TimeHostModulation(const ModelDescription& model,
                                                  const CheckpointSource& source, int threads) {
  absl::Duration scaled;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    const HostMemoryScope host_side;
    const ModelDescription trial = TrialModel(model);
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<HostModulation> modulation,
                               HostModulation::Create(trial, source, threads));
    scaled = TimePass(modulation.get(), trial) *
             (static_cast<double>(model.blocks.size()) / static_cast<double>(trial.blocks.size()));
    return absl::OkStatus();
  }));
  return scaled;
}

absl::StatusOr<std::string> SettleHostModulation(
    const std::string& output_directory,
    const std::function<absl::StatusOr<DeviceSession*>()>& session, JobInspection* job) {
  if (job->config.memory.host_modulation != offload::Toggle::kAuto) return "";
  // Without a family that has any, or with a base that trains, there is nothing to choose.
  const bool possible = UseHostModulation(true, job);
  UseHostModulation(false, job);
  if (!possible) return "";
  const JobIdentity recorded = OutputDirectory::RecordedIdentity(output_directory);
  if (!recorded.empty()) {
    const bool on = recorded.count(kHostModulationFact) > 0;
    UseHostModulation(on, job);
    return absl::StrCat("modulation ", on ? "is evaluated on the host" : "stays on the device",
                        ", as when the job began");
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(DeviceSession* const device, session());
  if (device->device().is_cpu()) return "";
  BLOCKSWAP_ASSIGN_OR_RETURN(const HostModulationVerdict verdict, Judge(device, job));
  UseHostModulation(verdict.on, job);
  return verdict.reason;
}

}  // namespace blockswap::worker
