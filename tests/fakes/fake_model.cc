// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_model.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace blockswap::offload {
namespace {

int64_t Align(int64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

std::vector<TensorExtent> RandomTensors(std::mt19937_64& random, int64_t max_tensor_bytes) {
  std::vector<TensorExtent> tensors;
  const int count = std::uniform_int_distribution<int>(1, 4)(random);
  int64_t offset = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t bytes = std::uniform_int_distribution<int64_t>(1, max_tensor_bytes)(random);
    tensors.push_back({offset, bytes});
    offset += Align(bytes);
  }
  return tensors;
}

int Int(std::mt19937_64& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// Tensors one after the other; those of a layer are neighbours.
BlockProfile RandomLayers(std::mt19937_64& random, int max_layers, int64_t max_tensor_bytes) {
  BlockProfile block;
  int64_t offset = 0;
  const auto add_tensor = [&] {
    const int64_t bytes = std::uniform_int_distribution<int64_t>(1, max_tensor_bytes)(random);
    block.tensors.push_back({offset, bytes});
    offset += Align(bytes);
    return static_cast<int>(block.tensors.size()) - 1;
  };
  const int num_layers = Int(random, 1, max_layers);
  for (int i = 0; i < num_layers; ++i) {
    if (Int(random, 1, num_layers) <= 2) add_tensor();  // of no layer
    LayerProfile layer;
    layer.offset = offset;
    for (int count = Int(random, 1, 2); count > 0; --count) layer.tensors.push_back(add_tensor());
    layer.bytes = offset - layer.offset;
    block.layers.push_back(layer);
    block.forward_layers.push_back(i);
  }
  std::shuffle(block.forward_layers.begin(), block.forward_layers.end(), random);
  block.backward_layers = block.forward_layers;
  block.backward_layers.insert(block.backward_layers.end(), block.forward_layers.rbegin(),
                               block.forward_layers.rend());
  return block;
}

void AddBlock(FakeModel& model, std::vector<TensorExtent> tensors, std::mt19937_64& random) {
  BlockProfile block;
  block.name = absl::StrCat("blocks.", model.blocks.size());
  block.bytes = tensors.back().offset + Align(tensors.back().bytes);
  block.forward_flops = static_cast<double>(block.bytes);
  std::vector<std::byte> content(static_cast<size_t>(block.bytes), std::byte{0});
  for (const TensorExtent& tensor : tensors) {
    for (int64_t i = 0; i < tensor.bytes; ++i) {
      content[static_cast<size_t>(tensor.offset + i)] = static_cast<std::byte>(random() & 0x7F);
    }
  }
  block.tensors = std::move(tensors);
  model.blocks.push_back(std::move(block));
  model.contents.push_back(std::move(content));
}

}  // namespace

BlockReader FakeModel::reader() const {
  return [this](int block, absl::Span<std::byte> destination) {
    const std::vector<std::byte>& content = contents[static_cast<size_t>(block)];
    if (content.size() != destination.size()) return absl::InternalError("wrong size asked");
    std::copy(content.begin(), content.end(), destination.begin());
    return absl::OkStatus();
  };
}

PlanRequest FakeModel::request() const {
  PlanRequest request;
  request.model.blocks = blocks;
  for (const BlockProfile& block : blocks) request.model.forward_flops += block.forward_flops;
  request.lockable_bytes = std::numeric_limits<int64_t>::max();
  return request;
}

int64_t FakeModel::total_bytes() const {
  int64_t total = 0;
  for (const BlockProfile& block : blocks) total += block.bytes;
  return total;
}

FakeModel MakeFakeModel(std::mt19937_64& random, int num_blocks, int64_t max_tensor_bytes,
                        bool alike) {
  FakeModel model;
  std::vector<TensorExtent> tensors = RandomTensors(random, max_tensor_bytes);
  for (int block = 0; block < num_blocks; ++block) {
    AddBlock(model, tensors, random);
    if (!alike) tensors = RandomTensors(random, max_tensor_bytes);
  }
  return model;
}

FakeModel MakeLayeredModel(std::mt19937_64& random, int num_blocks, int max_layers,
                           int64_t max_tensor_bytes, bool alike) {
  FakeModel model;
  BlockProfile layers = RandomLayers(random, max_layers, max_tensor_bytes);
  for (int block = 0; block < num_blocks; ++block) {
    AddBlock(model, layers.tensors, random);
    model.blocks.back().layers = layers.layers;
    model.blocks.back().forward_layers = layers.forward_layers;
    model.blocks.back().backward_layers = layers.backward_layers;
    if (!alike) layers = RandomLayers(random, max_layers, max_tensor_bytes);
  }
  return model;
}

FakeModel MakeUniformModel(int num_blocks, int64_t bytes) {
  FakeModel model;
  for (int block = 0; block < num_blocks; ++block) {
    std::mt19937_64 random(static_cast<uint64_t>(block) + 1);
    AddBlock(model, {{0, bytes}}, random);
  }
  return model;
}

}  // namespace blockswap::offload
