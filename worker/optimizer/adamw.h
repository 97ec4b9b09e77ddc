// SPDX-License-Identifier: Apache-2.0
// AdamW on one flat fp32 parameter buffer, by LibTorch's fused kernel.
#ifndef BLOCKSWAP_WORKER_OPTIMIZER_ADAMW_H_
#define BLOCKSWAP_WORKER_OPTIMIZER_ADAMW_H_

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "worker/config/train_config.h"

namespace blockswap::worker {

// Owns: both moments, as large as the parameters, on their device. Thread safety: the trainer's
// thread. Throws c10::Error.
class AdamW {
 public:
  AdamW(at::Tensor parameters, const AdamWConfig& config);

  // REQUIRES: `gradients` is finite and shaped as the parameters.
  void Step(const at::Tensor& gradients, double learning_rate);

  // State for checkpoints. `updates` counts calls of Step since training began: bias correction
  // depends on it.
  at::Tensor first_moment() const { return first_moment_; }
  at::Tensor second_moment() const { return second_moment_; }
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  const AdamWConfig config_;
  at::Tensor parameters_;
  at::Tensor first_moment_, second_moment_;
  at::Tensor update_counter_;  // fp32 scalar on the device, the form the kernel wants
  int64_t updates_ = 0;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_OPTIMIZER_ADAMW_H_
