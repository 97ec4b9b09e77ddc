// SPDX-License-Identifier: Apache-2.0
// Moves one block into one slot, with the events that keep compute, copies and host buffers out of
// each other's way.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_BLOCK_TRANSFERS_H_
#define BLOCKSWAP_OFFLOAD_SWAP_BLOCK_TRANSFERS_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/host/block_reader.h"
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

// A part of a block's master on its way to the device.
struct UpCopy {
  int block = 0;
  int64_t offset = 0;  // in the packed block
  DeviceSpan destination;
  EventId released = kNoEvent;  // compute is past the last reader of `destination`; kNoEvent: none
  EventId ready = kNoEvent;     // recorded on h2d after the copy
};

struct StagingNeeds {
  int buffers = 0;
  int64_t bytes = 0;  // of one
};

// Where masters' bytes come from.
struct MasterSources {
  BlockReader reader;               // of blocks that stay in the file; may be null when none does
  SharedMasters* shared = nullptr;  // of the base, for all jobs of a server; outlives its user
};

// A block whose master is in another buffer now.
struct MasterChange {
  int block = 0;
  int before = -1;  // buffer that it had; -1: none
};

// Note [Block events]
// ready[slot], recorded on h2d after a load: compute waits for it before reading, d2h before
// writing the block back. released[slot], recorded on compute when a lease ends: h2d (or d2h, when
// the block goes back first) waits for it before the slot changes. In exchange mode host buffers
// permute too. h2d waits for every write-back (left) before it overwrites the slot, so it is also
// behind whatever buffer it may read later; d2h waits for read[buffer], recorded on h2d, before it
// overwrites the buffer. A wait binds to the latest record, which can only be later than the one
// needed: never too weak. Where the base trains, read[buffer] tells the host when it may change a
// master.
//
// Owns: host buffers, events, staging pool. Thread safety: the trainer's thread only. Errors: from
// the device, not kept here.
class BlockTransfers {
 public:
  // Takes host memory and events; `ring` gets its slots' events. `device`, `blocks` and `ring`
  // outlive the result. Masters are not filled.
  static absl::StatusOr<std::unique_ptr<BlockTransfers>> Create(
      DeviceRuntime* device, const SwapPlan& plan, const std::vector<BlockProfile>* blocks,
      SlotRing* ring, const MasterSources& sources = {});
  ~BlockTransfers();

  // The host buffer a block waits in; nullptr for one that has none now (resident, or on the device
  // in exchange mode).
  std::byte* HostData(int block) const;

  // Queues the copy of `block` into the slot, in exchange mode after the block that is there went
  // back. REQUIRES: slot not leased and large enough, block in no other slot.
  absl::Status Load(int block, int slot_index);
  // Queues the copy of a part of a block. The ticket is 0 when it is queued on the device already;
  // else JoinStaged it before compute waits for `copy.ready`. REQUIRES: not in exchange mode, a
  // part not larger than the staging buffers.
  absl::StatusOr<uint64_t> CopyUp(const UpCopy& copy);
  bool IsStagedQueued(uint64_t ticket) const;
  absl::Status JoinStaged(uint64_t ticket);

  // True when the slot's block has arrived. Never blocks.
  bool IsReady(int slot_index) const;
  // Compute waits: h2d(slot).
  absl::Status AwaitOnCompute(int slot_index);
  // Marks that compute is past the slot's reader.
  absl::Status RecordRelease(int slot_index);
  // Blocks until no transfer is under way.
  absl::Status Drain();
  // Blocks until no copy reads the block's master any more. REQUIRES: the base trains.
  absl::Status AwaitMasterUnread(int block);

  // Whether the block has a master, of the kind (memory or file) that `plan` wants.
  bool SuitsMaster(int block, const SwapPlan& plan) const;
  bool HasMaster(int block) const { return buffer_of_[block] >= 0; }
  // Gives the block an empty master as `plan` wants it. Until RemoveBuffer the one it had stays.
  // ResourceExhausted: nothing changed.
  absl::StatusOr<MasterChange> AddMaster(int block, const SwapPlan& plan);
  void UndoMaster(const MasterChange& change);
  // REQUIRES of both: no copy reads it.
  void RemoveBuffer(int buffer) { masters_.Remove(buffer); }
  void RemoveMaster(int block);
  // Fills the block's master through `reader`, unless its bytes are there or stay in the file.
  absl::Status FillMaster(int block, const BlockReader& reader);
  // Copies the master's bytes, or reads them again. REQUIRES: HasMaster.
  absl::Status ReadMaster(int block, absl::Span<std::byte> destination) const;
  // Makes staging buffers and slot events do for `plan` too; what was there stays usable on error.
  absl::Status PrepareFor(const SwapPlan& plan, int num_slots);
  // Hands the ring's slots their events. REQUIRES: PrepareFor at least that many.
  void AssignEvents();
  absl::StatusOr<EventId> NewEvent();
  // Layer granularity: a unit's copy has arrived; compute is past the last hold that ended.
  // REQUIRES: PrepareFor a plan with that unit.
  EventId layer_event(int unit) const { return layer_events_[static_cast<size_t>(unit)]; }
  EventId layers_released() const { return layers_released_; }

  const TransferCounters& counters() const { return counters_; }
  int64_t host_bytes() const;
  int64_t locked_bytes() const;

 private:
  struct BufferState {
    EventId read = kNoEvent;  // where the host or d2h may write to the buffer
    bool was_read = false;
    uint64_t ticket = 0;  // of the last staged copy from it
  };

  BlockTransfers(DeviceRuntime* device, const SwapPlan& plan,
                 const std::vector<BlockProfile>* blocks, SlotRing* ring,
                 const MasterSources& sources)
      : device_(device),
        blocks_(blocks),
        ring_(ring),
        sources_(sources),
        exchange_(plan.exchanges()),
        base_trains_(plan.base_trains) {}

  absl::Status TakeHostMemory(const SwapPlan& plan);
  absl::Status GrowBufferStates();
  MasterSpec SpecOf(int block, const SwapPlan& plan) const;
  bool NeedsStaging() const;
  absl::Status LoadDirect(int block, Slot& slot, int leaving, int free_buffer);
  void LoadStaged(int block, Slot& slot, int leaving, int free_buffer);
  absl::Status WriteBack(int leaving, Slot& slot, int free_buffer);
  absl::Status LoadExchange(int block, Slot& slot, int leaving);
  int TakeFreeBuffer(int64_t capacity);
  void MoveHomes(int block, int leaving, int free_buffer);
  bool IsStaged(int buffer) const {
    const HostTier tier = masters_.buffer(buffer).tier;
    return tier == HostTier::kFile || (tier == HostTier::kPageable && staging_ != nullptr &&
                                       device_->copies_need_pinned_memory());
  }
  int64_t bytes(int block) const { return (*blocks_)[block].bytes; }

  DeviceRuntime* const device_;
  const std::vector<BlockProfile>* const blocks_;
  SlotRing* const ring_;
  const MasterSources sources_;
  const bool exchange_;
  const bool base_trains_;
  HostMasters masters_;
  std::unique_ptr<StagingPool> staging_;  // none: every copy is direct
  StagingNeeds staging_size_;             // what it was made for
  std::vector<BufferState> buffers_;      // as masters_ counts them
  std::vector<int> buffer_of_;            // by block; -1: none
  std::vector<int> free_buffers_;         // exchange mode: one of each capacity at rest
  EventId left_ = kNoEvent;  // exchange mode: d2h has taken the last block out of its slot
  std::vector<std::pair<EventId, EventId>> slot_events_;  // ready, released
  std::vector<EventId> layer_events_;
  EventId layers_released_ = kNoEvent;
  std::vector<EventId> events_;
  TransferCounters counters_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_BLOCK_TRANSFERS_H_
