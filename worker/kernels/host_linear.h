// SPDX-License-Identifier: Apache-2.0
// A linear layer for a handful of input rows on the host, reading its weight where it lies.
#ifndef BLOCKSWAP_WORKER_KERNELS_HOST_LINEAR_H_
#define BLOCKSWAP_WORKER_KERNELS_HOST_LINEAR_H_

#include <cstdint>
#include <functional>

namespace blockswap::worker {

// Types a weight may lie in memory as, and an output be rounded to.
enum class HostNumber { kFloat32, kBFloat16 };

// Read only; all memory outlives the calls.
struct HostLinear {
  int64_t in = 0, out = 0;
  HostNumber number = HostNumber::kBFloat16;  // of weight and output
  const void* weight = nullptr;               // [out, in], row major, aligned to its type
  // In place of `weight`, where it lies in another form: writes features [first, last) of it.
  std::function<void(int64_t first, int64_t last, void* weight)> widen;
  const float* bias = nullptr;  // [out]
};

// Output features [first, last) of `rows` input rows: y[row][feature] = round(bias + sum of weight
// * x). Every feature is summed by one thread in sixteen fixed lanes in fp32, the bias joins last,
// and the result is rounded once to `number`: it depends neither on the range nor on who computes
// it. `widen` is called for the range as a whole, into memory of this call's own. `x` is [rows,
// in]; `y` is [rows, out] of `number`.
void HostLinearFeatures(const HostLinear& linear, const float* x, int64_t rows, int64_t first,
                        int64_t last, void* y);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_HOST_LINEAR_H_
