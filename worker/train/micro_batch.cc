// SPDX-License-Identifier: Apache-2.0
#include "worker/train/micro_batch.h"

#include <ATen/ATen.h>

#include "absl/types/span.h"
#include "worker/kernels/counter_random.h"
#include "worker/kernels/device_memory.h"
#include "worker/model/dtype.h"
#include "worker/objective/flow_matching.h"
#include "worker/objective/packing.h"
#include "worker/objective/timesteps.h"

namespace blockswap::worker {
namespace {

TimeDraw DrawTime(const RandomKey& key) {
  const CounterRandom random(key);
  float normal = 0;
  random.FillNormal(absl::MakeSpan(&normal, 1));
  return {random.Uniform(0), static_cast<double>(normal)};
}

// One stream per sample, filled in the latent's own order: independent of how samples are grouped.
at::Tensor DrawNoise(const LoadedBatch& batch, int64_t seed, const DrawPosition& position) {
  at::Tensor noise_BCHW = at::empty_like(batch.latents_BCHW, at::MemoryFormat::Contiguous);
  const int64_t per_sample = noise_BCHW.numel() / noise_BCHW.size(0);
  for (int64_t i = 0; i < noise_BCHW.size(0); ++i) {
    const CounterRandom random(
        {seed, position.step, position.first_sample + i, RandomPurpose::kNoise});
    random.FillNormal(absl::MakeSpan(noise_BCHW.data_ptr<float>() + i * per_sample,
                                     static_cast<size_t>(per_sample)));
  }
  return noise_BCHW;
}

at::Tensor OnDevice(const at::Tensor& host, at::Device device, at::ScalarType type) {
  return host.to(device, type, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

MicroBatch MakeMicroBatch(const LoadedBatch& batch, const TrainingConfig& training,
                          const ModelDescription& model, const DrawPosition& position,
                          at::Device device) {
  const int64_t height = batch.latents_BCHW.size(2), width = batch.latents_BCHW.size(3);
  MicroBatch result;
  result.names = batch.names;
  NoisedTokens noised;
  {
    const HostMemoryScope host_side;
    for (int64_t i = 0; i < batch.latents_BCHW.size(0); ++i) {
      const TimeDraw draw = DrawTime(
          {training.seed, position.step, position.first_sample + i, RandomPurpose::kTimestep});
      result.times.push_back(SampleTime(training, draw, height, width));
    }
    noised = AddNoise(PackLatents(batch.latents_BCHW, model.patch),
                      PackLatents(DrawNoise(batch, training.seed, position), model.patch),
                      result.times, training.musubi_timestep_offset);
  }
  const at::ScalarType compute = ToScalarType(model.dtype);
  result.inputs.hidden_states_BSC = OnDevice(noised.noised_BSF, device, compute);
  result.inputs.timestep_B = OnDevice(noised.time_B, device, at::kFloat);
  result.inputs.encoder_hidden_states_BTJ = OnDevice(batch.text_BTJ, device, compute);
  if (batch.text_mask_BT.defined()) {
    result.inputs.encoder_mask_BT = OnDevice(batch.text_mask_BT, device, at::kLong);
  }
  result.inputs.img_shapes = {{1, height / model.patch, width / model.patch}};
  result.target_BSF = OnDevice(noised.target_BSF, device, at::kFloat);
  return result;
}

}  // namespace blockswap::worker
