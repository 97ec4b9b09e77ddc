// SPDX-License-Identifier: Apache-2.0
// Gives every load of a cycle of layers its place in the window and the earliest time it may start.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_LAYER_PLACEMENT_H_
#define BLOCKSWAP_OFFLOAD_PLAN_LAYER_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

// See Note [Layer window].
enum class LayerPlacement { kEnds, kOldest, kFarthest };

// `visits` are units; `bytes` by unit, none larger than the window.
LayerSchedule PlaceLayers(const std::vector<int>& visits, const std::vector<int64_t>& bytes,
                          int64_t window_bytes, LayerPlacement placement);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_LAYER_PLACEMENT_H_
