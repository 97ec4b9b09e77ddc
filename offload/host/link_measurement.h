// SPDX-License-Identifier: Apache-2.0
// Measures the bus between host and device: each way, both ways at once, pageable memory, and what
// one more copy costs.
#ifndef BLOCKSWAP_OFFLOAD_HOST_LINK_MEASUREMENT_H_
#define BLOCKSWAP_OFFLOAD_HOST_LINK_MEASUREMENT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"
#include "offload/plan/planner.h"

namespace blockswap::offload {

struct LinkTrial {
  int64_t bytes = int64_t{64} << 20;  // of one copy: long enough to reach the link's plateau
  int repeats = 3;                    // the fastest counts: the others met something else
};

struct LinkMeasurement {
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  double duplex_h2d_bytes_per_second = 0;  // of a copy that begins together with one the other way
  double duplex_d2h_bytes_per_second = 0;
  // Time one after the other over time at once: 2 when the directions do not share anything, 1 when
  // they take turns.
  double duplex_factor = 1;
  double pageable_bytes_per_second =
      0;                   // to the device, staged where the device needs pinned memory
  absl::Duration latency;  // of one more small copy among many
  bool pinned = false;     // the trial buffers were page-locked
};

// Takes two trial buffers on each side and gives them back. ResourceExhausted when there is no room
// for them; buffers that cannot be page-locked are an error only where the device needs it.
absl::StatusOr<LinkMeasurement> MeasureLink(DeviceRuntime* device, const LinkTrial& trial);

// What the planner wants to know of it.
LinkProfile ToLinkProfile(const LinkMeasurement& measured);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_LINK_MEASUREMENT_H_
