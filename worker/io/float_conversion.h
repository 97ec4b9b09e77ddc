// SPDX-License-Identifier: Apache-2.0
// Converts between the stored float types: widening is exact, narrowing rounds to nearest even.
#ifndef BLOCKSWAP_WORKER_IO_FLOAT_CONVERSION_H_
#define BLOCKSWAP_WORKER_IO_FLOAT_CONVERSION_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {

float WidenBFloat16(uint16_t bits);
float WidenFloat16(uint16_t bits);
uint16_t NarrowToBFloat16(float value);  // a NaN stays a NaN
uint16_t NarrowToFloat16(float value);   // overflow becomes infinity
// E4M3 without infinities: the largest value is 448, and what would round beyond it becomes NaN.
float WidenFloat8E4M3(uint8_t code);
uint8_t NarrowToFloat8E4M3(float value);

// F32, F16 and BF16 in any pairing; equal types are copied. InvalidArgument for other types and for
// sizes that differ in count.
absl::Status ConvertFloats(StoredType from, absl::Span<const std::byte> source, StoredType to,
                           absl::Span<std::byte> destination);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_FLOAT_CONVERSION_H_
