// SPDX-License-Identifier: Apache-2.0
#include "worker/objective/flow_matching.h"

#include <ATen/ATen.h>

namespace blockswap::worker {
namespace {

constexpr double kMusubiTimeOffset = 1.0 / 1000.0;

at::Tensor TimesTensor(const std::vector<double>& times, double offset) {
  at::Tensor time_B = at::empty({static_cast<int64_t>(times.size())}, at::kFloat);
  for (size_t i = 0; i < times.size(); ++i) {
    time_B.data_ptr<float>()[i] = static_cast<float>(times[i] + offset);
  }
  return time_B;
}

}  // namespace

NoisedTokens AddNoise(const at::Tensor& clean_BSF, const at::Tensor& noise_BSF,
                      const std::vector<double>& times, bool musubi_offset) {
  const at::Tensor time_B11 = TimesTensor(times, 0).view({-1, 1, 1});
  NoisedTokens result;
  result.noised_BSF = (1.0 - time_B11) * clean_BSF + time_B11 * noise_BSF;
  result.target_BSF = noise_BSF - clean_BSF;
  result.time_B = TimesTensor(times, musubi_offset ? kMusubiTimeOffset : 0);
  return result;
}

LossValue MeanSquaredError(const at::Tensor& output_BSF, const at::Tensor& target_BSF,
                           double weight) {
  const at::Tensor difference_BSF = output_BSF.to(at::kFloat) - target_BSF;
  const at::Tensor per_sample_B =
      difference_BSF.square().flatten(1).mean(1).to(at::kDouble).to(at::kCPU);
  LossValue loss;
  loss.per_sample.assign(per_sample_B.data_ptr<double>(),
                         per_sample_B.data_ptr<double>() + per_sample_B.numel());
  for (const double value : loss.per_sample) {
    loss.mean += value / static_cast<double>(loss.per_sample.size());
  }
  const double scale = 2.0 * weight / static_cast<double>(difference_BSF.numel());
  loss.output_gradient_BSF = (difference_BSF * scale).to(output_BSF.scalar_type());
  return loss;
}

}  // namespace blockswap::worker
