// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler/flow_sampler.h"

#include <utility>

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/counter_random.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/model/dtype.h"
#include "worker/objective/packing.h"
#include "worker/objective/timesteps.h"
#include "worker/train/batch_loader.h"

namespace blockswap::worker {
namespace {

struct LatentSize {
  int64_t channels, height, width;
};

LatentSize SizeOf(const SamplePrompt& prompt, const ModelDescription& model) {
  return {model.latent_channels, prompt.height / model.vae_scale, prompt.width / model.vae_scale};
}

at::Tensor StartingNoise(const LatentSize& size, int64_t seed) {
  at::Tensor noise_BCHW = at::empty({1, size.channels, size.height, size.width}, at::kFloat);
  CounterRandom({seed, /*step=*/0, /*sample=*/0, RandomPurpose::kSampleNoise})
      .FillNormal(
          absl::MakeSpan(noise_BCHW.data_ptr<float>(), static_cast<size_t>(noise_BCHW.numel())));
  return noise_BCHW;
}

// One forward-only pass; its result on the host. What the pass allocates counts as activations of
// the device.
absl::StatusOr<at::Tensor> Velocity(const WalkContext& context, const at::Tensor& tokens_BSF,
                                    double time, ModelInputs* inputs) {
  const MemoryScope device_side(offload::MemoryTag::kActivations);
  inputs->hidden_states_BSC =
      tokens_BSF.to(context.device, ToScalarType(context.description->dtype));
  inputs->timestep_B = at::full({1}, time, at::kFloat).to(context.device);
  BLOCKSWAP_RETURN_IF_ERROR(context.swapper->BeginPass(offload::PassKind::kForwardOnly));
  BLOCKSWAP_ASSIGN_OR_RETURN(const WalkResult walk, WalkForward(context, *inputs));
  const HostMemoryScope host_side;
  return walk.output.to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

std::vector<double> SamplingTimes(int64_t steps, double shift) {
  std::vector<double> times;
  for (int64_t i = 0; i <= steps; ++i) {
    times.push_back(ShiftTime(1.0 - static_cast<double>(i) / static_cast<double>(steps), shift));
  }
  return times;
}

double SamplingShift(const SamplePrompt& prompt, const TrainingConfig& training,
                     int64_t latent_height, int64_t latent_width) {
  if (prompt.flow_shift > 0) return prompt.flow_shift;
  switch (training.timestep_sampling) {
    case TimestepSampling::kShift:
      return training.discrete_flow_shift;
    case TimestepSampling::kQwenShift:
      return QwenShift(latent_height, latent_width);
    case TimestepSampling::kUniform:
    case TimestepSampling::kSigmoid:
      return 1.0;
  }
  return 1.0;
}

absl::StatusOr<at::Tensor> SampleLatent(const WalkContext& context, const SamplePrompt& prompt,
                                        const TrainingConfig& training,
                                        const std::function<absl::Status()>& stop) {
  const ModelDescription& model = *context.description;
  const LatentSize size = SizeOf(prompt, model);
  const std::vector<double> times =
      SamplingTimes(prompt.steps, SamplingShift(prompt, training, size.height, size.width));
  at::Tensor tokens_BSF;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    const HostMemoryScope host_side;
    BLOCKSWAP_ASSIGN_OR_RETURN(
        const at::Tensor text_BTJ,
        LoadText(prompt.text_cache_path, prompt.text_key, prompt.text_tokens));
    tokens_BSF = PackLatents(StartingNoise(size, prompt.seed), model.patch);
    ModelInputs inputs;
    inputs.encoder_hidden_states_BTJ = text_BTJ.to(context.device, ToScalarType(model.dtype));
    inputs.img_shapes = {{1, size.height / model.patch, size.width / model.patch}};
    for (size_t i = 0; i + 1 < times.size(); ++i) {
      BLOCKSWAP_RETURN_IF_ERROR(stop());
      BLOCKSWAP_ASSIGN_OR_RETURN(const at::Tensor velocity_BSF,
                                 Velocity(context, tokens_BSF, times[i], &inputs));
      tokens_BSF = tokens_BSF + velocity_BSF * (times[i + 1] - times[i]);
    }
    tokens_BSF = UnpackLatents(tokens_BSF, size.height, size.width, model.patch);
    return absl::OkStatus();
  }));
  return tokens_BSF[0];
}

}  // namespace blockswap::worker
