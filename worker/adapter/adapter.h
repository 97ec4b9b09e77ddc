// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter's trainable parameters: flat fp32 buffers with one view per module, so that the optimizer sees one tensor.
#ifndef BLOCKSWAP_WORKER_ADAPTER_ADAPTER_H_
#define BLOCKSWAP_WORKER_ADAPTER_ADAPTER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/family/family.h"

namespace blockswap::worker {

// One module's views. Effect on its linear: base(x) + up(down(x)) * scale, scale = alpha / rank.
struct LoraModule {
  at::Tensor down, up;            // [rank, in], [out, rank], fp32 views into Adapter::parameters()
  at::Tensor down_grad, up_grad;  // same shapes, views into Adapter::gradients(); backward adds into them
  double scale = 1.0;
  bool present = false;           // false: the linear has no adapter
};

// The modules of one block, indexed by the linear's slot in the family's order (DescribedBlock::linears).
struct AdapterBlock {
  std::vector<LoraModule> linears;
};

// Owns the flat buffers (fp32, on the device). Thread safety: the trainer's thread.
class Adapter {
 public:
  // Buffers zeroed; `device` is at::kCPU or a CUDA device. `with_gradients` false: for sampling or probing without --grad.
  static Adapter Create(const ModelDescription& model, const AdapterLayout& layout, at::Device device, bool with_gradients);

  // lora_down: Kaiming uniform with a = sqrt(5) (bound 1/sqrt(in)), from counter-based random numbers keyed by (seed, module);
  // lora_up: zeros (facts/musubi.md 5.1).
  void Initialise(int64_t seed);

  const AdapterBlock& block(int index) const { return blocks_[static_cast<size_t>(index)]; }
  const AdapterLayout& layout() const { return layout_; }
  at::Tensor parameters() const { return parameters_; }  // [num_parameters], fp32
  at::Tensor gradients() const { return gradients_; }    // same, undefined without gradients

  // musubi keys: "<module key>.lora_down.weight", ".lora_up.weight", ".alpha"; widened to fp32. Unknown keys, misshapen or missing
  // tensors are InvalidArgument; F16, BF16 and F32 files are accepted. A file with no tensor for any module is refused.
  absl::Status Load(const std::string& path);
  // Writes all modules in `precision` with `metadata`, reads it back, and refuses non-finite values and empty adapters.
  absl::Status Save(const std::string& path, Dtype precision, const std::map<std::string, std::string>& metadata) const;

 private:
  AdapterLayout layout_;
  std::vector<AdapterBlock> blocks_;
  at::Tensor parameters_, gradients_;
};

// The layout an adapter file asks for (rank and alpha per module; alpha missing or 0 means rank): what `probe --adapter` uses.
absl::StatusOr<AdapterLayout> LayoutOfFile(const std::string& path, const ModelDescription& model);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_ADAPTER_ADAPTER_H_
