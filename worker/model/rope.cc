// SPDX-License-Identifier: Apache-2.0
#include "worker/model/rope.h"

#include <ATen/ATen.h>

namespace blockswap::worker {

RotaryTable RotaryTable::Tokens(int64_t first, int64_t count) const {
  return {cos_LP.narrow(0, first, count), sin_LP.narrow(0, first, count)};
}

RotaryTable MakeRotaryTable(const std::vector<std::vector<int64_t>>& positions_per_axis,
                            const std::vector<int64_t>& axes_dims, double theta, at::Device device) {
  std::vector<at::Tensor> angles;
  for (size_t axis = 0; axis < axes_dims.size(); ++axis) {
    const at::Tensor exponents =
        at::arange(0, axes_dims[axis], 2, at::kFloat).div(static_cast<double>(axes_dims[axis]));
    const at::Tensor frequencies = at::reciprocal(at::pow(theta, exponents));
    const at::Tensor positions = at::tensor(positions_per_axis[axis], at::kLong).to(at::kFloat);
    angles.push_back(at::outer(positions, frequencies));
  }
  const at::Tensor all = at::cat(angles, 1);
  return {at::cos(all).to(device), at::sin(all).to(device)};
}

at::Tensor RotatePairs(const at::Tensor& x_BLHD, const RotaryTable& table, bool inverse) {
  const at::Tensor pairs = x_BLHD.to(at::kFloat).unflatten(-1, {-1, 2});
  const at::Tensor even = pairs.select(-1, 0), odd = pairs.select(-1, 1);
  const at::Tensor cos = table.cos_LP.unsqueeze(1);
  const at::Tensor sin = inverse ? table.sin_LP.unsqueeze(1).neg() : table.sin_LP.unsqueeze(1);
  return at::stack({even * cos - odd * sin, even * sin + odd * cos}, -1).flatten(-2);
}

void HeadNormRotary(const at::Tensor& x_BLHD, const at::Tensor& weight_D, const RotaryTable& table, double eps,
                    at::Tensor y_BLHD) {
  const at::Tensor x = x_BLHD.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x.square().mean(-1, /*keepdim=*/true).add_(eps));
  const at::Tensor normed = (x * rstd * weight_D.to(at::kFloat)).to(x_BLHD.scalar_type());
  y_BLHD.copy_(RotatePairs(normed, table, /*inverse=*/false));
}

at::Tensor HeadNormRotaryBackward(const at::Tensor& grad_BLHD, const at::Tensor& x_BLHD, const at::Tensor& weight_D,
                                  const RotaryTable& table, double eps) {
  const at::Tensor normed_grad =
      RotatePairs(grad_BLHD, table, /*inverse=*/true).mul_(weight_D.to(at::kFloat));
  const at::Tensor x = x_BLHD.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x.square().mean(-1, /*keepdim=*/true).add_(eps));
  const at::Tensor unit = x * rstd;
  const at::Tensor along = (normed_grad * unit).mean(-1, /*keepdim=*/true);
  return (normed_grad - unit * along).mul_(rstd).to(x_BLHD.scalar_type());
}

}  // namespace blockswap::worker
