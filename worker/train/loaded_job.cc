// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loaded_job.h"

#include <utility>

#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {

absl::StatusOr<std::unique_ptr<LoadedJob>> LoadedJob::Load(const JobInspection* job,
                                                           offload::SwapPlan plan,
                                                           DeviceSession* session) {
  std::unique_ptr<LoadedJob> loaded(new LoadedJob(job, session->device()));
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    BLOCKSWAP_RETURN_IF_ERROR(loaded->ReadWeights(std::move(plan), session));
    return loaded->MakeAdapter();
  }));
  return loaded;
}

absl::Status LoadedJob::ReadWeights(offload::SwapPlan plan, DeviceSession* session) {
  const ModelDescription& model = job_->model;
  const std::vector<offload::BlockProfile>& profiles = job_->profile.blocks;
  const auto read_block = [&](int block, absl::Span<std::byte> destination) {
    const size_t index = static_cast<size_t>(block);
    return ReadPackedBlock(*job_->weights, model.blocks[index], profiles[index], model.dtype,
                           destination);
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(
      swapper_,
      offload::BlockSwapper::Create(session->runtime(), std::move(plan), profiles, read_block));
  BLOCKSWAP_ASSIGN_OR_RETURN(model_, CreateModel(model, *job_->weights, device_));
  return absl::OkStatus();
}

absl::Status LoadedJob::MakeAdapter() {
  {
    const MemoryScope scope(offload::MemoryTag::kAdapter);
    adapter_ = std::make_unique<Adapter>(
        Adapter::Create(job_->model, job_->adapter, device_, /*with_gradients=*/true));
    adapter_->Initialise(job_->config.training.seed);
    const std::string& start = job_->config.network.weights_path;
    if (!start.empty()) BLOCKSWAP_RETURN_IF_ERROR(adapter_->Load(start));
  }
  const MemoryScope scope(offload::MemoryTag::kOptimizer);
  optimizer_ = std::make_unique<AdamW>(adapter_->parameters(), job_->config.training.adamw);
  return absl::OkStatus();
}

WalkContext LoadedJob::walk_context() const {
  return {model_.get(), &job_->model, swapper_.get(), adapter_.get(), device_};
}

WalkContext LoadedJob::base_walk_context() const {
  return {model_.get(), &job_->model, swapper_.get(), /*adapter=*/nullptr, device_};
}

}  // namespace blockswap::worker
