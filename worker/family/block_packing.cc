// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/family/family.h"

namespace blockswap::worker {
namespace {

int64_t RoundUp(int64_t bytes) {
  return (bytes + offload::kTensorAlignment - 1) / offload::kTensorAlignment *
         offload::kTensorAlignment;
}

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return count;
}

// A linear is a layer unless the host uses it. Weight and bias of slot s are tensors 2s and 2s + 1.
void AddLayers(const DescribedBlock& block, offload::BlockProfile* profile) {
  std::vector<int> layer_of_slot;
  for (size_t slot = 0; slot < block.linears.size(); ++slot) {
    const size_t weight = 2 * slot, bias = weight + 1;
    layer_of_slot.push_back(
        block.tensors[weight].on_host ? -1 : static_cast<int>(profile->layers.size()));
    if (block.tensors[weight].on_host) continue;
    const int64_t first = profile->tensors[weight].offset;
    const int64_t end = profile->tensors[bias].offset + profile->tensors[bias].bytes;
    profile->layers.push_back(
        {{static_cast<int>(weight), static_cast<int>(bias)}, first, RoundUp(end - first)});
  }
  const auto layers_of = [&](const std::vector<int>& slots) {
    std::vector<int> layers;
    for (const int slot : slots) {
      const int layer = layer_of_slot[static_cast<size_t>(slot)];
      if (layer >= 0) layers.push_back(layer);
    }
    return layers;
  };
  profile->forward_layers = layers_of(block.forward_order);
  profile->backward_layers = layers_of(block.backward_order);
}

int64_t Fp8Bytes(const Fp8Format& format) { return Fp8ScaleOffset(format) + format.scale_bytes(); }

}  // namespace

int64_t Fp8ScaleOffset(const Fp8Format& format) { return RoundUp(format.num_values()); }

int64_t PackedTensorBytes(const TensorSpec& tensor, Dtype dtype) {
  if (tensor.on_host) return 0;
  if (tensor.fp8.has_value()) return Fp8Bytes(*tensor.fp8);
  return NumElements(tensor.shape) * DtypeBytes(dtype);
}

absl::Status ReadPackedTensor(const CheckpointSource& source, const TensorSpec& tensor, Dtype dtype,
                              absl::Span<std::byte> destination) {
  if (!tensor.fp8.has_value()) return source.Read(tensor.name, dtype, destination);
  const auto codes = static_cast<size_t>(tensor.fp8->num_values());
  const auto scales = static_cast<size_t>(Fp8ScaleOffset(*tensor.fp8));
  if (static_cast<int64_t>(destination.size()) != Fp8Bytes(*tensor.fp8)) {
    return absl::InvalidArgumentError(absl::StrCat("codes and scales of ", tensor.name, " take ",
                                                   Fp8Bytes(*tensor.fp8), " bytes, given are ",
                                                   destination.size()));
  }
  memset(destination.data() + codes, 0, scales - codes);
  return source.ReadFp8(tensor.name, *tensor.fp8, destination.subspan(0, codes),
                        destination.subspan(scales));
}

offload::BlockProfile PackBlock(const DescribedBlock& block, Dtype dtype) {
  offload::BlockProfile profile;
  profile.name = block.name;
  for (const TensorSpec& tensor : block.tensors) {
    const int64_t bytes = PackedTensorBytes(tensor, dtype);
    profile.tensors.push_back({profile.bytes, bytes});
    profile.bytes = RoundUp(profile.bytes + bytes);
  }
  AddLayers(block, &profile);
  return profile;
}

absl::Status ReadPackedBlock(const CheckpointSource& source, const DescribedBlock& block,
                             const offload::BlockProfile& profile, Dtype dtype,
                             absl::Span<std::byte> destination) {
  if (static_cast<int64_t>(destination.size()) != profile.bytes ||
      profile.tensors.size() != block.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block.name, " takes ", profile.bytes,
                                                   " bytes, given are ", destination.size()));
  }
  int64_t end = 0;
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    const offload::TensorExtent& extent = profile.tensors[i];
    memset(destination.data() + end, 0, static_cast<size_t>(extent.offset - end));
    if (extent.bytes == 0) continue;
    BLOCKSWAP_RETURN_IF_ERROR(
        ReadPackedTensor(source, block.tensors[i], dtype,
                         destination.subspan(static_cast<size_t>(extent.offset),
                                             static_cast<size_t>(extent.bytes))));
    end = extent.offset + extent.bytes;
  }
  memset(destination.data() + end, 0, static_cast<size_t>(profile.bytes - end));
  return absl::OkStatus();
}

}  // namespace blockswap::worker
