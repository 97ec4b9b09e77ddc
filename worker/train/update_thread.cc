// SPDX-License-Identifier: Apache-2.0
#include "worker/train/update_thread.h"

#include <pthread.h>

#include <utility>

#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {

using base::MutexLock;

UpdateThread::UpdateThread(int num_units, std::function<absl::Status(int unit)> update)
    : num_units_(num_units),
      update_(std::move(update)),
      next_(num_units),
      thread_([this] { Loop(); }) {}  // joined by the destructor

UpdateThread::~UpdateThread() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void UpdateThread::Start(int first) {
  const MutexLock lock(mutex_);
  next_ = first;
  changed_.SignalAll();
}

bool UpdateThread::IsDone(int unit) const {
  const MutexLock lock(mutex_);
  return next_ > unit;
}

absl::Status UpdateThread::Await(int unit) {
  const MutexLock lock(mutex_);
  while (next_ <= unit) changed_.Wait(mutex_);
  return failure_;
}

void UpdateThread::Loop() {
  pthread_setname_np(pthread_self(), "bs-update");
  while (true) {
    int unit = 0;
    bool failed = false;
    {
      const MutexLock lock(mutex_);
      while (!ends_ && next_ == num_units_) changed_.Wait(mutex_);
      if (ends_) return;
      unit = next_;
      failed = !failure_.ok();
    }
    absl::Status status;
    if (!failed) status = RunContained([&] { return update_(unit); });
    const MutexLock lock(mutex_);
    failure_.Update(status);
    ++next_;
    changed_.SignalAll();
  }
}

}  // namespace blockswap::worker
