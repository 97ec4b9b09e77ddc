// SPDX-License-Identifier: Apache-2.0
// Where every block is and when it moves, as a plain value: built by the planner, executed by the swapper, printed for people.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_SWAP_PLAN_H_
#define BLOCKSWAP_OFFLOAD_PLAN_SWAP_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "offload/plan/block_profile.h"

namespace blockswap::offload {

enum class Residence { kResident, kStreamed };
enum class HostTier { kPinned, kPageable, kFile };
enum class TransferMode { kH2dOnly, kExchange };
enum class Granularity { kBlock, kLayer };
enum class PinPolicy { kAuto, kRequired, kNever };
enum class Toggle { kAuto, kOn, kOff };
enum class PassKind { kTraining, kForwardOnly };  // a step (forward, then backward), or a sampling pass

absl::string_view ResidenceName(Residence residence);      // "resident", "streamed"
absl::string_view HostTierName(HostTier tier);             // "pinned", "pageable", "file"
absl::string_view TransferModeName(TransferMode mode);     // "h2d_only", "exchange"
absl::string_view PinPolicyName(PinPolicy policy);         // "auto", "required", "never"
absl::string_view GranularityName(Granularity granularity);  // "block", "layer"
absl::string_view ToggleName(Toggle toggle);                 // "auto", "on", "off"

struct BlockPlacement {
  Residence residence = Residence::kResident;
  HostTier tier = HostTier::kPageable;  // of the master; meaningless for a resident block
  bool keeps_activations = false;  // instead of recomputing in backward; resident blocks only
  bool offloads_boundary = false;  // its saved input waits in host memory between forward and backward
};

// Once visit `after_visit` has released its block, load `load` into the slot that holds `evict`.
// The slot is named by the block it holds, not by number: so one cycle's transfers stay right whatever permutation of slots
// the previous pass left behind. In exchange mode `evict` is written back to the host first.
struct Transfer {
  int after_visit = 0;
  int load = 0;
  int evict = 0;
  bool operator==(const Transfer&) const = default;
};

// One cycle: the blocks in visiting order (a training step: 0..N-1, then N-1..0; a forward-only pass: 0..N-1) and the
// transfers sorted by after_visit. Invariant of a good schedule: repeated, it starts every cycle from `initial`.
struct TransferSchedule {
  std::vector<int> visits;
  std::vector<Transfer> transfers;
  std::vector<int> initial;  // streamed blocks that are in slots when the cycle starts
  bool operator==(const TransferSchedule&) const = default;
};

// Layer granularity. A unit is one linear of a streamed block; it moves into a byte window at an exact offset.
struct LayerUnit {
  int block = 0;
  int layer = 0;  // index into BlockProfile::layers
  bool operator==(const LayerUnit&) const = default;
};

// Once visit `after_visit` is over, load `unit` at `offset` of the window, over whatever is there.
struct LayerLoad {
  int after_visit = 0;
  int unit = 0;
  int64_t offset = 0;
  bool operator==(const LayerLoad&) const = default;
};

struct LayerPlace {
  int unit = 0;
  int64_t offset = 0;
  bool operator==(const LayerPlace&) const = default;
};

// One cycle: the units in the order in which they are asked for, loads sorted by after_visit, and what is in the window when
// the cycle starts.
struct LayerSchedule {
  std::vector<int> visits;
  std::vector<LayerLoad> loads;
  std::vector<LayerPlace> initial;
  bool operator==(const LayerSchedule&) const = default;
};

struct LayerWindow {
  int64_t bytes = 0;  // the largest unit and the second largest
  std::vector<LayerUnit> units;
  LayerSchedule training, forward_only;
};

// What the planner expects. Times are zero when no compute speed is known.
struct Prediction {
  int64_t device_bytes = 0;                 // peak, all tags
  int64_t ring_bytes = 0, resident_bytes = 0, edge_bytes = 0, adapter_bytes = 0, optimizer_bytes = 0, activation_bytes = 0;
  int64_t pinned_bytes = 0, pageable_bytes = 0, file_bytes = 0;
  int64_t h2d_bytes_per_step = 0, d2h_bytes_per_step = 0;
  absl::Duration compute, copy, stall, step;
  // Compute or the loads of this plan, whichever takes longer in each direction: no placement with as many loads is faster.
  absl::Duration bound;
  // The same for residents evenly spaced and a ring that is emptied at the turn: facts/offload.md 5.2.
  absl::Duration even_spacing_bound;
  int64_t boundary_host_bytes = 0;          // saved block inputs that wait on the host
};

struct SwapPlan {
  std::vector<BlockPlacement> blocks;
  int slots = 0;              // device slots that streamed blocks share (exchange: all device slots)
  int64_t slot_bytes = 0;     // of the largest; slot_layout.h has the size of each
  std::vector<int64_t> slot_sizes;  // of each slot, where they differ (h2d_only); empty: all are slot_bytes
  TransferMode mode = TransferMode::kH2dOnly;
  Granularity granularity = Granularity::kBlock;
  PinPolicy pin_policy = PinPolicy::kAuto;
  // All micro-batches of a step go through block i, then through i+1: one upload serves them all. The schedule then visits every
  // block once per direction.
  bool block_major = false;
  // The base trains: every block has a master, which the optimizer changes on the host after its gradient has come down.
  // Weights themselves never go down, so the schedules are those of a ring, whatever `mode` says.
  bool base_trains = false;
  // At layer granularity they name the visits only: what moves is in `window`, and there are no slots.
  TransferSchedule training;
  TransferSchedule forward_only;
  LayerWindow window;
  Prediction prediction;
  int blocks_to_swap = 0;                   // in the user's numbering
  int64_t vram_budget_bytes = 0;            // what it was made for; 0: no limit
  std::vector<std::string> notes;           // why it looks like this, one sentence each ("ring size lowered to 1: ...")

  int num_streamed() const;
  std::vector<int> streamed_blocks() const;
  // Those with a permanent host copy of their own: the streamed ones, or all where the base trains.
  std::vector<int> mastered_blocks() const;
  // Whether blocks go back to the host when others take their slots.
  bool exchanges() const { return mode == TransferMode::kExchange && !base_trains; }
};

// Checks that `plan` can be executed for `blocks` (indices, sizes, transfers that name streamed blocks).
absl::Status ValidatePlan(const SwapPlan& plan, const std::vector<BlockProfile>& blocks);

// One JSON object with every field, bytes as integers and durations in seconds: the content of plan.json.
std::string PlanToJson(const SwapPlan& plan);
// A table for people: what is where, predicted peak by purpose, bytes over the link, notes.
std::string PlanToText(const SwapPlan& plan);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_SWAP_PLAN_H_
