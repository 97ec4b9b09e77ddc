// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/model/tiny_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/types/span.h"
#include "offload/base/host_facts.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/io/safetensors.h"
#include "worker/kernels/counter_random.h"

namespace blockswap::worker::testing {
namespace {

QwenImageConfig ConfigOf(const TinyShape& shape) {
  QwenImageConfig config;
  config.patch_size = 2;
  config.in_channels = shape.in_channels;
  config.out_channels = shape.out_channels;
  config.num_layers = shape.layers;
  config.attention_head_dim = shape.head_dim;
  config.num_attention_heads = shape.heads;
  config.joint_attention_dim = shape.text_width;
  config.axes_dims_rope = shape.axes;
  config.zero_cond_t = shape.zero_cond_t;
  return config;
}

// Linears keep the size of their input; norm weights lie around 1.
at::Tensor RandomWeight(const TinyTensor& spec, int64_t sample) {
  if (spec.name.find("norm") != std::string::npos && spec.shape.size() == 1 &&
      spec.name.find("bias") == std::string::npos) {
    return RandomTensor(spec.shape, sample, 0.3).add_(1.0);
  }
  const double scale =
      spec.shape.size() == 2 ? 1.0 / std::sqrt(static_cast<double>(spec.shape[1])) : 0.2;
  return RandomTensor(spec.shape, sample, scale);
}

class ScratchDirectory {
 public:
  ScratchDirectory() : path_(::testing::TempDir() + "/tiny-model-XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

at::Tensor RandomTensor(std::vector<int64_t> shape, int64_t sample, double scale) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  const absl::Span<float> numbers(tensor.mutable_data_ptr<float>(),
                                  static_cast<size_t>(tensor.numel()));
  // Large tensors repeat a run whose length is prime, so that no row equals another: drawing them
  // all would take most of a test.
  const size_t drawn = std::min<size_t>(numbers.size(), 100'003);
  CounterRandom({kTestSeed, 0, sample, RandomPurpose::kTest}).FillNormal(numbers.first(drawn));
  for (size_t i = drawn; i < numbers.size(); ++i) numbers[i] = numbers[i - drawn];
  return tensor.mul_(scale);
}

TinyCheckpoint MakeTinyCheckpoint(const TinyShape& shape, Dtype dtype) {
  const QwenImageConfig config = ConfigOf(shape);
  const std::vector<TinyTensor> specs = TinyQwenImageTensors(config);
  std::vector<at::Tensor> values;
  std::vector<TensorToWrite> writes;
  for (const TinyTensor& spec : specs) {
    values.push_back(RandomWeight(spec, static_cast<int64_t>(values.size())));
    writes.push_back(
        {spec.name, StoredType::kF32, spec.shape,
         absl::MakeConstSpan(static_cast<const std::byte*>(values.back().const_data_ptr()),
                             values.back().nbytes())});
  }
  // The file stays mapped after its directory is gone.
  const ScratchDirectory scratch;
  const std::string weights = scratch.path() + "/weights.safetensors",
                    json = scratch.path() + "/config.json";
  EXPECT_TRUE(WriteSafetensors(weights, writes, {}).ok());
  std::ofstream(json) << ConfigJson(config);
  TinyCheckpoint checkpoint;
  auto source = CheckpointSource::Open(weights, json);
  EXPECT_TRUE(source.ok()) << source.status().message();
  checkpoint.source = *std::move(source);
  auto described = DescribeModel(**DetectFamily(*checkpoint.source), *checkpoint.source, dtype,
                                 shape.quantization);
  EXPECT_TRUE(described.ok()) << described.status().message();
  checkpoint.model = *std::move(described);
  (*DetectFamily(*checkpoint.source))->SetHostModulation(shape.host_modulation, &checkpoint.model);
  for (const DescribedBlock& block : checkpoint.model.blocks)
    checkpoint.profiles.push_back(PackBlock(block, dtype));
  return checkpoint;
}

Adapter MakeRandomAdapter(const ModelDescription& model, bool with_gradients) {
  AdapterLayout layout;
  for (const DescribedBlock& block : model.blocks) {
    for (const AdapterTarget& target : block.linears) {
      const int rank = 1 + (target.block + target.slot) % 4;
      std::string key = "lora_unet_" + target.path;
      for (char& c : key) c = c == '.' ? '_' : c;
      layout.modules.push_back({target, key, rank, 0.5 * rank});
    }
  }
  Adapter adapter = Adapter::Create(model, layout, at::kCPU, with_gradients);
  adapter.parameters().copy_(RandomTensor({layout.num_parameters()}, 77, 0.1));
  return adapter;
}

ModelInputs MakeInputs(const ModelDescription& model, int64_t batch,
                       std::vector<std::array<int64_t, 3>> images, int64_t text_tokens) {
  int64_t tokens = 0;
  for (const auto& [frames, height, width] : images) tokens += frames * height * width;
  ModelInputs inputs;
  inputs.hidden_states_BSC = RandomTensor({batch, tokens, model.qwen_image.in_channels}, 1001);
  inputs.timestep_B = at::linspace(0.3, 0.8, batch, at::TensorOptions().dtype(at::kFloat));
  inputs.encoder_hidden_states_BTJ = RandomTensor({batch, text_tokens, model.text_features}, 1002);
  inputs.img_shapes = std::move(images);
  return inputs;
}

std::unique_ptr<offload::HostDevice> MakeHostDevice(offload::HostDeviceOptions options) {
  auto device = offload::HostDevice::Create(options);
  EXPECT_TRUE(device.ok()) << device.status().message();
  return *std::move(device);
}

std::unique_ptr<offload::BlockSwapper> MakeSwapper(const TinyCheckpoint& checkpoint,
                                                   const Placement& placement,
                                                   offload::DeviceRuntime* device) {
  const base::HostFacts host = base::ReadHostFacts();
  const TokenCounts tokens{64, 16, 2};
  offload::PlanRequest request;
  request.model = (*DetectFamily(*checkpoint.source))
                      ->Profile(checkpoint.model, {}, absl::MakeConstSpan(&tokens, 1));
  request.device_free_bytes = device->facts().free_bytes;
  request.host_available_bytes = host.available_bytes;
  request.lockable_bytes = host.lockable_bytes;
  request.constraints.blocks_to_swap = placement.blocks_to_swap;
  request.constraints.ring_size = placement.ring_size;
  request.constraints.mode = placement.mode;
  request.constraints.pin_policy = placement.pin_policy;
  request.constraints.granularity = placement.granularity;
  auto plan = offload::Plan(request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const auto read_block = [&](int block, absl::Span<std::byte> destination) {
    const auto index = static_cast<size_t>(block);
    return ReadPackedBlock(*checkpoint.source, checkpoint.model.blocks[index],
                           checkpoint.profiles[index], checkpoint.model.dtype, destination);
  };
  auto swapper =
      offload::BlockSwapper::Create(device, *std::move(plan), checkpoint.profiles, read_block);
  EXPECT_TRUE(swapper.ok()) << swapper.status().message();
  return *std::move(swapper);
}

}  // namespace blockswap::worker::testing
