// SPDX-License-Identifier: Apache-2.0
// Walks a model's blocks through a swapper: forward, then an explicit recompute and backward block by block (design.md 5).
#ifndef BLOCKSWAP_WORKER_TRAIN_BLOCK_WALK_H_
#define BLOCKSWAP_WORKER_TRAIN_BLOCK_WALK_H_

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "offload/swap/block_swapper.h"
#include "worker/adapter/adapter.h"
#include "worker/model/model.h"
#include "worker/train/base_gradients.h"
#include "worker/train/boundary_store.h"

namespace blockswap::worker {

// Everything a pass runs over. All outlive the walk.
struct WalkContext {
  const Model* model = nullptr;
  const ModelDescription* description = nullptr;
  offload::BlockSwapper* swapper = nullptr;
  const Adapter* adapter = nullptr;
  at::Device device = at::kCPU;
  BoundaryStore* boundaries = nullptr;  // where the inputs go that the plan sends away; null: none goes
  BaseGradients* base = nullptr;        // where the gradients of base weights go; null: the base is frozen
  // Asked before a block is leased: an update of its weights may still be under way. Empty: none ever is.
  std::function<absl::Status(int block)> await_weights = nullptr;
};

// Loss (a scalar kept by the caller) and its gradient with respect to the model output.
using LossFunction = std::function<absl::StatusOr<at::Tensor>(const at::Tensor& output)>;

struct WalkResult {
  at::Tensor output;
  at::Tensor hidden_states_grad;  // only when asked for
  absl::Duration forward, backward;
};

// Forward-only pass without gradient. BeginPass(kForwardOnly) is the caller's (several passes may follow each other).
absl::StatusOr<WalkResult> WalkForward(const WalkContext& context, const ModelInputs& inputs);

// Several inputs through each block under one lease: one upload serves them all. Each output has the bits it has alone.
absl::StatusOr<std::vector<at::Tensor>> WalkForwardTogether(const WalkContext& context, absl::Span<const ModelInputs> inputs);

// Forward, then `loss` on the output, then backward; adapter gradients are added to the adapter's gradient buffers.
// `stop` is asked between blocks: a non-ok status ends the walk at once (cancel in mid-backward) with that status; gradients are then
// partial and the caller zeroes them. BeginPass(kTraining) is the caller's.
// The swapper's plan says which blocks keep their activations and whose inputs wait on the host; no choice changes a bit.
absl::StatusOr<WalkResult> WalkTraining(const WalkContext& context, const ModelInputs& inputs, const LossFunction& loss,
                                        bool want_hidden_states_grad, const std::function<absl::Status()>& stop);

// One micro-batch of a step.
struct WalkItem {
  const ModelInputs* inputs = nullptr;
  LossFunction loss;
};

// All items through block i, then through block i + 1 (block-major), forward and backward. Every gradient buffer gets the items'
// contributions in their order, as if they were walked one after another: the bits are equal. The first loss that fails ends the walk.
struct WalkTimes {
  absl::Duration forward, backward;
};
absl::StatusOr<WalkTimes> WalkTrainingTogether(const WalkContext& context, absl::Span<const WalkItem> items,
                                               const std::function<absl::Status()>& stop);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_BLOCK_WALK_H_
