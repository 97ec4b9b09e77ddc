// SPDX-License-Identifier: Apache-2.0
// Updates units of parameters one after another on a thread of its own, while the trainer goes on.
#ifndef BLOCKSWAP_WORKER_TRAIN_UPDATE_THREAD_H_
#define BLOCKSWAP_WORKER_TRAIN_UPDATE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "offload/base/mutex.h"

namespace blockswap::worker {

// Owns: the thread. Thread safety: one caller's thread. Errors: sticky; after the first failure
// nothing more is updated.
class UpdateThread final {
 public:
  // `update` runs on the thread, once for each unit that was started, in order; what it throws is
  // contained. It outlives the thread in what it refers to.
  UpdateThread(int num_units, std::function<absl::Status(int unit)> update);
  // Waits for the unit that is being updated; those behind it are left out.
  ~UpdateThread();
  UpdateThread(const UpdateThread&) = delete;
  UpdateThread& operator=(const UpdateThread&) = delete;

  // From now on units `first` to the last are updated. REQUIRES: no unit is under way.
  void Start(int first);
  // True when the unit has been updated since the last Start, or was not started.
  bool IsDone(int unit) const;
  // Blocks until then; the first failure of any unit.
  absl::Status Await(int unit);

 private:
  void Loop();

  const int num_units_;
  const std::function<absl::Status(int unit)> update_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  int next_ ABSL_GUARDED_BY(mutex_);  // all units below it are done
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_UPDATE_THREAD_H_
