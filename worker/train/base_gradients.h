// SPDX-License-Identifier: Apache-2.0
// Gradients of base weights: one block's at a time on the device, summed up on the host in fp32.
#ifndef BLOCKSWAP_WORKER_TRAIN_BASE_GRADIENTS_H_
#define BLOCKSWAP_WORKER_TRAIN_BASE_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/family/base_layout.h"
#include "worker/model/model.h"

namespace blockswap::worker {

// Owns: on the device, one buffer in the model's type for the block that runs back and fp32 buffers
// for the edges, which every micro-batch adds to; on the host, fp32 sums of each unit. A block's
// gradient of one micro-batch is rounded to the model's type once, as autograd's would be, and
// leaves the device before the next block's begins: so the sums have the same bits whatever the
// plan and the order of blocks and micro-batches. Thread safety: the trainer's thread. Throws
// c10::Error.
class BaseGradients {
 public:
  // `units` outlive the object. Device buffers are charged as activations, which is where the
  // planner counts them (ModelProfile::gradient_bytes).
  BaseGradients(const std::vector<BaseUnit>* units, Dtype dtype, at::Device device);

  // A step begins.
  void Zero();
  // Where the edges' gradients go: one fp32 view per edge tensor.
  const std::vector<at::Tensor>& edges() const { return edge_views_; }
  // Where the gradients of block `block` go, one view per tensor; all blocks share the memory.
  std::vector<at::Tensor> BlockViews(int block) const;
  // The block runs back for one micro-batch: its buffer is zeroed.
  void BeginBlock(int block);
  // It has run back.
  void EndBlock(int block);
  // All micro-batches of the step are done: the edges' sums come down.
  void Finish();

  // Sums of a unit since Zero, flat, fp32, on the host. REQUIRES: Finish came after the last walk.
  const at::Tensor& sum(int unit) const { return sums_[static_cast<size_t>(unit)]; }
  // The part of tensor `tensor` in a flat buffer of unit `unit`.
  at::Tensor View(const at::Tensor& flat, int unit, int tensor) const;

 private:
  const std::vector<BaseUnit>* units_;
  at::Tensor block_, edges_;  // device, flat
  std::vector<at::Tensor> edge_views_;
  std::vector<at::Tensor> sums_;  // by unit
  std::vector<bool> has_sum_;     // by unit: something was added since Zero
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_BASE_GRADIENTS_H_
