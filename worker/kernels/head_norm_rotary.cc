// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/head_norm_rotary.h"

#include <cmath>

#include "worker/kernels/vector_clones.h"

namespace blockswap::worker {
namespace {

// 1 / sqrt(mean(x^2) + eps)
BLOCKSWAP_INTO_CLONES float InverseRms(const float* x, int64_t width, float eps) {
  const float sum = SumInLanes(width, [x](int64_t i) { return x[i] * x[i]; });
  return 1.0f / std::sqrt(sum / static_cast<float>(width) + eps);
}

template <typename T>
BLOCKSWAP_INTO_CLONES void ForwardHead(const HeadNormRotaryShape& shape, const float* cos,
                                       const float* sin, const T* x, T* y) {
  const int64_t width = shape.width;
  float wide[kMaxFusedHeadWidth];
  for (int64_t i = 0; i < width; ++i) wide[i] = LoadNumber(x[i]);
  const float rstd = InverseRms(wide, width, shape.eps);
  for (int64_t i = 0; i < width; ++i) {
    // Rounded between norm and rotation, as the composed operations do.
    wide[i] = LoadNumber(StoreNumber<T>(wide[i] * rstd * shape.weight[i]));
  }
  for (int64_t j = 0; j < width / 2; ++j) {
    const float even = wide[2 * j], odd = wide[2 * j + 1];
    y[2 * j] = StoreNumber<T>(even * cos[j] - odd * sin[j]);
    y[2 * j + 1] = StoreNumber<T>(even * sin[j] + odd * cos[j]);
  }
}

template <typename T>
BLOCKSWAP_INTO_CLONES void BackwardHead(const HeadNormRotaryShape& shape, const float* cos,
                                        const float* sin, const T* grad, const T* x, T* x_grad) {
  const int64_t width = shape.width;
  float wide[kMaxFusedHeadWidth], weighted[kMaxFusedHeadWidth];
  for (int64_t i = 0; i < width; ++i) wide[i] = LoadNumber(x[i]);
  for (int64_t j = 0; j < width / 2; ++j) {
    const float even = LoadNumber(grad[2 * j]), odd = LoadNumber(grad[2 * j + 1]);
    weighted[2 * j] = (even * cos[j] + odd * sin[j]) * shape.weight[2 * j];
    weighted[2 * j + 1] = (odd * cos[j] - even * sin[j]) * shape.weight[2 * j + 1];
  }
  const float rstd = InverseRms(wide, width, shape.eps);
  const float* const w = wide;
  const float* const g = weighted;
  const float along = SumInLanes(width, [w, g](int64_t i) { return g[i] * w[i]; }) * rstd * rstd /
                      static_cast<float>(width);
  for (int64_t i = 0; i < width; ++i)
    x_grad[i] = StoreNumber<T>((weighted[i] - wide[i] * along) * rstd);
}

template <typename T>
BLOCKSWAP_INTO_CLONES void Forward(const HeadNormRotaryShape& shape, HeadRows<const T> x,
                                   HeadRows<T> y, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const int64_t b = row / shape.tokens, token = row % shape.tokens;
    const T* const from = x.data + b * x.batch_stride + token * x.token_stride;
    T* const to = y.data + b * y.batch_stride + token * y.token_stride;
    const int64_t table = token * (shape.width / 2);
    for (int64_t h = 0; h < shape.heads; ++h) {
      ForwardHead(shape, shape.cos + table, shape.sin + table, from + h * shape.width,
                  to + h * shape.width);
    }
  }
}

template <typename T>
BLOCKSWAP_INTO_CLONES void Backward(const HeadNormRotaryShape& shape, HeadRows<const T> grad,
                                    HeadRows<const T> x, HeadRows<T> x_grad, int64_t first,
                                    int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const int64_t b = row / shape.tokens, token = row % shape.tokens;
    const T* const from = grad.data + b * grad.batch_stride + token * grad.token_stride;
    const T* const input = x.data + b * x.batch_stride + token * x.token_stride;
    T* const to = x_grad.data + b * x_grad.batch_stride + token * x_grad.token_stride;
    const int64_t table = token * (shape.width / 2);
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t at = h * shape.width;
      BackwardHead(shape, shape.cos + table, shape.sin + table, from + at, input + at, to + at);
    }
  }
}

}  // namespace

BLOCKSWAP_VECTOR_CLONES void HeadNormRotaryRows(const HeadNormRotaryShape& shape,
                                                HeadRows<const float> x, HeadRows<float> y,
                                                int64_t first, int64_t last) {
  Forward(shape, x, y, first, last);
}
BLOCKSWAP_VECTOR_CLONES void HeadNormRotaryRows(const HeadNormRotaryShape& shape,
                                                HeadRows<const uint16_t> x, HeadRows<uint16_t> y,
                                                int64_t first, int64_t last) {
  Forward(shape, x, y, first, last);
}
BLOCKSWAP_VECTOR_CLONES void HeadNormRotaryBackwardRows(const HeadNormRotaryShape& shape,
                                                        HeadRows<const float> grad,
                                                        HeadRows<const float> x,
                                                        HeadRows<float> x_grad, int64_t first,
                                                        int64_t last) {
  Backward(shape, grad, x, x_grad, first, last);
}
BLOCKSWAP_VECTOR_CLONES void HeadNormRotaryBackwardRows(const HeadNormRotaryShape& shape,
                                                        HeadRows<const uint16_t> grad,
                                                        HeadRows<const uint16_t> x,
                                                        HeadRows<uint16_t> x_grad, int64_t first,
                                                        int64_t last) {
  Backward(shape, grad, x, x_grad, first, last);
}

}  // namespace blockswap::worker
