// SPDX-License-Identifier: Apache-2.0
#include "worker/train/base_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/kernels/device_memory.h"
#include "worker/model/dtype.h"

namespace blockswap::worker {
namespace {

int64_t LargestBlock(const std::vector<BaseUnit>& units) {
  int64_t elements = 0;
  for (size_t unit = 1; unit < units.size(); ++unit)
    elements = std::max(elements, units[unit].elements);
  return elements;
}

}  // namespace

BaseGradients::BaseGradients(const std::vector<BaseUnit>* units, Dtype dtype, at::Device device)
    : units_(units), has_sum_(units->size(), false) {
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

void BaseGradients::BeginBlock(int block) {
  block_.narrow(0, 0, (*units_)[static_cast<size_t>(block) + 1].elements).zero_();
}

void BaseGradients::EndBlock(int block) {
  const size_t index = static_cast<size_t>(block) + 1;
  const at::Tensor gradient = block_.narrow(0, 0, (*units_)[index].elements);
  const HostMemoryScope host_side;
  if (!has_sum_[index]) {
    sums_[index].copy_(gradient);
  } else {
    sums_[index].add_(gradient.to(at::kCPU));
  }
  has_sum_[index] = true;
}

void BaseGradients::Finish() {
  sums_[0].copy_(edges_);
  has_sum_[0] = true;
  for (size_t unit = 1; unit < sums_.size(); ++unit) {
    if (!has_sum_[unit]) sums_[unit].zero_();
  }
}

at::Tensor BaseGradients::View(const at::Tensor& flat, int unit, int tensor) const {
  const BaseUnit& of = (*units_)[static_cast<size_t>(unit)];
  const auto index = static_cast<size_t>(tensor);
  return flat.narrow(0, of.offsets[index], ElementsOf(of.tensors[index]))
      .view(of.tensors[index].shape);
}

}  // namespace blockswap::worker
