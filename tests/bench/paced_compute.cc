// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/paced_compute.h"

#include <sys/prctl.h>

#include "offload/base/mutex.h"

namespace blockswap::bench {
namespace {

// The last part is waited for on the core: a timer wakes its thread this late at worst when a core
// is idle. Short against a block's time, so the copy lanes keep the other core.
constexpr std::chrono::microseconds kSpin{80};

}  // namespace

PacedCompute::PacedCompute() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

void PacedCompute::Occupy(double seconds) {
  cursor_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  {
    base::Mutex mutex;
    base::CondVar never;
    base::MutexLock lock(mutex);
    while (Clock::now() < cursor_ - kSpin) never.WaitUntil(mutex, cursor_ - kSpin);
  }
  while (Clock::now() < cursor_) {
  }
}

}  // namespace blockswap::bench
