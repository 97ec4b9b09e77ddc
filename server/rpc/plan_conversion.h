// SPDX-License-Identifier: Apache-2.0
// A plan, its alternatives and its refusal as the API tells them.
#ifndef BLOCKSWAP_SERVER_RPC_PLAN_CONVERSION_H_
#define BLOCKSWAP_SERVER_RPC_PLAN_CONVERSION_H_

#include <string>

#include "absl/status/status.h"
#include "blockswap/v1/training.pb.h"
#include "offload/plan/alternatives.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::server {

// `model_bytes` is left out: the plan does not know what the host evaluates.
v1::MemoryPlan PlanToProto(const offload::SwapPlan& plan);
v1::PlanAlternative AlternativeToProto(const offload::Alternative& alternative);

// WILL_NOT_FIT. Beside the text: device, resource (device_memory, host_memory, locked_memory), need
// and have in bytes, and the settings that would fit.
absl::Status WillNotFit(const absl::Status& refusal, const std::string& device);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_PLAN_CONVERSION_H_
