// SPDX-License-Identifier: Apache-2.0
// The swap figures of a run as counters that only grow; callers take differences per step.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_SWAP_STATS_H_
#define BLOCKSWAP_OFFLOAD_SWAP_SWAP_STATS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace blockswap::offload {

struct SwapStats {
  int64_t h2d_bytes = 0, d2h_bytes = 0;  // COUNT: bytes handed to the lanes
  int64_t h2d_transfers = 0, d2h_transfers = 0;
  // COUNT: all that the device's lanes carried, block inputs and gradients too, and how long they
  // were at it: their quotient is the achieved rate.
  int64_t h2d_link_bytes = 0, d2h_link_bytes = 0;
  absl::Duration h2d_busy, d2h_busy;
  absl::Duration forward_stall,
      backward_stall;            // compute waited for a block, as far as the device can tell
  int64_t hits = 0;              // the block was in a slot and its copy done when asked for
  int64_t late = 0;              // in a slot, copy still running
  int64_t misses = 0;            // in no slot: loaded on demand
  int64_t staged_transfers = 0;  // went through the pinned staging pool
  int64_t adoptions = 0;         // plans that took over from another
  int64_t adopted_h2d_bytes = 0,
          adopted_d2h_bytes = 0;  // what changing places moved, in none of the counters above
  // Where the blocks are now (levels, not counters).
  int blocks_on_device = 0, blocks_on_host = 0, blocks_in_flight = 0;
  int64_t device_weight_bytes = 0, device_weight_bytes_peak = 0;  // ring + residents
  int64_t host_master_bytes = 0, pinned_bytes = 0;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_SWAP_STATS_H_
