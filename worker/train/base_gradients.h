// SPDX-License-Identifier: Apache-2.0
// Gradients of base weights: one block's at a time on the device, summed up on the host in fp32.
#ifndef BLOCKSWAP_WORKER_TRAIN_BASE_GRADIENTS_H_
#define BLOCKSWAP_WORKER_TRAIN_BASE_GRADIENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"
#include "offload/host/pinned_arena.h"
#include "worker/family/base_layout.h"
#include "worker/model/model.h"

namespace blockswap::worker {

// Note [Gradients down]
// One device buffer and one host buffer serve all blocks. d2h waits for compute (the gradient is
// made), copies, records `down`; compute waits for `down` before the next block's backward zeroes
// the buffer. The host adds what came down when the next block has run back, so that the copy and
// the sum of one block take place beside the backward of the next.
//
// Owns: on the device, one buffer in the model's type for the block that runs back and fp32 buffers
// for the edges, which every micro-batch adds to; on the host, fp32 sums of each unit, and what a
// gradient comes down into. A block's gradient of one micro-batch is rounded to the model's type
// once, as autograd's would be, and added in the order in which blocks ran back: so the sums have
// the same bits whatever the plan and the order of blocks and micro-batches. Thread safety: the
// trainer's thread. Errors: the device's. Throws c10::Error.
class BaseGradients {
 public:
  // `runtime` and `units` outlive the object. `lock`: page-lock the host buffer where the system
  // allows it. Device buffers are charged as activations, which is where the planner counts them
  // (ModelProfile::gradient_bytes). ResourceExhausted: no host memory.
  static absl::StatusOr<std::unique_ptr<BaseGradients>> Create(offload::DeviceRuntime* runtime,
                                                               const std::vector<BaseUnit>* units,
                                                               Dtype dtype, at::Device device,
                                                               bool lock);
  ~BaseGradients();
  BaseGradients(const BaseGradients&) = delete;
  BaseGradients& operator=(const BaseGradients&) = delete;

  // A step begins; what a step that ended early left is forgotten.
  void Zero();
  // Where the edges' gradients go: one fp32 view per edge tensor.
  const std::vector<at::Tensor>& edges() const { return edge_views_; }
  // Where the gradients of block `block` go, one view per tensor; all blocks share the memory.
  std::vector<at::Tensor> BlockViews(int block) const;
  // The block runs back for one micro-batch: its buffer is zeroed.
  absl::Status BeginBlock(int block);
  // It has run back: its gradient goes down.
  absl::Status EndBlock(int block);
  // All micro-batches of the step are done: the edges' sums come down.
  absl::Status Finish();

  // Sums of a unit since Zero, flat, fp32, on the host. REQUIRES: Finish came after the last walk.
  const at::Tensor& sum(int unit) const { return sums_[static_cast<size_t>(unit)]; }
  // The part of tensor `tensor` in a flat buffer of unit `unit`.
  at::Tensor View(const at::Tensor& flat, int unit, int tensor) const;
  int64_t locked_bytes() const { return staging_.locked_bytes(); }

 private:
  BaseGradients(offload::DeviceRuntime* runtime, const std::vector<BaseUnit>* units, Dtype dtype,
                at::Device device);
  absl::Status TakeStaging(bool lock);
  // Starts the way of device bytes into the host buffer.
  absl::Status StartDown(const at::Tensor& values);
  // Adds what came down last to its unit's sum.
  absl::Status AddArrived();

  offload::DeviceRuntime* const runtime_;
  const std::vector<BaseUnit>* const units_;
  at::Tensor block_, edges_;  // device, flat
  std::vector<at::Tensor> edge_views_;
  std::vector<at::Tensor> sums_;  // by unit
  std::vector<bool> has_sum_;     // by unit: something was added since Zero
  offload::PinnedArena staging_;
  offload::EventId made_ = offload::kNoEvent, down_ = offload::kNoEvent;
  bool went_down_ = false;  // `down_` was recorded
  int arriving_ = -1;       // unit whose gradient is on its way, or there and not added; -1: none
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_BASE_GRADIENTS_H_
