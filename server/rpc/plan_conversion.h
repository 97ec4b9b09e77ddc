// SPDX-License-Identifier: Apache-2.0
// A plan and its alternatives as the API's messages.
#ifndef BLOCKSWAP_SERVER_RPC_PLAN_CONVERSION_H_
#define BLOCKSWAP_SERVER_RPC_PLAN_CONVERSION_H_

#include "blockswap/v1/training.pb.h"
#include "offload/plan/alternatives.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::server {

// `model_bytes` is left out: the plan does not know what the host evaluates.
v1::MemoryPlan PlanToProto(const offload::SwapPlan& plan);
v1::PlanAlternative AlternativeToProto(const offload::Alternative& alternative);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_PLAN_CONVERSION_H_
