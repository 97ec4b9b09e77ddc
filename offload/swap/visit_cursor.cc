// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/visit_cursor.h"

#include <algorithm>

#include "offload/plan/step_model.h"

namespace blockswap::offload {

VisitCursor::VisitCursor(const TransferSchedule* schedule, PassKind kind, int num_blocks)
    : schedule_(schedule),
      backward_(BackwardVisits(*schedule, kind, num_blocks)),
      visits_of_(static_cast<size_t>(num_blocks)) {
  for (int visit = 0; visit < num_visits(); ++visit) {
    visits_of_[schedule->visits[visit]].push_back(visit);
  }
  size_t transfer = 0;
  for (int visit = 0; visit <= num_visits(); ++visit) {
    while (transfer < schedule->transfers.size() &&
           schedule->transfers[transfer].after_visit < visit) {
      ++transfer;
    }
    first_transfer_.push_back(static_cast<int>(transfer));
  }
}

void VisitCursor::Reset() {
  next_ = 0;
  last_ = kNoVisit;
}

bool VisitCursor::Matches(int visit, int block, Direction direction) const {
  return schedule_->visits[visit] == block &&
         backward_[visit] == (direction == Direction::kBackward);
}

int VisitCursor::FindAhead(int block, Direction direction, bool any_direction) const {
  const std::vector<int>& visits = visits_of_[block];
  const size_t start =
      static_cast<size_t>(std::lower_bound(visits.begin(), visits.end(), next_) - visits.begin());
  for (size_t i = 0; i < visits.size(); ++i) {
    const int visit = visits[(start + i) % visits.size()];
    if (any_direction || Matches(visit, block, direction)) return visit;
  }
  return kNoVisit;
}

VisitCursor::Step VisitCursor::Advance(int block, Direction direction) {
  if (num_visits() == 0) return {};
  if (!Matches(next_, block, direction) && last_ != kNoVisit && Matches(last_, block, direction)) {
    return {.visit = last_};
  }
  int visit = FindAhead(block, direction, /*any_direction=*/false);
  if (visit == kNoVisit) visit = FindAhead(block, direction, /*any_direction=*/true);
  if (visit == kNoVisit) return {};
  Step step{.visit = visit, .first_skipped = next_};
  step.num_skipped = (visit - next_ + num_visits()) % num_visits();
  last_ = visit;
  next_ = (visit + 1) % num_visits();
  return step;
}

absl::Span<const Transfer> VisitCursor::TransfersAfter(int visit) const {
  const int first = first_transfer_[visit];
  const int count = first_transfer_[visit + 1] - first;
  return absl::MakeConstSpan(schedule_->transfers)
      .subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

int VisitCursor::DistanceToNextUse(int block) const {
  const int visit = FindAhead(block, Direction::kForward, /*any_direction=*/true);
  if (visit == kNoVisit) return kNeverUsed;
  return (visit - next_ + num_visits()) % num_visits();
}

}  // namespace blockswap::offload
