// SPDX-License-Identifier: Apache-2.0
#include "server/device/visible_gpus.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace blockswap::server {
namespace {

// Nothing: no such GPU, or a shortened UUID that fits several.
const GpuFacts* Named(const std::vector<GpuFacts>& gpus, const std::string& entry) {
  int index = 0;
  if (absl::SimpleAtoi(entry, &index)) {
    // A GPU that is divided has no index of its own any more.
    const auto found = std::find_if(gpus.begin(), gpus.end(), [index](const GpuFacts& gpu) {
      return gpu.index == index && !absl::StartsWith(gpu.uuid, "MIG-");
    });
    return found == gpus.end() ? nullptr : &*found;
  }
  if (!absl::StartsWith(entry, "GPU-") && !absl::StartsWith(entry, "MIG-")) return nullptr;
  const GpuFacts* only = nullptr;
  for (const GpuFacts& gpu : gpus) {
    if (gpu.uuid == entry) return &gpu;
    if (!absl::StartsWith(gpu.uuid, entry)) continue;
    if (only != nullptr) return nullptr;
    only = &gpu;
  }
  return only;
}

bool AreAllAlike(const std::vector<GpuFacts>& gpus) {
  return std::all_of(gpus.begin(), gpus.end(),
                     [&gpus](const GpuFacts& gpu) { return gpu.name == gpus.front().name; });
}

}  // namespace

VisibleGpus SelectVisibleGpus(const std::vector<GpuFacts>& gpus,
                              const std::optional<std::string>& value, bool is_bus_order) {
  VisibleGpus visible;
  if (!value.has_value()) {
    visible.gpus = gpus;
    return visible;
  }
  bool has_index = false;
  const std::vector<std::string> entries = absl::StrSplit(*value, ',');
  for (const std::string& padded : entries) {
    const std::string entry(absl::StripAsciiWhitespace(padded));
    const GpuFacts* gpu = Named(gpus, entry);
    const bool is_repeated = gpu != nullptr && std::any_of(visible.gpus.begin(), visible.gpus.end(),
                                                           [gpu](const GpuFacts& other) {
                                                             return other.uuid == gpu->uuid;
                                                           });
    if (gpu == nullptr || is_repeated) {
      if (!entry.empty()) {
        visible.note = absl::StrCat("CUDA_VISIBLE_DEVICES=", *value, ": \"", entry, "\" ",
                                    is_repeated ? "names a GPU twice" : "names no GPU here",
                                    "; it and what follows it are not used");
      }
      break;
    }
    int index = 0;
    has_index = has_index || absl::SimpleAtoi(entry, &index);
    visible.gpus.push_back(*gpu);
  }
  if (visible.note.empty() && has_index && !is_bus_order && !gpus.empty() && !AreAllAlike(gpus)) {
    visible.note = absl::StrCat("CUDA_VISIBLE_DEVICES=", *value,
                                ": the GPUs differ, so CUDA may count them in another order; they "
                                "are taken in the order of "
                                "the bus, name them by UUID to be sure");
  }
  return visible;
}

}  // namespace blockswap::server
