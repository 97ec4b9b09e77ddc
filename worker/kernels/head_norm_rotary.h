// SPDX-License-Identifier: Apache-2.0
// CPU kernels: RMS norm of each head and rotation of its pairs in one pass over queries or keys,
// and their backward.
#ifndef BLOCKSWAP_WORKER_KERNELS_HEAD_NORM_ROTARY_H_
#define BLOCKSWAP_WORKER_KERNELS_HEAD_NORM_ROTARY_H_

#include <cstdint>

namespace blockswap::worker {

// Heads wider than this take the composed path: a head is held on the stack.
inline constexpr int64_t kMaxFusedHeadWidth = 256;

// A [batch, tokens, heads * width] operand whose rows are contiguous; strides in elements.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch_stride = 0, token_stride = 0;
};

struct HeadNormRotaryShape {
  int64_t tokens = 0, heads = 0, width = 0;  // width even, at most kMaxFusedHeadWidth
  const float* cos = nullptr;                // [tokens, width / 2]
  const float* sin = nullptr;
  const float* weight = nullptr;  // [width]
  float eps = 0;
};

// Rows [first, last) of the flattened (batch, token) index, so that a caller may split the work
// over threads; every row's bits are its own. Number types: float, or the bits of bfloat16
// (uint16_t). See worker/model/rope.h for the formula and its rounding.
void HeadNormRotaryRows(const HeadNormRotaryShape& shape, HeadRows<const float> x,
                        HeadRows<float> y, int64_t first, int64_t last);
void HeadNormRotaryRows(const HeadNormRotaryShape& shape, HeadRows<const uint16_t> x,
                        HeadRows<uint16_t> y, int64_t first, int64_t last);
// x_grad for the gradient of y.
void HeadNormRotaryBackwardRows(const HeadNormRotaryShape& shape, HeadRows<const float> grad,
                                HeadRows<const float> x, HeadRows<float> x_grad, int64_t first,
                                int64_t last);
void HeadNormRotaryBackwardRows(const HeadNormRotaryShape& shape, HeadRows<const uint16_t> grad,
                                HeadRows<const uint16_t> x, HeadRows<uint16_t> x_grad,
                                int64_t first, int64_t last);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_HEAD_NORM_ROTARY_H_
