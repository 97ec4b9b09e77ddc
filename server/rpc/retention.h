// SPDX-License-Identifier: Apache-2.0
// Forgets finished jobs that are too old or too many, with their events and logs.
#ifndef BLOCKSWAP_SERVER_RPC_RETENTION_H_
#define BLOCKSWAP_SERVER_RPC_RETENTION_H_

#include <chrono>
#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/store/job_store.h"

namespace blockswap::server {

struct RetentionLimits {
  double days = 30;  // after its end; 0: never
  int64_t max_finished_jobs = 100000;
};

// Owns: one thread, "retention", that looks every few minutes. What jobs wrote stays on disk.
// Thread safety: safe. Errors: of the store are logged; the next round tries again.
class RetentionKeeper final {
 public:
  RetentionKeeper(JobStore& store, RetentionLimits limits,
                  std::chrono::seconds interval = std::chrono::seconds(300));
  ~RetentionKeeper();

  RetentionLimits limits() const;
  // Looks again right away.
  void SetLimits(RetentionLimits limits);
  // One round, as the thread makes them, `now_micros` being the time; returns how many jobs went.
  int64_t Sweep(int64_t now_micros);

 private:
  void Run();
  bool StopsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; }

  JobStore& store_;
  const std::chrono::seconds interval_;
  mutable base::Mutex mutex_;
  base::CondVar wake_;
  RetentionLimits limits_ ABSL_GUARDED_BY(mutex_);
  bool look_again_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_RETENTION_H_
