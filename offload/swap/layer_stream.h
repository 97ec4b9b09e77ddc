// SPDX-License-Identifier: Apache-2.0
// Executes the layer schedules of a plan: linears come into the byte window where and when the plan
// says, and on demand where it says nothing.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_LAYER_STREAM_H_
#define BLOCKSWAP_OFFLOAD_SWAP_LAYER_STREAM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/plan/layer_schedule.h"
#include "offload/swap/block_transfers.h"
#include "offload/swap/swap_stats.h"
#include "offload/swap/visit_cursor.h"

namespace blockswap::offload {

// Thread safety: the trainer's thread only. Errors: from the device, not kept here.
// Invariants: a held linear is never overwritten; a copy into the window starts only after compute
// has passed the last end of a hold that was recorded when it was queued. One event is enough for
// that: copies are queued at the ends of holds, so what was recorded last is what a planned copy
// has to wait for.
class LayerStream {
 public:
  struct Homes {
    DeviceSpan window;
    std::vector<DeviceSpan> rest;  // by block: tensors of streamed blocks that are in no layer
  };

  // `plan`, `blocks`, `transfers` and `counters` outlive the stream. REQUIRES: a plan at layer
  // granularity, for which `transfers` was prepared.
  LayerStream(DeviceRuntime* device, const SwapPlan* plan, const std::vector<BlockProfile>* blocks,
              BlockTransfers* transfers, SwapStats* counters, Homes homes);

  bool Streams(int block) const { return first_unit_[static_cast<size_t>(block)] >= 0; }
  // The unit of a tensor of a streamed block; -1: it is in no layer and stays on the device.
  int UnitOf(int block, int tensor) const;
  // REQUIRES: UnitOf is -1.
  DeviceSpan Rest(int block, int tensor) const;
  // Fills the block's tensors that are in no layer, from its master. Blocks until they are there.
  absl::Status UploadRest(int block);

  // Starts a cycle; brings the window to where its schedule begins. REQUIRES: nothing is held.
  absl::Status BeginPass(PassKind kind);

  // Makes compute wait for the unit. FailedPrecondition: what is held leaves no place for it.
  absl::Status Hold(int unit);
  // The bytes of a tensor of a held unit.
  DeviceSpan Span(int unit, int tensor) const;
  const LayerProfile& layer(int unit) const;
  DeviceSpan UnitSpan(int unit) const;
  int block_of(int unit) const { return plan_->window.units[static_cast<size_t>(unit)].block; }
  EventId ready_event(int unit) const { return transfers_->layer_event(unit); }
  // Records that compute is past it and starts the copies that may follow.
  absl::Status EndHold(int unit);
  std::vector<int> units_in_window() const;
  // Everything that was queued has happened; the staging pool may be replaced now.
  void ForgetStaging();

 private:
  struct Entry {
    int unit = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
    int holds = 0;
    int visit = kNoVisit;  // of the hold
    uint64_t ticket = 0;   // of a copy that the staging pool has not queued yet
  };

  const LayerSchedule& schedule() const {
    return pass_ == PassKind::kTraining ? plan_->window.training : plan_->window.forward_only;
  }
  VisitCursor& cursor() { return pass_ == PassKind::kTraining ? training_ : forward_only_; }
  Entry* Find(int unit);
  const Entry* Find(int unit) const;
  bool IsReady(const Entry& entry) const;
  absl::Status RunLoads(int visit);
  // Loads over what is there; false when some of that is held.
  absl::StatusOr<bool> Load(int unit, int64_t offset);
  absl::Status LoadOnDemand(int unit);
  // A visit may ask for its layer more than once, one tensor after the other: its loads start after
  // the last time, which the cycle before has shown.
  absl::Status CountAsk(int visit);

  DeviceRuntime* const device_;
  const SwapPlan* const plan_;
  const std::vector<BlockProfile>* const blocks_;
  BlockTransfers* const transfers_;
  SwapStats* const counters_;
  const Homes homes_;
  std::vector<int> first_unit_;             // by block; -1: resident
  std::vector<std::vector<int>> layer_of_;  // by block and tensor; -1: in no layer
  std::vector<RestLayout> rest_;            // by block
  TransferSchedule training_visits_, forward_only_visits_;
  VisitCursor training_, forward_only_;
  PassKind pass_ = PassKind::kTraining;
  std::vector<Entry> entries_;
  bool was_released_ = false;
  std::vector<int> asks_of_;  // by visit: how often its layer was asked for, the most so far
  int asks_ = 0;              // of them in this visit
  int asked_ = kNoVisit;      // the visit of the last ask
  int deferred_ = kNoVisit;   // one whose loads wait for another ask
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_LAYER_STREAM_H_
