// SPDX-License-Identifier: Apache-2.0
#include "worker/train/compute_threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <ATen/Parallel.h>

namespace blockswap::worker {
namespace {

constexpr char kPolicy[] = "OMP_WAIT_POLICY";
// Some tens of microseconds: as long as the gap between two small operations. Without it every operation pays for waking the
// other threads (60 blocks of width 128 on two idle cores: 0.90 s a step against 0.20 s); without end they would steal
// the time of whoever shares the cores.
constexpr char kSpinCount[] = "20000";

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

}  // namespace

void EnsurePassiveWaiting(char** argv) {
  if (std::getenv(kPolicy) != nullptr) return;
  setenv(kPolicy, "PASSIVE", /*overwrite=*/1);
  setenv("GOMP_SPINCOUNT", kSpinCount, /*overwrite=*/0);
  execv("/proc/self/exe", argv);
}

int ChooseThreads(int configured) {
  return configured > 0 ? configured : std::max(1, UsableCores() - 1);
}

void UseThreads(int threads) { at::set_num_threads(threads); }

}  // namespace blockswap::worker
