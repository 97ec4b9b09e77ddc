// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loaded_job.h"

#include <utility>

#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "offload/device/numa.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {

absl::StatusOr<std::unique_ptr<LoadedJob>> LoadedJob::Load(const JobInspection* job,
                                                           offload::SwapPlan plan,
                                                           DeviceSession* session,
                                                           LoadOptions options) {
  std::unique_ptr<LoadedJob> loaded(new LoadedJob(job, session, std::move(options)));
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    BLOCKSWAP_RETURN_IF_ERROR(loaded->ReadWeights(std::move(plan), session));
    return job->config.network.trains_base ? loaded->MakeBaseTraining() : loaded->MakeAdapter();
  }));
  return loaded;
}

absl::Status LoadedJob::ReadWeights(offload::SwapPlan plan, DeviceSession* session) {
  offload::SwapperOptions options;
  options.verify_weights = job_->config.memory.verify_weights;
  loader_.Note(
      offload::NodeText(session->runtime()->facts().numa_node, offload::CountMemoryNodes()));
  loader_.Prepare(plan);
  options.shared_masters = loader_.shared();
  BLOCKSWAP_ASSIGN_OR_RETURN(
      swapper_, offload::BlockSwapper::Create(session->runtime(), std::move(plan),
                                              job_->profile.blocks, loader_.reader(), options));
  loader_.Finish(swapper_->stats().pinned_bytes);
  BLOCKSWAP_ASSIGN_OR_RETURN(model_, CreateModel(job_->model, *job_->weights, device_));
  return absl::OkStatus();
}

absl::Status LoadedJob::ReadBlock(int block, absl::Span<std::byte> destination) const {
  const ModelDescription& model = job_->model;
  const size_t index = static_cast<size_t>(block);
  return ReadPackedBlock(*job_->weights, model.blocks[index], job_->profile.blocks[index],
                         model.dtype, destination);
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
  trained_ = std::make_unique<AdapterTraining>(job_, adapter_.get(), optimizer_.get());
  return absl::OkStatus();
}

absl::Status LoadedJob::MakeBaseTraining() {
  BLOCKSWAP_ASSIGN_OR_RETURN(
      std::unique_ptr<BaseTraining> training,
      BaseTraining::Create(job_, model_.get(), swapper_.get(), runtime_, device_));
  base_training_ = training.get();
  trained_ = std::move(training);
  return absl::OkStatus();
}

WalkContext LoadedJob::walk_context() const {
  WalkContext context{model_.get(), &job_->model, swapper_.get(), adapter_.get(), device_};
  if (base_training_ != nullptr) {
    context.base = base_training_->gradients();
    context.await_weights = [base = base_training_](int block) {
      return base->AwaitWeights(block);
    };
  }
  return context;
}

WalkContext LoadedJob::base_walk_context() const {
  WalkContext context = walk_context();
  context.adapter = nullptr;
  return context;
}

}  // namespace blockswap::worker
