// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/queue_board.h"

namespace blockswap::server {

void QueueBoard::Publish(const std::vector<QueuedJob>& jobs, std::vector<QueueDecision> decisions) {
  auto places = std::make_shared<Places>();
  places->reserve(decisions.size());
  for (QueueDecision& decision : decisions) {
    if (decision.verdict != Verdict::kWait) continue;
    places->emplace(jobs[decision.job].id,
                    QueuePlace{decision.position, std::move(decision.reason)});
  }
  std::shared_ptr<const Places> old = std::move(places);  // freed after the lock
  base::MutexLock lock(mutex_);
  places_.swap(old);
}

std::optional<QueuePlace> QueueBoard::Find(const std::string& id) const {
  std::shared_ptr<const Places> places;
  {
    base::MutexLock lock(mutex_);
    places = places_;
  }
  const auto found = places->find(id);
  if (found == places->end()) return std::nullopt;
  return found->second;
}

}  // namespace blockswap::server
