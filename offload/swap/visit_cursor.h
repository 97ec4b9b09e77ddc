// SPDX-License-Identifier: Apache-2.0
// Where a pass is in its schedule: which visit an Acquire means, what follows it, and when a block
// is needed next.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_VISIT_CURSOR_H_
#define BLOCKSWAP_OFFLOAD_SWAP_VISIT_CURSOR_H_

#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "offload/plan/swap_plan.h"
#include "offload/swap/block_lease.h"

namespace blockswap::offload {

inline constexpr int kNoVisit = -1;
inline constexpr int kNeverUsed = std::numeric_limits<int>::max();

// Follows what is really asked for, not what was planned: a skipped block, one visited twice or a
// pass that starts over moves the cursor there. Thread safety: one thread.
class VisitCursor {
 public:
  // `schedule` outlives the cursor.
  VisitCursor(const TransferSchedule* schedule, PassKind kind, int num_blocks);

  // Starts the cycle at its first visit.
  void Reset();

  struct Step {
    int visit = kNoVisit;  // kNoVisit: the schedule never visits the block
    int first_skipped =
        0;  // visits passed over, [first_skipped, first_skipped + num_skipped), modulo the cycle
    int num_skipped = 0;
  };
  // Moves to the visit that a request for `block` in `direction` means: the expected one, the last
  // one again, else the next one in visiting order that fits.
  Step Advance(int block, Direction direction);

  absl::Span<const Transfer> TransfersAfter(int visit) const;
  // Visits until `block` is needed again, counted from the expected visit; kNeverUsed when it is
  // not in the schedule.
  int DistanceToNextUse(int block) const;
  int num_visits() const { return static_cast<int>(schedule_->visits.size()); }

 private:
  bool Matches(int visit, int block, Direction direction) const;
  // The first visit at or after the expected one, cyclically, that fits; kNoVisit when none does.
  int FindAhead(int block, Direction direction, bool any_direction) const;

  const TransferSchedule* schedule_;
  std::vector<bool> backward_;
  std::vector<std::vector<int>> visits_of_;  // by block, ascending
  std::vector<int> first_transfer_;          // by visit, and one past the end
  int next_ = 0;
  int last_ = kNoVisit;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_VISIT_CURSOR_H_
