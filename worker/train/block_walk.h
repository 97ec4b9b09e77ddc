// SPDX-License-Identifier: Apache-2.0
// Walks a model's blocks through a swapper: forward, then an explicit recompute and backward block by block (design.md 5).
#ifndef BLOCKSWAP_WORKER_TRAIN_BLOCK_WALK_H_
#define BLOCKSWAP_WORKER_TRAIN_BLOCK_WALK_H_

#include <functional>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "offload/swap/block_swapper.h"
#include "worker/adapter/adapter.h"
#include "worker/model/model.h"

namespace blockswap::worker {

// Everything a pass runs over. All outlive the walk.
struct WalkContext {
  const Model* model = nullptr;
  const ModelDescription* description = nullptr;
  offload::BlockSwapper* swapper = nullptr;
  const Adapter* adapter = nullptr;
  at::Device device = at::kCPU;
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

// Forward, then `loss` on the output, then backward; adapter gradients are added to the adapter's gradient buffers.
// `stop` is asked between blocks: a non-ok status ends the walk at once (cancel in mid-backward) with that status; gradients are then
// partial and the caller zeroes them. BeginPass(kTraining) is the caller's.
absl::StatusOr<WalkResult> WalkTraining(const WalkContext& context, const ModelInputs& inputs, const LossFunction& loss,
                                        bool want_hidden_states_grad, const std::function<absl::Status()>& stop);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_BLOCK_WALK_H_
