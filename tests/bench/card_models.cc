// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/card_models.h"

#include "absl/strings/str_cat.h"

namespace blockswap::bench {
namespace {

constexpr int64_t kWeightBytes = 2;  // bf16
constexpr int64_t kRank = 16;
// Weight, gradient, two moments, all fp32.
constexpr int64_t kTrainedBytes = 8, kOptimizerBytes = 8;
// Values of the residual stream's size that one block's recompute and backward hold at once: qkv,
// attention, four widths of the MLP, and the gradients of as much. An estimate; it is the same for
// every policy.
constexpr int64_t kBlockActivations = 34;

int64_t RoundUp(int64_t bytes) {
  return (bytes + offload::kTensorAlignment - 1) / offload::kTensorAlignment *
         offload::kTensorAlignment;
}

// Two operations a weight and token, and the two products of attention.
double ForwardFlops(const CardModel& model, const BlockShape& shape) {
  const double tokens = static_cast<double>(model.tokens);
  const double used = static_cast<double>(shape.parameters - shape.modulation_parameters);
  // A double block has two streams of equal size, and each token passes one of them.
  return 2 * used / shape.streams * tokens +
         4 * tokens * tokens * static_cast<double>(model.attention_width);
}

// Parameters of a linear with a bias.
constexpr int64_t Linear(int64_t in, int64_t out) { return in * out + out; }

std::vector<int64_t> Repeat(int times, int64_t parameters) {
  return std::vector<int64_t>(static_cast<size_t>(times), parameters);
}

std::vector<int64_t> Join(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void AddTensor(int64_t parameters, offload::BlockProfile* block) {
  const int64_t bytes = parameters * kWeightBytes;
  block->tensors.push_back({block->bytes, bytes});
  block->bytes += RoundUp(bytes);
}

// A layer for each linear, and one tensor of what is left over. A backward asks for them again in
// the forward's order, to recompute, and then back.
offload::BlockProfile PackShape(const BlockShape& shape, bool host_modulation) {
  std::vector<int64_t> linears;
  if (!host_modulation && shape.modulation_parameters > 0) {
    linears = Repeat(shape.streams, shape.modulation_parameters / shape.streams);
  }
  linears.insert(linears.end(), shape.linears.begin(), shape.linears.end());
  offload::BlockProfile block;
  int64_t rest = shape.parameters - shape.modulation_parameters;
  for (const int64_t parameters : shape.linears) rest -= parameters;
  for (const int64_t parameters : linears) {
    const int layer = static_cast<int>(block.layers.size());
    const int64_t offset = block.bytes;
    AddTensor(parameters, &block);
    block.layers.push_back({{layer}, offset, block.bytes - offset});
    block.forward_layers.push_back(layer);
  }
  AddTensor(rest, &block);
  block.backward_layers = block.forward_layers;
  block.backward_layers.insert(block.backward_layers.end(), block.forward_layers.rbegin() + 1,
                               block.forward_layers.rend());
  return block;
}

}  // namespace

std::vector<CardModel> CardModels() {
  // Section 2.5: parameters a block and in all, LoRA parameters a rank. Modulation: 3.2 and 5.2
  // (two linears 3072 -> 18432, one 3072 -> 9216 in a single block), 7.4 (2688 -> 96768). Wan has
  // none: its blocks add tables (4.2).
  constexpr int64_t kDouble = 339'831'296, kDoubleModulation = 2 * (3072 * 18432 + 18432);
  constexpr int64_t kSingle = 141'591'808, kSingleModulation = 3072 * 9216 + 9216;
  // Tokens: a latent of an image has 8x8 pixels and a token 2x2 latents; Wan packs 4 frames into
  // one after the first (3.1); H3 has 22 latents of 16x16 pixels for 73 frames, and 243 rows of
  // sound (7.5). The video models once at the size of the image models, once at one that fits
  // consumer cards.
  const std::vector<int64_t> double_linears =
      Join({Repeat(8, Linear(3072, 3072)),  // q, k, v, out of both streams
            {Linear(3072, 12288), Linear(12288, 3072), Linear(3072, 12288), Linear(12288, 3072)}});
  const std::vector<int64_t> single_linears =
      Join({Repeat(3, Linear(3072, 3072)), {Linear(3072, 12288), Linear(15360, 3072)}});
  const std::vector<BlockShape> wan = {
      {40, 351'394'304, 0, 1,
       Join({Repeat(8, Linear(5120, 5120)), {Linear(5120, 13824), Linear(13824, 5120)}})}};
  const std::vector<BlockShape> h3 = {
      {50, 645'571'840, 2688 * 96768 + 96768, 1,
       Join({Repeat(3, 5376 * 7168), {7168 * 5376, 5376 * 2 * 14336, 14336 * 5376}})}};
  return {
      {"Qwen-Image",
       {{60, kDouble, kDoubleModulation, 2, double_linears}},
       20'430'401'088,
       4096 + 512,
       3072,
       3072,
       6'640'000,
       "1024x1024, 512 text tokens"},
      {"FLUX.1-dev",
       {{19, kDouble, kDoubleModulation, 2, double_linears},
        {38, kSingle, kSingleModulation, 1, single_linears}},
       11'901'408'320,
       4096 + 512,
       3072,
       3072,
       3'500'000,
       "1024x1024, 512 text tokens"},
      {"Wan 14B", wan, 14'288'491'584, 21 * 64 * 64, 5120, 5120, 4'790'000, "1024x1024, 81 frames"},
      {"MiniMax H3", h3, 33'122'992'896, 22 * 1024 + 243 + 512, 5376, 7168, 4'660'000,
       "1024x1024, 73 frames with sound"},
      {"Wan 14B, 832x480", wan, 14'288'491'584, 21 * 52 * 30, 5120, 5120, 4'790'000,
       "832x480, 81 frames"},
      {"MiniMax H3, 512x512", h3, 33'122'992'896, 22 * 256 + 243 + 512, 5376, 7168, 4'660'000,
       "512x512, 73 frames with sound"},
  };
}

offload::ModelProfile ProfileOf(const CardModel& model, bool host_modulation) {
  offload::ModelProfile profile;
  int64_t in_blocks = 0;
  for (const BlockShape& shape : model.lists) {
    const int first = static_cast<int>(profile.blocks.size());
    profile.lists.push_back({.name = absl::StrCat("list", profile.lists.size()),
                             .first = first,
                             .count = shape.count,
                             .max_streamed = shape.count});
    for (int i = 0; i < shape.count; ++i) {
      offload::BlockProfile block = PackShape(shape, host_modulation);
      block.name = absl::StrCat("blocks.", first + i);
      block.forward_flops = ForwardFlops(model, shape);
      profile.forward_flops += block.forward_flops;
      profile.blocks.push_back(std::move(block));
    }
    in_blocks += shape.count * shape.parameters;
  }
  profile.max_blocks_to_swap = static_cast<int>(profile.blocks.size());
  profile.edge_bytes = (model.total_parameters - in_blocks) * kWeightBytes;
  profile.adapter_bytes = model.lora_parameters_per_rank * kRank * kTrainedBytes;
  profile.optimizer_bytes = model.lora_parameters_per_rank * kRank * kOptimizerBytes;
  const int64_t stream = model.tokens * model.width * kWeightBytes;
  profile.boundary_bytes = stream * static_cast<int64_t>(profile.blocks.size());
  profile.block_activation_bytes = stream * kBlockActivations;
  profile.edge_activation_bytes = stream * 4;
  return profile;
}

}  // namespace blockswap::bench
