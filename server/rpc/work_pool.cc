// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/work_pool.h"

#include <utility>

#include "server/base/thread_name.h"

namespace blockswap::server {

WorkPool::WorkPool(int threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkPool::~WorkPool() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkPool::Submit(std::function<void()> work) {
  base::MutexLock lock(mutex_);
  if (waiting_.size() >= max_waiting_) return false;
  waiting_.push_back(std::move(work));
  wake_.Signal();
  return true;
}

void WorkPool::Run() {
  NameThisThread("rpc-work");
  while (true) {
    std::function<void()> work;
    {
      base::MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) wake_.Wait(mutex_);
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace blockswap::server
