// SPDX-License-Identifier: Apache-2.0
#include "worker/model/rope.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/kernels/head_norm_rotary.h"
#include "worker/kernels/parallel_rows.h"

namespace blockswap::worker {
namespace {

// Below this many numbers a second thread costs more than it saves.
constexpr int64_t kNumbersPerTask = 32768;

// Tokens whose fp32 copies a weight gradient holds at a time; fixed, because the order of the sum
// decides its bits.
constexpr int64_t kTokensPerSum = 1024;

// The kernel wants contiguous rows of heads in one of its types.
bool HasFusedRows(const at::Tensor& x_BLHD) {
  return x_BLHD.is_cpu() &&
         (x_BLHD.scalar_type() == at::kFloat || x_BLHD.scalar_type() == at::kBFloat16) &&
         x_BLHD.size(3) <= kMaxFusedHeadWidth && x_BLHD.stride(3) == 1 &&
         x_BLHD.stride(2) == x_BLHD.size(3);
}

template <typename T>
HeadRows<const T> Rows(const at::Tensor& x_BLHD) {
  return {static_cast<const T*>(x_BLHD.const_data_ptr()), x_BLHD.stride(0), x_BLHD.stride(1)};
}
template <typename T>
HeadRows<T> MutableRows(const at::Tensor& x_BLHD) {
  return {static_cast<T*>(x_BLHD.mutable_data_ptr()), x_BLHD.stride(0), x_BLHD.stride(1)};
}

// Calls run(T{}, shape, first, last) in the number type of x for ranges of (batch, token) rows.
template <typename Run>
void ForHeadRows(const at::Tensor& x_BLHD, const at::Tensor& weight_D, const RotaryTable& table,
                 double eps, const Run& run) {
  const at::Tensor weight = weight_D.to(at::kFloat).contiguous();
  const at::Tensor cos = table.cos_LP.contiguous(), sin = table.sin_LP.contiguous();
  const HeadNormRotaryShape shape{x_BLHD.size(1),
                                  x_BLHD.size(2),
                                  x_BLHD.size(3),
                                  cos.const_data_ptr<float>(),
                                  sin.const_data_ptr<float>(),
                                  weight.const_data_ptr<float>(),
                                  static_cast<float>(eps)};
  const int64_t grain = std::max<int64_t>(1, kNumbersPerTask / (shape.heads * shape.width));
  ParallelRows(x_BLHD.size(0) * x_BLHD.size(1), grain, [&](int64_t first, int64_t last) {
    if (x_BLHD.scalar_type() == at::kFloat) {
      run(float{}, shape, first, last);
    } else {
      run(uint16_t{}, shape, first, last);
    }
  });
}

}  // namespace

RotaryTable RotaryTable::Tokens(int64_t first, int64_t count) const {
  return {cos_LP.narrow(0, first, count), sin_LP.narrow(0, first, count)};
}

RotaryTable MakeRotaryTable(const std::vector<std::vector<int64_t>>& positions_per_axis,
                            const std::vector<int64_t>& axes_dims, double theta,
                            at::Device device) {
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
  // In place: one product of half the size at a time is all there is beside the result.
  const at::Tensor rotated = at::empty(pairs.sizes(), pairs.options());
  at::Tensor first = rotated.select(-1, 0), second = rotated.select(-1, 1);
  at::mul_out(first, even, cos).sub_(odd * sin);
  at::mul_out(second, even, sin).add_(odd * cos);
  return rotated.flatten(-2);
}

void HeadNormRotary(const at::Tensor& x_BLHD, const at::Tensor& weight_D, const RotaryTable& table,
                    double eps, at::Tensor y_BLHD) {
  if (HasFusedRows(x_BLHD) && HasFusedRows(y_BLHD)) {
    ForHeadRows(x_BLHD, weight_D, table, eps,
                [&](auto type, const auto& shape, int64_t first, int64_t last) {
                  using T = decltype(type);
                  HeadNormRotaryRows(shape, Rows<T>(x_BLHD), MutableRows<T>(y_BLHD), first, last);
                });
    return;
  }
  const at::Tensor x = x_BLHD.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x.square().mean(-1, /*keepdim=*/true).add_(eps));
  const at::Tensor normed = (x * rstd * weight_D.to(at::kFloat)).to(x_BLHD.scalar_type());
  y_BLHD.copy_(RotatePairs(normed, table, /*inverse=*/false));
}

at::Tensor HeadNormRotaryBackward(const at::Tensor& grad_BLHD, const at::Tensor& x_BLHD,
                                  const at::Tensor& weight_D, const RotaryTable& table,
                                  double eps) {
  if (HasFusedRows(grad_BLHD) && HasFusedRows(x_BLHD)) {
    at::Tensor x_grad = at::empty(x_BLHD.sizes(), x_BLHD.options());
    ForHeadRows(x_BLHD, weight_D, table, eps,
                [&](auto type, const auto& shape, int64_t first, int64_t last) {
                  using T = decltype(type);
                  HeadNormRotaryBackwardRows(shape, Rows<T>(grad_BLHD), Rows<T>(x_BLHD),
                                             MutableRows<T>(x_grad), first, last);
                });
    return x_grad;
  }
  const at::Tensor normed_grad =
      RotatePairs(grad_BLHD, table, /*inverse=*/true).mul_(weight_D.to(at::kFloat));
  const at::Tensor x = x_BLHD.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(x.square().mean(-1, /*keepdim=*/true).add_(eps));
  const at::Tensor unit = x * rstd;
  const at::Tensor along = (normed_grad * unit).mean(-1, /*keepdim=*/true);
  return (normed_grad - unit * along).mul_(rstd).to(x_BLHD.scalar_type());
}

at::Tensor HeadNormWeightGradient(const at::Tensor& grad_BLHD, const at::Tensor& x_BLHD,
                                  const RotaryTable& table, double eps) {
  at::Tensor sum_D = at::zeros({x_BLHD.size(3)}, x_BLHD.options().dtype(at::kFloat));
  for (int64_t first = 0; first < x_BLHD.size(1); first += kTokensPerSum) {
    const int64_t count = std::min(kTokensPerSum, x_BLHD.size(1) - first);
    const at::Tensor x = x_BLHD.narrow(1, first, count);
    // Two and a half fp32 copies at a time: Note [Activation estimate] relies on few.
    const at::Tensor rstd =
        at::rsqrt(x.to(at::kFloat).square().mean(-1, /*keepdim=*/true).add_(eps));
    at::Tensor normed_grad = RotatePairs(grad_BLHD.narrow(1, first, count),
                                         table.Tokens(first, count), /*inverse=*/true);
    sum_D.add_(normed_grad.mul_(x.to(at::kFloat)).mul_(rstd).sum({0, 1, 2}));
  }
  return sum_D;
}

}  // namespace blockswap::worker
