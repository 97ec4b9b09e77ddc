// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/retention.h"

#include <utility>

#include "server/base/log.h"
#include "server/base/thread_name.h"
#include "server/base/wall_clock.h"
#include "server/rpc/job_outputs.h"

namespace blockswap::server {
namespace {

constexpr double kDayMicros = 86400e6;
constexpr int kBatch = 100;
// Watchers that come back later than this list anew, whatever the limits say.
constexpr double kWatcherDays = 7;

}  // namespace

RetentionKeeper::RetentionKeeper(JobStore& store, RetentionLimits limits,
                                 std::chrono::seconds interval)
    : store_(store), interval_(interval), limits_(limits) {
  thread_ = std::thread([this] { Run(); });
}

RetentionKeeper::~RetentionKeeper() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.SignalAll();
  }
  thread_.join();
}

RetentionLimits RetentionKeeper::limits() const {
  base::MutexLock lock(mutex_);
  return limits_;
}

void RetentionKeeper::SetLimits(RetentionLimits limits) {
  base::MutexLock lock(mutex_);
  limits_ = limits;
  look_again_ = true;
  wake_.SignalAll();
}

int64_t RetentionKeeper::Sweep(int64_t now_micros) {
  const RetentionLimits limits = this->limits();
  const int64_t ended_before =
      limits.days > 0 ? now_micros - static_cast<int64_t>(limits.days * kDayMicros) : 0;
  int64_t forgotten = 0;
  while (store_.writable()) {
    {
      base::MutexLock lock(mutex_);
      if (StopsLocked()) break;
    }
    const auto expired = store_.ExpiredJobs(ended_before, limits.max_finished_jobs, kBatch);
    if (!expired.ok() || expired->empty()) break;
    const int64_t before = forgotten;
    for (const std::string& id : *expired) {
      const auto deleted =
          store_.DeleteJob(id, MakeEvent(EventType::kDeleted, "RETENTION", "finished long ago"),
                           [](const JobRecord&) { return absl::OkStatus(); });
      if (!deleted.ok()) continue;  // deleted by a client meanwhile, or the disk is full
      ++forgotten;
      const absl::Status removed = RemoveLogs(*deleted);
      if (!removed.ok()) LogWarning("job {}: {}", id, std::string(removed.message()));
    }
    // None of them went: they would be listed again for ever.
    if (forgotten == before) break;
  }
  if (forgotten > 0) LogInfo("{} finished jobs forgotten", forgotten);
  const absl::Status pruned =
      store_.PruneDeletedEvents(now_micros - static_cast<int64_t>(kWatcherDays * kDayMicros));
  if (!pruned.ok()) LogWarning("deleted jobs' events stay: {}", std::string(pruned.message()));
  return forgotten;
}

void RetentionKeeper::Run() {
  NameThisThread("retention");
  while (true) {
    Sweep(WallMicros());
    base::MutexLock lock(mutex_);
    const SteadyTime next = SteadyNow() + interval_;
    while (!stopping_ && !look_again_ && SteadyNow() < next) wake_.WaitUntil(mutex_, next);
    if (stopping_) return;
    look_again_ = false;
  }
}

}  // namespace blockswap::server
