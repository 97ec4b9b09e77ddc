// SPDX-License-Identifier: Apache-2.0
// Rotary position tables, and the per-head RMS norm and rotation of queries and keys that use them.
//
// Shape legend: B batch, L tokens, H heads, D head width, P = D / 2 rotated pairs.
#ifndef BLOCKSWAP_WORKER_MODEL_ROPE_H_
#define BLOCKSWAP_WORKER_MODEL_ROPE_H_

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace blockswap::worker {

// Interleaved form: pair (2j, 2j + 1) of a head turns by angle(position, j). fp32 whatever the
// model's type.
struct RotaryTable {
  at::Tensor cos_LP, sin_LP;
  RotaryTable Tokens(int64_t first, int64_t count) const;
};

// Positions of every token on every axis, and the width each axis takes of the head; angle =
// position * theta^(-2j / width).
RotaryTable MakeRotaryTable(const std::vector<std::vector<int64_t>>& positions_per_axis,
                            const std::vector<int64_t>& axes_dims, double theta, at::Device device);

// Rotates each pair of x by its angle, or by minus its angle. Computed in fp32, returned in fp32.
at::Tensor RotatePairs(const at::Tensor& x_BLHD, const RotaryTable& table, bool inverse);

// y = rotate(x * rsqrt(mean(x^2) + eps) * weight): normalised and weighted in fp32, rounded to x's
// type, rotated in fp32, rounded again (order B of facts/architectures.md 2.1). Writes into `y`,
// which may be a slice of a joint buffer.
void HeadNormRotary(const at::Tensor& x_BLHD, const at::Tensor& weight_D, const RotaryTable& table,
                    double eps, at::Tensor y_BLHD);
// Gradient of x for the gradient of y.
at::Tensor HeadNormRotaryBackward(const at::Tensor& grad_BLHD, const at::Tensor& x_BLHD,
                                  const at::Tensor& weight_D, const RotaryTable& table, double eps);
// Gradient of the weight, [D] in fp32.
at::Tensor HeadNormWeightGradient(const at::Tensor& grad_BLHD, const at::Tensor& x_BLHD,
                                  const RotaryTable& table, double eps);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_ROPE_H_
