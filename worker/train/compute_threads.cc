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
  setenv("GOMP_SPINCOUNT", "0", /*overwrite=*/0);
  execv("/proc/self/exe", argv);
}

int ChooseThreads(int configured) {
  return configured > 0 ? configured : std::max(1, UsableCores() - 1);
}

void UseThreads(int threads) { at::set_num_threads(threads); }

}  // namespace blockswap::worker
