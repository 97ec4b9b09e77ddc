// SPDX-License-Identifier: Apache-2.0
#include "worker/train/base_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "offload/base/status_macros.h"
#include "worker/kernels/device_memory.h"
#include "worker/model/dtype.h"

namespace blockswap::worker {
namespace {

using offload::Stream;

int64_t LargestBlock(const std::vector<BaseUnit>& units) {
  int64_t elements = 0;
  for (size_t unit = 1; unit < units.size(); ++unit)
    elements = std::max(elements, units[unit].elements);
  return elements;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BaseGradients>> BaseGradients::Create(
    offload::DeviceRuntime* runtime, const std::vector<BaseUnit>* units, Dtype dtype,
    at::Device device, bool lock) {
  std::unique_ptr<BaseGradients> gradients(new BaseGradients(runtime, units, dtype, device));
  BLOCKSWAP_RETURN_IF_ERROR(gradients->TakeStaging(lock));
  BLOCKSWAP_ASSIGN_OR_RETURN(gradients->made_, runtime->CreateEvent());
  BLOCKSWAP_ASSIGN_OR_RETURN(gradients->down_, runtime->CreateEvent());
  return gradients;
}

BaseGradients::~BaseGradients() {
  // Nothing may write to the host buffer after this; what a failed device says was reported.
  if (went_down_) runtime_->Synchronize(down_).IgnoreError();
  for (const offload::EventId event : {made_, down_}) {
    if (event != offload::kNoEvent) runtime_->DestroyEvent(event);
  }
}

absl::Status BaseGradients::TakeStaging(bool lock) {
  const int64_t bytes = static_cast<int64_t>(block_.nbytes());
  if (lock) {
    auto locked = offload::PinnedArena::Create(runtime_, bytes, offload::PinnedArena::Lock::kYes);
    if (locked.ok()) {
      staging_ = *std::move(locked);
      return absl::OkStatus();
    }
  }
  // The device then brings it down through buffers of its own, slower.
  BLOCKSWAP_ASSIGN_OR_RETURN(
      staging_, offload::PinnedArena::Create(runtime_, bytes, offload::PinnedArena::Lock::kNo));
  return absl::OkStatus();
}

BaseGradients::BaseGradients(offload::DeviceRuntime* runtime, const std::vector<BaseUnit>* units,
                             Dtype dtype, at::Device device)
    : runtime_(runtime), units_(units), has_sum_(units->size(), false) {
  {
    const MemoryScope scope(offload::MemoryTag::kActivations);
    const at::TensorOptions options = at::TensorOptions().device(device);
    block_ = at::zeros({LargestBlock(*units)}, options.dtype(ToScalarType(dtype)));
    edges_ = at::zeros({units->front().elements}, options.dtype(at::kFloat));
  }
  for (size_t i = 0; i < units->front().tensors.size(); ++i)
    edge_views_.push_back(View(edges_, 0, static_cast<int>(i)));
  const HostMemoryScope host_side;
  for (const BaseUnit& unit : *units) {
    sums_.push_back(at::zeros({unit.elements}, at::TensorOptions().dtype(at::kFloat)));
  }
}

void BaseGradients::Zero() {
  // Compute and d2h order the next use of both buffers behind a copy that is still on its way.
  arriving_ = -1;
  edges_.zero_();
  std::fill(has_sum_.begin(), has_sum_.end(), false);
}

std::vector<at::Tensor> BaseGradients::BlockViews(int block) const {
  const BaseUnit& unit = (*units_)[static_cast<size_t>(block) + 1];
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < unit.tensors.size(); ++i)
    views.push_back(View(block_, block + 1, static_cast<int>(i)));
  return views;
}

absl::Status BaseGradients::BeginBlock(int block) {
  // Compute waits: d2h has read the gradient of the block before.
  if (went_down_) BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kCompute, down_));
  block_.narrow(0, 0, (*units_)[static_cast<size_t>(block) + 1].elements).zero_();
  return absl::OkStatus();
}

absl::Status BaseGradients::EndBlock(int block) {
  BLOCKSWAP_RETURN_IF_ERROR(AddArrived());
  const int unit = block + 1;
  BLOCKSWAP_RETURN_IF_ERROR(
      StartDown(block_.narrow(0, 0, (*units_)[static_cast<size_t>(unit)].elements)));
  arriving_ = unit;
  return absl::OkStatus();
}

absl::Status BaseGradients::StartDown(const at::Tensor& values) {
  // d2h waits: compute has made the gradient.
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Record(made_, Stream::kCompute));
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kDeviceToHost, made_));
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->CopyToHost(
      staging_.data(),
      {static_cast<std::byte*>(values.mutable_data_ptr()), static_cast<int64_t>(values.nbytes())}));
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Record(down_, Stream::kDeviceToHost));
  went_down_ = true;
  return absl::OkStatus();
}

absl::Status BaseGradients::AddArrived() {
  if (arriving_ < 0) return absl::OkStatus();
  const auto unit = static_cast<size_t>(std::exchange(arriving_, -1));
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Synchronize(down_));
  const HostMemoryScope host_side;
  const at::Tensor arrived = at::from_blob(staging_.data(), {(*units_)[unit].elements},
                                           at::TensorOptions().dtype(block_.scalar_type()));
  if (!has_sum_[unit]) {
    sums_[unit].copy_(arrived);
  } else {
    sums_[unit].add_(arrived);
  }
  has_sum_[unit] = true;
  return absl::OkStatus();
}

absl::Status BaseGradients::Finish() {
  BLOCKSWAP_RETURN_IF_ERROR(AddArrived());
  auto* const sum = static_cast<std::byte*>(sums_[0].mutable_data_ptr());
  const int64_t piece = staging_.bytes() / static_cast<int64_t>(sizeof(float));
  for (int64_t first = 0; first < edges_.numel(); first += piece) {
    const at::Tensor part = edges_.narrow(0, first, std::min(piece, edges_.numel() - first));
    BLOCKSWAP_RETURN_IF_ERROR(StartDown(part));
    BLOCKSWAP_RETURN_IF_ERROR(runtime_->Synchronize(down_));
    std::memcpy(sum + first * static_cast<int64_t>(sizeof(float)), staging_.data(), part.nbytes());
  }
  has_sum_[0] = true;
  for (size_t unit = 1; unit < sums_.size(); ++unit) {
    if (!has_sum_[unit]) sums_[unit].zero_();
  }
  return absl::OkStatus();
}

at::Tensor BaseGradients::View(const at::Tensor& flat, int unit, int tensor) const {
  const BaseUnit& of = (*units_)[static_cast<size_t>(unit)];
  const auto index = static_cast<size_t>(tensor);
  return flat.narrow(0, of.offsets[index], ElementsOf(of.tensors[index]))
      .view(of.tensors[index].shape);
}

}  // namespace blockswap::worker
