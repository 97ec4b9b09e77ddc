// SPDX-License-Identifier: Apache-2.0
// Splits rows over LibTorch's own compute threads.
#ifndef BLOCKSWAP_WORKER_KERNELS_PARALLEL_ROWS_H_
#define BLOCKSWAP_WORKER_KERNELS_PARALLEL_ROWS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace blockswap::worker {

// Calls `body(first, last)` for consecutive ranges that cover [0, rows), each of at least `grain`
// rows but the last, on at most at::get_num_threads() threads; on the calling thread alone when
// there are fewer rows.
void ParallelRows(int64_t rows, int64_t grain,
                  absl::FunctionRef<void(int64_t first, int64_t last)> body);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_PARALLEL_ROWS_H_
