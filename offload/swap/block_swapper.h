// SPDX-License-Identifier: Apache-2.0
// Executes the transfer schedules of a SwapPlan: gives out leases on blocks and keeps copies
// running ahead of compute.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_H_
#define BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "offload/device/device_runtime.h"
#include "offload/host/block_reader.h"
#include "offload/host/shared_masters.h"
#include "offload/plan/swap_plan.h"
#include "offload/swap/block_lease.h"
#include "offload/swap/swap_stats.h"

namespace blockswap::offload {

struct SwapperOptions {
  bool verify_weights = false;  // a debugging aid: see BlockSwapper::VerifyAll
  SharedMasters* shared_masters =
      nullptr;  // where this base's weights are shared with other jobs; outlives the swapper
};

// Owns: device arenas (slots and residents), host masters, staging, events. Thread safety: the
// trainer's thread only. Errors: sticky; the first failed copy or record is returned by every later
// Acquire. Invariants: (1) a leased slot is never written; (2) a slot is overwritten only after
// compute has passed its last reader; (3) compute reads a slot only after its copy; (4) in exchange
// mode a block leaves the device before its slot is reused. A schedule that does not match what is
// asked for costs time (a miss loads on demand), never a wrong result.
class BlockSwapper {
 public:
  // Takes all memory at once and reads every block straight into its final home (residents to the
  // device, streamed blocks to their masters), then fills the slots with the training schedule's
  // initial blocks. `device` outlives the swapper. ResourceExhausted (device or host memory, or
  // PinPolicy::kRequired refused) leaves nothing behind.
  static absl::StatusOr<std::unique_ptr<BlockSwapper>> Create(DeviceRuntime* device, SwapPlan plan,
                                                              std::vector<BlockProfile> blocks,
                                                              const BlockReader& reader,
                                                              const SwapperOptions& options = {});
  ~BlockSwapper();
  BlockSwapper(const BlockSwapper&) = delete;
  BlockSwapper& operator=(const BlockSwapper&) = delete;

  // Starts a cycle of `kind`: the next Acquire is its first visit. Drains pending transfers when
  // the kind changes. REQUIRES: no lease is held.
  absl::Status BeginPass(PassKind kind);

  // Makes the compute stream wait for the block's copy and returns the lease; the host waits only
  // where the device cannot (host device). Visits out of the schedule's order are served.
  // FailedPrecondition when every slot is leased.
  absl::StatusOr<BlockLease> Acquire(int block, Direction direction);

  // Goes on under another plan for the same blocks: residents, slots and masters come and go, the
  // bytes of every block stay. Blocks that start to stream bring their bytes down into their new
  // masters. Device bytes never exceed those of the larger plan by more than one block. BeginPass
  // comes next. REQUIRES: no lease is held. ResourceExhausted (device or host memory): the old plan
  // goes on. FailedPrecondition: a lease or a MutableMaster is open, or one of the plans exchanges
  // blocks, whose host buffers belong to no block. InvalidArgument: not a plan for these blocks.
  absl::Status Adopt(SwapPlan plan);

  // The bytes of the block's master, to be changed on the host; waits until no copy reads them.
  // Until MasterChanged the block cannot be acquired and is not prefetched. FailedPrecondition: the
  // base does not train, or the block is leased.
  absl::StatusOr<absl::Span<std::byte>> MutableMaster(int block);
  // Ends MutableMaster: every copy of the block on the device is stale and is loaded again, ahead
  // of its next lease. Nothing of a block ever goes back down. Another thread may have changed the
  // bytes; it has to be done with them.
  absl::Status MasterChanged(int block);

  // Compares every copy of every block, on the device and on the host, with the checksum taken when
  // it was loaded (or changed by MasterChanged). With verify_weights every lease and hold of what
  // streams is compared too, which waits for its copy. DataLoss names block, place, generation and
  // both sums. FailedPrecondition without verify_weights.
  absl::Status VerifyAll();

  // Waits for all transfers; then every block's bytes are where the plan's bookkeeping says.
  absl::Status Drain();

  // Copies block `block`'s current bytes (slot, resident or master) to `destination`. For tests and
  // verification.
  absl::Status ReadBlock(int block, absl::Span<std::byte> destination);

  const SwapPlan& plan() const;
  SwapStats stats() const;

 private:
  friend class BlockLease;
  friend class TensorLease;
  class Impl;
  explicit BlockSwapper(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_H_
