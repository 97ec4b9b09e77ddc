// SPDX-License-Identifier: Apache-2.0
// Stands in for a block's compute: occupies the calling thread for a set time without keeping a
// core busy.
#ifndef BLOCKSWAP_TESTS_BENCH_PACED_COMPUTE_H_
#define BLOCKSWAP_TESTS_BENCH_PACED_COMPUTE_H_

#include <chrono>

namespace blockswap::bench {

// Thread safety: one thread. Invariant: work that did not have to wait starts where the work before
// it ended, not when the thread woke up: late wake-ups do not add up, as on a device whose host
// runs ahead.
class PacedCompute {
 public:
  using Clock = std::chrono::steady_clock;

  // Asks the kernel for exact timers, for this thread and those it creates from now on.
  PacedCompute();

  // The next work starts now: compute had to wait for something.
  void StartNow() { cursor_ = Clock::now(); }
  // Returns `seconds` after the work before it ended (or after StartNow).
  void Occupy(double seconds);
  // When the work so far ended.
  Clock::time_point cursor() const { return cursor_; }

 private:
  Clock::time_point cursor_ = Clock::now();
};

}  // namespace blockswap::bench

#endif  // BLOCKSWAP_TESTS_BENCH_PACED_COMPUTE_H_
