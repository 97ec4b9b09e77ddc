// SPDX-License-Identifier: Apache-2.0
// The bus of a device: what was measured, what the driver says now, whether it is too slow.
#ifndef BLOCKSWAP_SERVER_DEVICE_DEVICE_LINK_H_
#define BLOCKSWAP_SERVER_DEVICE_DEVICE_LINK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace blockswap::server {

// Bytes a second, as `blockswap-worker link-test` measures them.
struct MeasuredLink {
  double h2d = 0, d2h = 0, duplex_h2d = 0, duplex_d2h = 0, pageable = 0;
  double duplex_factor = 0;
  double latency_seconds = 0;
  int64_t measured_micros = 0;  // 0: not measured
  bool operator==(const MeasuredLink&) const = default;
};

// The negotiated bus; zeros where the driver does not tell. A card at rest may lower the generation
// to save power, never the number of lanes.
struct NegotiatedLink {
  int generation = 0, max_generation = 0;
  int width = 0, max_width = 0;  // lanes
  int64_t replays = 0;           // transfers that had to be repeated, since the driver was loaded
};

// The output of `link-test -o json`. InvalidArgument when a rate is missing.
absl::StatusOr<MeasuredLink> ParseLinkTest(const std::string& json);

// Empty, or one sentence that says what is slower than it should be: fewer lanes than both ends
// have, a lower generation while `busy`, or a measured rate far below what the negotiated bus
// carries.
std::string LinkWarning(const NegotiatedLink& negotiated, const MeasuredLink& measured, bool busy);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_DEVICE_LINK_H_
