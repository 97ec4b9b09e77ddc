// SPDX-License-Identifier: Apache-2.0
// A few threads for requests that read files, so that gRPC's own threads stay free.
#ifndef BLOCKSWAP_SERVER_RPC_WORK_POOL_H_
#define BLOCKSWAP_SERVER_RPC_WORK_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"

namespace blockswap::server {

// Owns: its threads, "rpc-work". Thread safety: safe.
class WorkPool final {
 public:
  WorkPool(int threads, size_t max_waiting);
  // Runs what was taken, then joins.
  ~WorkPool();

  // False when too much waits already.
  [[nodiscard]] bool Submit(std::function<void()> work);

 private:
  void Run();

  const size_t max_waiting_;
  base::Mutex mutex_;
  base::CondVar wake_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_WORK_POOL_H_
