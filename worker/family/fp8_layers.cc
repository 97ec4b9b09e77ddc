// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/family/family.h"

namespace blockswap::worker {
namespace {

bool ContainsAny(const std::string& name, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return absl::StrContains(name, part); });
}

// Only weights of linears: the rule's substrings could also fit a norm of another architecture,
// which is no linear and is not worth a scale.
std::set<std::string> LinearWeights(const DescribedBlock& block) {
  std::set<std::string> names;
  for (const AdapterTarget& linear : block.linears) names.insert(linear.path + ".weight");
  return names;
}

absl::Status MarkBlock(const CheckpointSource& source, const Fp8Layers& rule,
                       Quantization quantization, DescribedBlock* block) {
  const std::set<std::string> linears = LinearWeights(*block);
  for (TensorSpec& tensor : block->tensors) {
    if (linears.count(tensor.name) == 0) continue;
    const StoredType type = source.tensors().at(tensor.name).entry.type;
    if (type == StoredType::kF8E4M3) {
      const CheckpointSource::Tensor* scale = source.FindFp8Scale(tensor.name);
      if (scale == nullptr) {  // then no linear has any: CheckTensors saw to it
        tensor.fp8 = PlainFp8Format(tensor.shape);
        continue;
      }
      BLOCKSWAP_ASSIGN_OR_RETURN(tensor.fp8, ReadFp8Format(tensor.shape, scale->entry));
    } else if (quantization == Quantization::kFp8Scaled && ContainsAny(tensor.name, rule.targets) &&
               !ContainsAny(tensor.name, rule.excluded)) {
      tensor.fp8 = MakeFp8Format(type, tensor.shape);
    }
  }
  return absl::OkStatus();
}

template <typename Visit>
void ForEachQuantised(const ModelDescription& model, const Visit& visit) {
  for (const DescribedBlock& block : model.blocks) {
    for (const TensorSpec& tensor : block.tensors) {
      if (tensor.fp8.has_value()) visit(tensor);
    }
  }
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeModel(const Family& family, const CheckpointSource& source,
                                               Dtype dtype, Quantization quantization) {
  BLOCKSWAP_ASSIGN_OR_RETURN(ModelDescription model, family.Describe(source, dtype));
  const Fp8Layers rule = family.fp8_layers();
  for (DescribedBlock& block : model.blocks) {
    BLOCKSWAP_RETURN_IF_ERROR(MarkBlock(source, rule, quantization, &block));
  }
  ForEachQuantised(model,
                   [&](const TensorSpec&) { model.quantization = Quantization::kFp8Scaled; });
  return model;
}

std::string QuantizationText(const ModelDescription& model) {
  int64_t linears = 0, quantised = 0, stored = 0, blockwise = 0, plain = 0;
  for (const DescribedBlock& block : model.blocks)
    linears += static_cast<int64_t>(block.linears.size());
  ForEachQuantised(model, [&](const TensorSpec& tensor) {
    ++quantised;
    if (tensor.fp8->stored) ++stored;
    if (tensor.fp8->plain) ++plain;
    if (tensor.fp8->run < tensor.shape.back()) ++blockwise;
  });
  if (quantised == 0) return "";
  if (plain > 0) {
    return absl::StrCat("fp8 without scales: the ", plain,
                        " linears in the blocks are a plain cast");
  }
  return absl::StrCat("fp8_scaled: ", quantised, " of ", linears, " linears in the blocks (",
                      stored, " stored so, ", quantised - stored, " made while reading; ",
                      blockwise, " with scales within a row)");
}

}  // namespace blockswap::worker
