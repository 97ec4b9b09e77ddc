// SPDX-License-Identifier: Apache-2.0
// Moves one block into one slot, with the events that keep compute, copies and host buffers out of
// each other's way.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_BLOCK_TRANSFERS_H_
#define BLOCKSWAP_OFFLOAD_SWAP_BLOCK_TRANSFERS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/host/host_masters.h"
#include "offload/host/staging_pool.h"
#include "offload/plan/swap_plan.h"
#include "offload/swap/slot_ring.h"

namespace blockswap::offload {

struct TransferCounters {
  int64_t h2d_bytes = 0, d2h_bytes = 0;
  int64_t h2d_transfers = 0, d2h_transfers = 0;
  int64_t staged_transfers = 0;
};

// Note [Block events]
// ready[slot], recorded on h2d after a load: compute waits for it before reading, d2h before
// writing the block back. released[slot], recorded on compute when a lease ends: h2d (or d2h, when
// the block goes back first) waits for it before the slot changes. In exchange mode host buffers
// permute too. h2d waits for every write-back (left) before it overwrites the slot, so it is also
// behind whatever buffer it may read later; d2h waits for read[buffer], recorded on h2d, before it
// overwrites the buffer. A wait binds to the latest record, which can only be later than the one
// needed: never too weak.
//
// Owns: host buffers, events, staging pool. Thread safety: the trainer's thread only. Errors: from
// the device, not kept here.
class BlockTransfers {
 public:
  // Takes host memory and events; `ring` gets its slots' events. `device`, `plan`, `blocks` and
  // `ring` outlive the result.
  static absl::StatusOr<std::unique_ptr<BlockTransfers>> Create(
      DeviceRuntime* device, const SwapPlan* plan, const std::vector<BlockProfile>* blocks,
      SlotRing* ring);
  ~BlockTransfers();

  // The host buffer a block waits in; nullptr for one that has none now (resident, or on the device
  // in exchange mode).
  std::byte* HostData(int block) const;

  // Queues the copy of `block` into the slot, in exchange mode after the block that is there went
  // back. REQUIRES: slot not leased and large enough, block in no slot.
  absl::Status Load(int block, int slot_index);
  // True when the slot's block has arrived. Never blocks.
  bool IsReady(int slot_index) const;
  // Compute waits: h2d(slot).
  absl::Status AwaitOnCompute(int slot_index);
  // Marks that compute is past the slot's reader.
  absl::Status RecordRelease(int slot_index);
  // Blocks until no transfer is under way.
  absl::Status Drain();

  const TransferCounters& counters() const { return counters_; }
  int64_t host_bytes() const { return masters_.bytes(); }
  int64_t locked_bytes() const;

 private:
  struct BufferState {
    EventId read = kNoEvent;  // exchange mode only
    bool was_read = false;
  };

  BlockTransfers(DeviceRuntime* device, const SwapPlan* plan,
                 const std::vector<BlockProfile>* blocks, SlotRing* ring)
      : device_(device), plan_(plan), blocks_(blocks), ring_(ring) {}

  absl::Status TakeHostMemory();
  absl::Status CreateEvents();
  absl::StatusOr<EventId> NewEvent();
  absl::Status LoadDirect(int block, Slot& slot, int leaving, int free_buffer);
  void LoadStaged(int block, Slot& slot, int leaving, int free_buffer);
  absl::Status WriteBack(int leaving, Slot& slot, int free_buffer);
  int TakeFreeBuffer(int64_t capacity);
  void MoveHomes(int block, int leaving, int free_buffer);
  bool exchange() const { return plan_->mode == TransferMode::kExchange; }
  int64_t bytes(int block) const { return (*blocks_)[block].bytes; }

  DeviceRuntime* const device_;
  const SwapPlan* const plan_;
  const std::vector<BlockProfile>* const blocks_;
  SlotRing* const ring_;
  HostMasters masters_;
  std::unique_ptr<StagingPool> staging_;  // none: every copy is direct
  std::vector<BufferState> buffers_;
  std::vector<int> buffer_of_;     // by block; -1: none
  std::vector<int> free_buffers_;  // exchange mode: one of each capacity at rest
  EventId left_ = kNoEvent;        // exchange mode: d2h has taken the last block out of its slot
  std::vector<EventId> events_;
  TransferCounters counters_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_BLOCK_TRANSFERS_H_
