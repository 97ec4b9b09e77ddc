// SPDX-License-Identifier: Apache-2.0
// Widens a weight that lies on the device as fp8 codes and scales, for as long as one op needs it.
#ifndef BLOCKSWAP_WORKER_MODEL_FP8_WEIGHT_H_
#define BLOCKSWAP_WORKER_MODEL_FP8_WEIGHT_H_

#include <cstddef>

#include <ATen/core/Tensor.h>

#include "worker/io/fp8_scaled.h"

namespace blockswap::worker {

// Codes [scales, run] as float8_e4m3fn and scales [scales, 1] in their type, as they lie in
// `packed`.
struct Fp8Views {
  at::Tensor codes, scales;
};
Fp8Views ViewFp8Weight(void* packed, const Fp8Format& format, at::Device device);

// A new tensor of `shape` and `type` (fp32, bf16 or fp16): code times scale in fp32, rounded once.
// `packed` is device memory, laid out as worker/family packs it. The same bits on every device.
at::Tensor WidenFp8Weight(void* packed, const Fp8Format& format, at::IntArrayRef shape,
                          at::ScalarType type, at::Device device);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_FP8_WEIGHT_H_
