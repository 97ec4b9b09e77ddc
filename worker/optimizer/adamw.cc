// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/adamw.h"

#include <utility>

#include <ATen/ATen.h>

namespace blockswap::worker {

AdamW::AdamW(at::Tensor parameters, const AdamWConfig& config)
    : config_(config),
      parameters_(std::move(parameters)),
      first_moment_(at::zeros_like(parameters_)),
      second_moment_(at::zeros_like(parameters_)),
      update_counter_(at::zeros({}, parameters_.options())) {}

void AdamW::Step(const at::Tensor& gradients, double learning_rate) {
  ++updates_;
  update_counter_.fill_(static_cast<double>(updates_));
  at::_fused_adamw_({parameters_}, {gradients}, {first_moment_}, {second_moment_},
                    /*max_exp_avg_sqs=*/{}, {update_counter_}, learning_rate, config_.beta1,
                    config_.beta2, config_.weight_decay, config_.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
}

}  // namespace blockswap::worker
