// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler/flow_sampler.h"

#include <map>
#include <tuple>
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

// One latent under way.
struct Drawing {
  LatentSize size;
  std::vector<double> times;
  at::Tensor tokens_BSF;  // on the host
};

// The next passes of drawings that walk together; their results on the host. What the passes
// allocate counts as activations of the device.
absl::StatusOr<std::vector<at::Tensor>> Velocities(const WalkContext& context, size_t step,
                                                   const std::vector<Drawing>& drawings,
                                                   std::vector<ModelInputs>* inputs) {
  const MemoryScope device_side(offload::MemoryTag::kActivations);
  for (size_t i = 0; i < drawings.size(); ++i) {
    (*inputs)[i].hidden_states_BSC =
        drawings[i].tokens_BSF.to(context.device, ToScalarType(context.description->dtype));
    (*inputs)[i].timestep_B = at::full({1}, drawings[i].times[step], at::kFloat).to(context.device);
  }
  BLOCKSWAP_RETURN_IF_ERROR(context.swapper->BeginPass(offload::PassKind::kForwardOnly));
  BLOCKSWAP_ASSIGN_OR_RETURN(std::vector<at::Tensor> velocities_BSF,
                             WalkForwardTogether(context, *inputs));
  const HostMemoryScope host_side;
  for (at::Tensor& velocity : velocities_BSF) {
    velocity = velocity.to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
  return velocities_BSF;
}

// Starts a drawing and fills in what its model inputs keep over all steps.
absl::StatusOr<Drawing> StartDrawing(const WalkContext& context, const SamplePrompt& prompt,
                                     const TrainingConfig& training, ModelInputs* inputs) {
  const ModelDescription& model = *context.description;
  Drawing drawing;
  drawing.size = SizeOf(prompt, model);
  const LatentSize& size = drawing.size;
  drawing.times =
      SamplingTimes(prompt.steps, SamplingShift(prompt, training, size.height, size.width));
  BLOCKSWAP_ASSIGN_OR_RETURN(const at::Tensor text_BTJ,
                             LoadText(prompt.text_cache_path, prompt.text_key, prompt.text_tokens));
  drawing.tokens_BSF = PackLatents(StartingNoise(size, prompt.seed), model.patch);
  inputs->encoder_hidden_states_BTJ = text_BTJ.to(context.device, ToScalarType(model.dtype));
  inputs->img_shapes = {{1, size.height / model.patch, size.width / model.patch}};
  return drawing;
}

// All prompts have one number of steps.
absl::Status DrawTogether(const WalkContext& context, absl::Span<const SamplePrompt* const> prompts,
                          const TrainingConfig& training, const std::function<absl::Status()>& stop,
                          std::vector<at::Tensor>* latents_CHW) {
  const HostMemoryScope host_side;
  std::vector<ModelInputs> inputs(prompts.size());
  std::vector<Drawing> drawings;
  for (size_t i = 0; i < prompts.size(); ++i) {
    BLOCKSWAP_ASSIGN_OR_RETURN(Drawing drawing,
                               StartDrawing(context, *prompts[i], training, &inputs[i]));
    drawings.push_back(std::move(drawing));
  }
  for (size_t step = 0; step + 1 < drawings.front().times.size(); ++step) {
    BLOCKSWAP_RETURN_IF_ERROR(stop());
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> velocities_BSF,
                               Velocities(context, step, drawings, &inputs));
    for (size_t i = 0; i < drawings.size(); ++i) {
      Drawing& drawing = drawings[i];
      const double stride = drawing.times[step + 1] - drawing.times[step];
      drawing.tokens_BSF = drawing.tokens_BSF + velocities_BSF[i] * stride;
    }
  }
  for (const Drawing& drawing : drawings) {
    latents_CHW->push_back(UnpackLatents(drawing.tokens_BSF, drawing.size.height,
                                         drawing.size.width, context.description->patch)[0]);
  }
  return absl::OkStatus();
}

// Indices of prompts that may walk together, a few at a time: each brings its own hidden states and
// conditioning, which stay on the device for the whole pass.
constexpr size_t kMaxTogether = 4;
std::vector<std::vector<size_t>> GroupAlike(const std::vector<SamplePrompt>& prompts) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, size_t> open;  // group that takes more
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const SamplePrompt& prompt = prompts[i];
    const auto [found, is_new] =
        open.try_emplace({prompt.width, prompt.height, prompt.steps}, groups.size());
    if (is_new || groups[found->second].size() == kMaxTogether) {
      found->second = groups.size();
      groups.emplace_back();
    }
    groups[found->second].push_back(i);
  }
  return groups;
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

absl::StatusOr<std::vector<at::Tensor>> SampleLatents(const WalkContext& context,
                                                      const std::vector<SamplePrompt>& prompts,
                                                      const TrainingConfig& training,
                                                      const std::function<absl::Status()>& stop) {
  std::vector<at::Tensor> latents_CHW(prompts.size());
  const auto draw = [&](absl::Span<const size_t> group) {
    std::vector<const SamplePrompt*> members;
    for (const size_t index : group) members.push_back(&prompts[index]);
    std::vector<at::Tensor> drawn;
    const absl::Status status =
        RunContained([&] { return DrawTogether(context, members, training, stop, &drawn); });
    for (size_t i = 0; i < drawn.size(); ++i) latents_CHW[group[i]] = std::move(drawn[i]);
    return status;
  };
  for (const std::vector<size_t>& group : GroupAlike(prompts)) {
    absl::Status drawn = draw(group);
    // Memory for one was there when nobody planned for several.
    if (absl::IsResourceExhausted(drawn) && group.size() > 1) {
      drawn = absl::OkStatus();
      for (size_t i = 0; i < group.size() && drawn.ok(); ++i) {
        drawn = draw(absl::MakeConstSpan(&group[i], 1));
      }
    }
    BLOCKSWAP_RETURN_IF_ERROR(drawn);
  }
  return latents_CHW;
}

}  // namespace blockswap::worker
