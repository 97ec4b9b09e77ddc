// SPDX-License-Identifier: Apache-2.0
#include <string.h>

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

}  // namespace

offload::BlockProfile PackBlock(const DescribedBlock& block, Dtype dtype) {
  offload::BlockProfile profile;
  profile.name = block.name;
  for (const TensorSpec& tensor : block.tensors) {
    const int64_t bytes = NumElements(tensor.shape) * DtypeBytes(dtype);
    profile.tensors.push_back({profile.bytes, bytes});
    profile.bytes = RoundUp(profile.bytes + bytes);
  }
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
    BLOCKSWAP_RETURN_IF_ERROR(source.Read(block.tensors[i].name, dtype,
                                          destination.subspan(static_cast<size_t>(extent.offset),
                                                              static_cast<size_t>(extent.bytes))));
    end = extent.offset + extent.bytes;
  }
  memset(destination.data() + end, 0, static_cast<size_t>(profile.bytes - end));
  return absl::OkStatus();
}

}  // namespace blockswap::worker
