// SPDX-License-Identifier: Apache-2.0
// A transformer as the trainer walks it: conditioning, embedding, one block at a time, head. Weights of blocks come with the call.
//
// Shape legend: B batch, S image tokens, T text tokens, C channels of a token, J text features, D model width.
#ifndef BLOCKSWAP_WORKER_MODEL_MODEL_H_
#define BLOCKSWAP_WORKER_MODEL_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "offload/swap/block_lease.h"
#include "worker/adapter/adapter.h"
#include "worker/family/family.h"
#include "worker/io/fp8_scaled.h"

namespace blockswap::worker {

// One frozen tensor of a block, re-read where it is needed: an op that must see the weight again in backward keeps the WeightRef,
// never the tensor, so that a slot's memory is not saved by autograd.
class WeightRef {
 public:
  WeightRef() = default;
  WeightRef(const offload::BlockLease* lease, int index, std::vector<int64_t> shape, at::ScalarType type, at::Device device)
      : lease_(lease), index_(index), shape_(std::move(shape)), type_(type), device_(device) {}
  // A weight outside the blocks, owned by the model. REQUIRES: `resident` outlives the reference.
  explicit WeightRef(const at::Tensor* resident) : resident_(resident) {}
  // Where backward adds this weight's gradient; undefined: the weight is frozen.
  const at::Tensor& gradient() const { return gradient_; }
  void set_gradient(at::Tensor gradient) { gradient_ = std::move(gradient); }
  bool trains() const { return gradient_.defined(); }
  // The leased memory holds fp8 codes and scales: Get widens them into a new tensor each time.
  void set_fp8(const Fp8Format& format) { fp8_ = format; }
  // A view of the leased memory. Throws c10::Error (caught at the torch boundary) when the lease has ended or its slot was reused.
  at::Tensor Get() const;

 private:
  const at::Tensor* resident_ = nullptr;
  const offload::BlockLease* lease_ = nullptr;
  int index_ = 0;
  std::vector<int64_t> shape_;
  at::ScalarType type_ = at::ScalarType::Float;
  at::Device device_ = at::kCPU;
  std::optional<Fp8Format> fp8_;
  at::Tensor gradient_;
};

// All tensors of one leased block in the family's order. REQUIRES: outlived by the lease.
struct BlockWeights {
  std::vector<WeightRef> tensors;
};
BlockWeights WeightsOfLease(const offload::BlockLease& lease, const DescribedBlock& block, Dtype dtype, at::Device device);

// What every block of a pass shares; stays on the device. Each family derives its own.
struct Conditioning {
  virtual ~Conditioning() = default;
};

// The hidden states that go from block to block (Qwen: image [B,S,D], text [B,T,D]).
using Streams = std::vector<at::Tensor>;

struct ModelInputs {
  at::Tensor hidden_states_BSC;          // packed latents
  at::Tensor timestep_B;                 // sigma in [0, 1], fp32
  at::Tensor encoder_hidden_states_BTJ;
  at::Tensor encoder_mask_BT;            // int64, undefined: all text
  std::vector<std::array<int64_t, 3>> img_shapes;  // (frames, h, w) in tokens, target first
};

// Block weights that are used on the host, where the model has any (Note [Host modulation]).
struct HostWork {
  int64_t weight_bytes = 0;  // read once per pass
  int64_t copied_bytes = 0;  // of them in host memory of our own; the rest lies in mapped files
  int64_t passes = 0;
  absl::Duration busy, waited;  // on all its threads; of the trainer's thread
};

// Owns: edge weights (outside the blocks) on the device, frozen unless TrainEdges says otherwise. Thread safety: the trainer's
// thread. Throws c10::Error; callers are inside RunContained.
class Model {
 public:
  virtual ~Model() = default;
  virtual int num_blocks() const = 0;
  // Time embedding, RoPE tables, masks: no gradient flows through them.
  virtual std::unique_ptr<Conditioning> Condition(const ModelInputs& inputs) const = 0;
  virtual Streams Embed(const ModelInputs& inputs) const = 0;
  // Block `index` on `streams`; differentiable in the streams and the adapter's down and up.
  virtual Streams ForwardBlock(int index, const Streams& streams, const Conditioning& conditioning, const BlockWeights& weights,
                               const AdapterBlock& adapter) const = 0;
  // Output `sample` [B, S, patch^2 * out_channels]; differentiable in the streams.
  virtual at::Tensor Head(const Streams& streams, const Conditioning& conditioning) const = 0;
  // What was evaluated on the host so far.
  virtual HostWork host_work() const { return {}; }

  // The edge weights in the order of ModelDescription::edge_tensors; what is written to them is what later calls use.
  virtual std::vector<at::Tensor> edge_tensors() const = 0;
  // From now on backward adds the gradients of the edge weights to `gradients` (fp32, one per edge tensor, of its shape), and a
  // conditioning collects the gradient of what the blocks take from it. Empty: the edges are frozen.
  virtual void TrainEdges(const std::vector<at::Tensor>& gradients) = 0;
  // After the backward of all blocks: adds the gradients of the edge weights that Condition and Embed read, for the gradients
  // of the embedded streams (undefined: none). REQUIRES: TrainEdges was given gradients before `conditioning` was made.
  virtual void BackwardEdges(const ModelInputs& inputs, const Conditioning& conditioning, const Streams& grads) const = 0;
};

// Reads the edge weights of `description` from `source` in its dtype onto `device` (charged to the ledger as edge weights).
// REQUIRES: `source` outlives the model.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelDescription& description, const CheckpointSource& source, at::Device device);

// One forward and, where asked, one backward of `model` block by block through a swapper, exactly as the trainer does (design.md 5).
// Lives in worker/train/block_walk.h: probe, trainer and sampler share it.

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_MODEL_H_
