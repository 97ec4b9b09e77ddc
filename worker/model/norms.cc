// SPDX-License-Identifier: Apache-2.0
#include "worker/model/norms.h"

#include <ATen/ATen.h>

namespace blockswap::worker {

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::NoGradGuard no_grad;
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true).add_(eps));
  return (wide * rstd * weight.to(at::kFloat)).to(x.scalar_type());
}

at::Tensor RmsNormWeightGradient(const at::Tensor& grad, const at::Tensor& x, double eps) {
  const at::NoGradGuard no_grad;
  const at::Tensor wide = x.reshape({-1, x.size(-1)}).to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true).add_(eps));
  return (grad.reshape({-1, x.size(-1)}).to(at::kFloat) * wide).mul_(rstd).sum(0);
}

}  // namespace blockswap::worker
