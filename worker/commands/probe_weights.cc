// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/probe_weights.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/model/fp8_weight.h"

namespace blockswap::worker {

absl::Status AddFp8Weights(const ModelDescription& model, int block, offload::BlockSwapper* swapper,
                           std::map<std::string, at::Tensor>* outputs) {
  if (block < 0 || block >= static_cast<int>(model.blocks.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fp8_weights must be from 0 to ", model.blocks.size() - 1, ", is ", block));
  }
  const std::vector<TensorSpec>& tensors = model.blocks[static_cast<size_t>(block)].tensors;
  const size_t before = outputs->size();
  BLOCKSWAP_RETURN_IF_ERROR(swapper->BeginPass(offload::PassKind::kForwardOnly));
  BLOCKSWAP_ASSIGN_OR_RETURN(const offload::BlockLease lease,
                             swapper->Acquire(block, offload::Direction::kForward));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].fp8.has_value() || tensors[i].on_host) continue;
    BLOCKSWAP_ASSIGN_OR_RETURN(const offload::TensorLease held, lease.Hold(static_cast<int>(i)));
    const Fp8Views views = ViewFp8Weight(held.span().data, *tensors[i].fp8, at::kCPU);
    (*outputs)["codes." + tensors[i].name] = views.codes.to(at::kFloat).view(tensors[i].shape);
    (*outputs)["scale." + tensors[i].name] = views.scales.to(at::kFloat, false, /*copy=*/true);
  }
  if (outputs->size() > before) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--fp8_weights ", block, ": no weight of this block is quantised"));
}

}  // namespace blockswap::worker
