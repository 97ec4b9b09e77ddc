// SPDX-License-Identifier: Apache-2.0
// The numbers of a plan that cannot be made, beside the sentence that tells them to people.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_SHORTFALL_H_
#define BLOCKSWAP_OFFLOAD_PLAN_SHORTFALL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace blockswap::offload {

struct Shortfall {
  std::string resource;  // device_memory, host_memory, locked_memory
  int64_t needed_bytes = 0, available_bytes = 0;
  std::string would_fit;  // settings, as in the message
};

absl::Status WithShortfall(absl::Status status, const Shortfall& shortfall);

// Nothing when the status tells of none.
std::optional<Shortfall> ShortfallOf(const absl::Status& status);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_SHORTFALL_H_
