// SPDX-License-Identifier: Apache-2.0
// Compiled with OpenMP, which at::parallel_for is a template over; linked to LibTorch's copy of its
// runtime, so that the process has one pool of threads.
#include "worker/kernels/parallel_rows.h"

#include <ATen/Parallel.h>

namespace blockswap::worker {

void ParallelRows(int64_t rows, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  at::parallel_for(0, rows, grain, [body](int64_t first, int64_t last) { body(first, last); });
}

}  // namespace blockswap::worker
