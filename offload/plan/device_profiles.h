// SPDX-License-Identifier: Apache-2.0
// Known cards, to plan for one that is not here: memory, link rates and compute speed.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_DEVICE_PROFILES_H_
#define BLOCKSWAP_OFFLOAD_PLAN_DEVICE_PROFILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "offload/plan/planner.h"

namespace blockswap::offload {

struct DeviceProfile {
  std::string name;              // "rtx4090"
  int64_t vram_bytes = 0;        // in all
  LinkProfile link;              // rates of 0 are not known
  double bf16_flops = 0;         // sustained, dense
  int64_t usable_bytes() const;  // without what the driver and its libraries take
};

// By rising speed.
const std::vector<DeviceProfile>& DeviceProfiles();

// InvalidArgument names those that exist.
absl::StatusOr<DeviceProfile> FindDeviceProfile(absl::string_view name);

// The profile of a card by the name that its driver gives ("NVIDIA GeForce RTX 4090"), or nullptr.
const DeviceProfile* ProfileOfCard(absl::string_view driver_name);

// `request` as it would be on a machine with that card and nothing else on it. The host's memory
// stays as it is.
PlanRequest RequestOn(const DeviceProfile& profile, PlanRequest request);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_DEVICE_PROFILES_H_
