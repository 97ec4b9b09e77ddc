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
  update_counter_.fill_(static_cast<double>(updates_ + 1));
  at::_fused_adamw_({parameters_}, {gradients}, {first_moment_}, {second_moment_},
                    /*max_exp_avg_sqs=*/{}, {update_counter_}, learning_rate, config_.beta1,
                    config_.beta2, config_.weight_decay, config_.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
  ++updates_;  // last: an update that found no memory has changed nothing and does not count
}

}  // namespace blockswap::worker
