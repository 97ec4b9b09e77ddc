// SPDX-License-Identifier: Apache-2.0
// Evaluates a fixed list of host linears on threads of its own, ahead of who needs the results.
#ifndef BLOCKSWAP_WORKER_KERNELS_HOST_LINEAR_THREADS_H_
#define BLOCKSWAP_WORKER_KERNELS_HOST_LINEAR_THREADS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "offload/base/mutex.h"
#include "worker/kernels/host_linear.h"

namespace blockswap::worker {

// Input and output of one linear in one pass, see HostLinearFeatures.
struct HostLinearCall {
  const float* x = nullptr;
  int64_t rows = 0;
  void* y = nullptr;
};

struct HostLinearStats {
  int64_t passes = 0;
  absl::Duration busy;    // summed over the threads
  absl::Duration waited;  // by callers, computing themselves included
};

// Owns: the threads, named bs-host-linear; the linears' memory outlives it. Thread safety: safe.
// Results do not depend on the number of threads nor on which passes overlap.
class HostLinearThreads {
 public:
  // Without threads, Wait does the work.
  HostLinearThreads(std::vector<HostLinear> linears, int threads);
  // REQUIRES: all passes have ended.
  ~HostLinearThreads();
  HostLinearThreads(const HostLinearThreads&) = delete;
  HostLinearThreads& operator=(const HostLinearThreads&) = delete;

  // One evaluation of all linears, the first ones first. Its end drops what is not computed yet and
  // returns once no thread touches the calls' memory any more.
  class Pass {
   public:
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

    // Returns once the output of linear `index` is complete; takes part in its computation.
    void Wait(int index);

   private:
    friend class HostLinearThreads;
    Pass(HostLinearThreads* owner, std::vector<HostLinearCall> calls);

    HostLinearThreads* const owner_;
    const std::vector<HostLinearCall> calls_;
    // Guarded by the owner's mutex. Chunks of each linear not handed out, and not computed.
    std::vector<int64_t> next_feature_, missing_features_;
    size_t next_linear_ = 0;  // the first that has chunks to hand out
    int at_work_ = 0;         // threads inside a chunk of this pass
  };

  // One call for each linear. REQUIRES: the memory of `calls` outlives the pass, the pass does not
  // outlive this.
  std::unique_ptr<Pass> Start(std::vector<HostLinearCall> calls);

  HostLinearStats stats() const;

 private:
  struct Chunk {
    Pass* pass = nullptr;
    size_t linear = 0;
    int64_t first = 0, last = 0;
  };

  void Work();
  // The next chunk of linear `linear` of `pass`, if any is left.
  std::optional<Chunk> TakeLocked(Pass* pass, size_t linear) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the pass whose next linear comes first: blocks are walked in order, whatever the number of
  // passes that walk side by side.
  std::optional<Chunk> TakeNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Computes outside the lock.
  void Compute(const Chunk& chunk);

  const std::vector<HostLinear> linears_;
  mutable base::Mutex mutex_;
  base::CondVar work_, done_;
  std::list<Pass*> passes_ ABSL_GUARDED_BY(mutex_);  // oldest first
  HostLinearStats stats_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_HOST_LINEAR_THREADS_H_
