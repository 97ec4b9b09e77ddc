// SPDX-License-Identifier: Apache-2.0
#include "worker/family/base_layout.h"

#include <algorithm>

namespace blockswap::worker {
namespace {

constexpr int64_t kAlignment = 64;  // elements: rows of 16-bit and of fp32 values start aligned

BaseUnit MakeUnit(const std::string& name, const std::vector<TensorSpec>& tensors) {
  BaseUnit unit{name, tensors, {}, 0};
  for (const TensorSpec& tensor : tensors) {
    unit.offsets.push_back(unit.elements);
    unit.elements += (ElementsOf(tensor) + kAlignment - 1) / kAlignment * kAlignment;
  }
  return unit;
}

}  // namespace

int64_t ElementsOf(const TensorSpec& tensor) {
  int64_t count = 1;
  for (const int64_t side : tensor.shape) count *= side;
  return count;
}

std::vector<BaseUnit> BaseUnitsOf(const ModelDescription& model) {
  std::vector<BaseUnit> units = {MakeUnit("edges", model.edge_tensors)};
  for (const DescribedBlock& block : model.blocks)
    units.push_back(MakeUnit(block.name, block.tensors));
  return units;
}

int64_t BaseGradientBytes(const std::vector<BaseUnit>& units, Dtype dtype) {
  int64_t largest = 0;
  for (size_t unit = 1; unit < units.size(); ++unit)
    largest = std::max(largest, units[unit].elements);
  return largest * DtypeBytes(dtype) + units.front().elements * DtypeBytes(Dtype::kFloat32);
}

int64_t BaseStateBytes(const std::vector<BaseUnit>& units) {
  constexpr int64_t kBuffers = 4;
  int64_t elements = 0;
  for (const BaseUnit& unit : units) elements += unit.elements;
  return kBuffers * elements * DtypeBytes(Dtype::kFloat32);
}

}  // namespace blockswap::worker
