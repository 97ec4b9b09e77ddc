// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/host_linear.h"

#include <vector>

#include "worker/kernels/vector_clones.h"

namespace blockswap::worker {
namespace {

// Features outside, rows inside: each weight is fetched from memory once, whatever the batch.
// `weight`: that of feature `first`.
template <typename T>
BLOCKSWAP_INTO_CLONES void Features(const HostLinear& linear, const T* weight, const float* x,
                                    int64_t rows, int64_t first, int64_t last, T* y) {
  for (int64_t feature = first; feature < last; ++feature) {
    const T* const w = weight + (feature - first) * linear.in;
    for (int64_t row = 0; row < rows; ++row) {
      const float* const v = x + row * linear.in;
      const float sum =
          SumInLanes(linear.in, [w, v](int64_t i) { return LoadNumber(w[i]) * v[i]; });
      y[row * linear.out + feature] = StoreNumber<T>(sum + linear.bias[feature]);
    }
  }
}

BLOCKSWAP_VECTOR_CLONES void FeaturesOf(const HostLinear& linear, const float* weight,
                                        const float* x, int64_t rows, int64_t first, int64_t last,
                                        float* y) {
  Features(linear, weight, x, rows, first, last, y);
}

BLOCKSWAP_VECTOR_CLONES void FeaturesOf(const HostLinear& linear, const uint16_t* weight,
                                        const float* x, int64_t rows, int64_t first, int64_t last,
                                        uint16_t* y) {
  Features(linear, weight, x, rows, first, last, y);
}

template <typename T>
void Run(const HostLinear& linear, const float* x, int64_t rows, int64_t first, int64_t last,
         void* y) {
  T* const out = static_cast<T*>(y);
  if (linear.widen == nullptr) {
    const T* const weight = static_cast<const T*>(linear.weight) + first * linear.in;
    FeaturesOf(linear, weight, x, rows, first, last, out);
    return;
  }
  std::vector<T> weight(static_cast<size_t>((last - first) * linear.in));
  linear.widen(first, last, weight.data());
  FeaturesOf(linear, weight.data(), x, rows, first, last, out);
}

}  // namespace

void HostLinearFeatures(const HostLinear& linear, const float* x, int64_t rows, int64_t first,
                        int64_t last, void* y) {
  if (linear.number == HostNumber::kFloat32) {
    Run<float>(linear, x, rows, first, last, y);
  } else {
    Run<uint16_t>(linear, x, rows, first, last, y);
  }
}

}  // namespace blockswap::worker
