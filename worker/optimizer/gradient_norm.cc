// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace blockswap::worker {
namespace {

constexpr int64_t kChunk = int64_t{1} << 15;  // 128 KiB of fp32: stays in the second-level cache
constexpr double kNormEpsilon = 1e-6;         // as torch's clip_grad_norm_

double SquaresOf(const float* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace

double SumOfSquares(const at::Tensor& flat) {
  const float* values = flat.const_data_ptr<float>();
  const int64_t count = flat.numel();
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  std::vector<double> sums(static_cast<size_t>(chunks));
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kChunk;
      sums[static_cast<size_t>(chunk)] = SquaresOf(values + first, std::min(kChunk, count - first));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

double GlobalNorm(const at::Tensor& flat) {
  if (flat.device().is_cpu()) return std::sqrt(SumOfSquares(flat));
  // In fp64 the squares of finite fp32 values cannot overflow.
  return at::linalg_vector_norm(flat, 2, c10::nullopt, /*keepdim=*/false, at::kDouble)
      .item<double>();
}

void ClipByNorm(const at::Tensor& gradients, double norm, double max_norm) {
  if (max_norm <= 0) return;
  const double scale = max_norm / (norm + kNormEpsilon);
  if (scale < 1.0) gradients.mul_(scale);
}

}  // namespace blockswap::worker
