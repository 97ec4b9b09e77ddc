// SPDX-License-Identifier: Apache-2.0
#include "worker/adapter/adapter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "worker/kernels/counter_random.h"
#include "worker/kernels/device_memory.h"

namespace blockswap::worker {
namespace {

// Hands out consecutive views of the flat buffers.
class ViewCutter {
 public:
  ViewCutter(at::Tensor parameters, at::Tensor gradients)
      : parameters_(std::move(parameters)), gradients_(std::move(gradients)) {}

  void Cut(int64_t rows, int64_t columns, at::Tensor* parameter, at::Tensor* gradient) {
    *parameter = parameters_.narrow(0, offset_, rows * columns).view({rows, columns});
    if (gradients_.defined())
      *gradient = gradients_.narrow(0, offset_, rows * columns).view({rows, columns});
    offset_ += rows * columns;
  }

 private:
  at::Tensor parameters_, gradients_;
  int64_t offset_ = 0;
};

}  // namespace

Adapter Adapter::Create(const ModelDescription& model, const AdapterLayout& layout,
                        at::Device device, bool with_gradients) {
  const MemoryScope scope(offload::MemoryTag::kAdapter);
  Adapter adapter;
  adapter.layout_ = layout;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
  adapter.parameters_ = at::zeros({layout.num_parameters()}, options);
  if (with_gradients) adapter.gradients_ = at::zeros({layout.num_parameters()}, options);
  for (const DescribedBlock& block : model.blocks) {
    adapter.blocks_.emplace_back().linears.resize(block.linears.size());
  }
  ViewCutter cutter(adapter.parameters_, adapter.gradients_);
  for (const AdapterModule& module : layout.modules) {
    LoraModule& lora = adapter.blocks_[static_cast<size_t>(module.target.block)]
                           .linears[static_cast<size_t>(module.target.slot)];
    lora.present = true;
    lora.scale = module.alpha / module.rank;
    cutter.Cut(module.rank, module.target.in_features, &lora.down, &lora.down_grad);
    cutter.Cut(module.target.out_features, module.rank, &lora.up, &lora.up_grad);
  }
  return adapter;
}

void Adapter::Initialise(int64_t seed) {
  const at::NoGradGuard no_grad;
  for (const AdapterModule& module : layout_.modules) {
    const LoraModule& lora = blocks_[static_cast<size_t>(module.target.block)]
                                 .linears[static_cast<size_t>(module.target.slot)];
    const HostMemoryScope host_side;
    at::Tensor values = at::empty(lora.down.sizes(), at::TensorOptions().dtype(at::kFloat));
    const absl::Span<float> numbers(values.mutable_data_ptr<float>(),
                                    static_cast<size_t>(values.numel()));
    // Keyed by the module itself, so that it starts the same whichever others train.
    const int64_t key = (static_cast<int64_t>(module.target.block) << 16) | module.target.slot;
    CounterRandom({seed, /*step=*/0, key, RandomPurpose::kAdapterInit}).FillUniform(numbers);
    // Kaiming's bound with a = sqrt(5): sqrt(6 / ((1 + 5) * in)).
    const float bound = 1.0f / std::sqrt(static_cast<float>(module.target.in_features));
    for (float& number : numbers) number = (2.0f * number - 1.0f) * bound;
    lora.down.copy_(values);
    lora.up.zero_();
  }
}

}  // namespace blockswap::worker
