// SPDX-License-Identifier: Apache-2.0
// The tensors of a Qwen-Image transformer in the order that leases, adapters and the model code
// rely on.
#ifndef BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_LAYOUT_H_
#define BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_LAYOUT_H_

#include <array>
#include <vector>

#include "worker/family/family.h"

namespace blockswap::worker {

// Fourteen linears to a block: slot s has its weight at tensor index 2s and its bias at 2s + 1; the
// four norm weights (norm_q, norm_k, norm_added_q, norm_added_k) follow at 28 to 31.
DescribedBlock DescribeQwenImageBlock(const QwenImageConfig& config, int index);

// What a slot is for.
enum class QwenImagePart { kProjection, kOutput, kMlpIn, kMlpOut, kModulation };
struct QwenImageSlot {
  bool is_text = false;
  QwenImagePart part = QwenImagePart::kProjection;
};
QwenImageSlot DescribeQwenImageSlot(int slot);

// The slots of img_mod.1 and txt_mod.1, which see the time embedding alone.
inline constexpr std::array<int, 2> kModulationSlots = {12, 13};

// img_in, txt_in, txt_norm, time embedding (two linears), norm_out.linear, proj_out.
std::vector<TensorSpec> DescribeQwenImageEdges(const QwenImageConfig& config);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_LAYOUT_H_
