// SPDX-License-Identifier: Apache-2.0
// How many bytes a matrix product on the CPU takes beside its operands and its result.
#ifndef BLOCKSWAP_WORKER_FAMILY_MATMUL_SCRATCH_H_
#define BLOCKSWAP_WORKER_FAMILY_MATMUL_SCRATCH_H_

#include <cstdint>

namespace blockswap::worker {

// [rows, inner] times [inner, columns].
struct MatmulShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool left_transposed = false;  // as it lies in memory: the gradient of a weight
};

// Of one thread. The host device counts them, for oneDNN takes them from LibTorch's allocator: at
// most 1.4 MB, which shows beside small models. 0 for fp32 values: MKL has buffers of its own.
int64_t MatmulScratchBytes(const MatmulShape& shape, int64_t value_bytes);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_MATMUL_SCRATCH_H_
