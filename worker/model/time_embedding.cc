// SPDX-License-Identifier: Apache-2.0
#include "worker/model/time_embedding.h"

#include <ATen/ATen.h>

#include <cmath>

namespace blockswap::worker {

at::Tensor Sinusoid(const at::Tensor& time_N, int64_t width, double multiplier) {
  const int64_t half = width / 2;
  const at::TensorOptions fp32 = time_N.options().dtype(at::kFloat);
  const at::Tensor frequencies =
      at::exp(at::arange(half, fp32).mul_(-std::log(10000.0)).div_(static_cast<double>(half)));
  const at::Tensor angles = at::outer(time_N.to(at::kFloat), frequencies).mul_(multiplier);
  return at::cat({angles.cos(), angles.sin()}, -1);
}

}  // namespace blockswap::worker
