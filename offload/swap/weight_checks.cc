// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/weight_checks.h"

#include "absl/strings/str_cat.h"
#include "offload/base/checksum.h"

namespace blockswap::offload {
namespace {

absl::Status Compare(const std::string& what, const std::string& where, uint64_t expected,
                     uint64_t found) {
  if (expected == found) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "weights have changed: ", what, " in ", where, ": checksum expected ",
      absl::Hex(expected, absl::kZeroPad16), ", found ", absl::Hex(found, absl::kZeroPad16)));
}

}  // namespace

void WeightChecks::Record(int block, absl::Span<const std::byte> packed) {
  const BlockProfile& profile = (*blocks_)[static_cast<size_t>(block)];
  Sums sums{.block = base::Checksum(packed), .layers = {}, .tensors = {}};
  const auto part = [&](int64_t offset, int64_t bytes) {
    return base::Checksum(packed.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes)));
  };
  for (const LayerProfile& layer : profile.layers) {
    sums.layers.push_back(part(layer.offset, layer.bytes));
  }
  for (const TensorExtent& tensor : profile.tensors) {
    sums.tensors.push_back(part(tensor.offset, tensor.bytes));
  }
  sums_[static_cast<size_t>(block)] = std::move(sums);
}

absl::Status WeightChecks::CheckBlock(int block, absl::Span<const std::byte> packed,
                                      const std::string& where) const {
  return Compare(absl::StrCat("block ", block), where, sums_[static_cast<size_t>(block)].block,
                 base::Checksum(packed));
}

absl::Status WeightChecks::CheckLayer(int block, int layer, absl::Span<const std::byte> bytes,
                                      const std::string& where) const {
  return Compare(absl::StrCat("layer ", layer, " of block ", block), where,
                 sums_[static_cast<size_t>(block)].layers[static_cast<size_t>(layer)],
                 base::Checksum(bytes));
}

absl::Status WeightChecks::CheckTensor(int block, int tensor, absl::Span<const std::byte> bytes,
                                       const std::string& where) const {
  return Compare(absl::StrCat("tensor ", tensor, " of block ", block), where,
                 sums_[static_cast<size_t>(block)].tensors[static_cast<size_t>(tensor)],
                 base::Checksum(bytes));
}

}  // namespace blockswap::offload
