// SPDX-License-Identifier: Apache-2.0
#include "worker/objective/timesteps.h"

#include <cmath>

namespace blockswap::worker {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double UnitTime(const TrainingConfig& config, const TimeDraw& draw, int64_t latent_height,
                int64_t latent_width) {
  switch (config.timestep_sampling) {
    case TimestepSampling::kUniform:
      return draw.uniform;
    case TimestepSampling::kSigmoid:
      return Sigmoid(config.sigmoid_scale * draw.normal);
    case TimestepSampling::kShift:
      return ShiftTime(Sigmoid(config.sigmoid_scale * draw.normal), config.discrete_flow_shift);
    case TimestepSampling::kQwenShift:
      return ShiftTime(Sigmoid(config.sigmoid_scale * draw.normal),
                       QwenShift(latent_height, latent_width));
  }
  return draw.uniform;
}

}  // namespace

double ShiftTime(double time, double shift) { return shift * time / (1.0 + (shift - 1.0) * time); }

double QwenShift(int64_t latent_height, int64_t latent_width) {
  constexpr double kFirstTokens = 256, kFirstMu = 0.5, kLastTokens = 8192, kLastMu = 0.9;
  const double tokens = static_cast<double>((latent_height / 2) * (latent_width / 2));
  const double slope = (kLastMu - kFirstMu) / (kLastTokens - kFirstTokens);
  return std::exp(kFirstMu + slope * (tokens - kFirstTokens));
}

double SampleTime(const TrainingConfig& config, const TimeDraw& draw, int64_t latent_height,
                  int64_t latent_width) {
  const double unit = UnitTime(config, draw, latent_height, latent_width);
  const double low = config.min_timestep / 1000.0;
  const double high = config.max_timestep / 1000.0;
  return unit * (high - low) + low;
}

}  // namespace blockswap::worker
