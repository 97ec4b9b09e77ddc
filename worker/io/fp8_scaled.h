// SPDX-License-Identifier: Apache-2.0
// musubi's fp8_scaled weights: E4M3 codes and one scale for each run of values; made, checked, and
// widened again. And plain casts, whose codes are the values.
#ifndef BLOCKSWAP_WORKER_IO_FP8_SCALED_H_
#define BLOCKSWAP_WORKER_IO_FP8_SCALED_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {

// How the scales of one weight lie. Whatever the kind (one per 64 inputs, per row, per tensor),
// each scale covers a run of consecutive values in row major order.
struct Fp8Format {
  StoredType scale_type = StoredType::kBF16;
  int64_t run = 0;  // values a scale covers
  int64_t num_scales = 0;
  bool stored = false;  // codes lie in the file; else they are made while the weight is read
  bool plain = false;   // stored without scales: the one that all share is 1

  int64_t num_values() const { return num_scales * run; }
  int64_t scale_bytes() const { return num_scales * StoredTypeBytes(scale_type); }
};

// "a.b.weight" -> "a.b.scale_weight"; empty for a name that ends otherwise.
std::string Fp8ScaleName(const std::string& weight_name);

// The format made of a plain weight: scales per row and 64 inputs where the row is a multiple of 64
// wide, else per row, per tensor where it is no matrix; in the weight's own type.
Fp8Format MakeFp8Format(StoredType type, const std::vector<int64_t>& shape);

// The format of stored codes of `shape` with these scales. InvalidArgument for scales of another
// type than F32, F16 or BF16, or a shape that divides the weight into no equal runs.
absl::StatusOr<Fp8Format> ReadFp8Format(const std::vector<int64_t>& shape,
                                        const TensorEntry& scale);

// The format of stored codes of `shape` that are the values themselves: a plain cast.
Fp8Format PlainFp8Format(const std::vector<int64_t>& shape);
// Its one scale, as it lies behind the codes.
void WritePlainFp8Scale(std::byte* scale);

// Codes and scales of plain values. scale = the largest magnitude of the run / 448, rounded to the
// weight's type, at least 1e-8 in that type; code = value / scale, clamped, to nearest even. Equal
// in every byte to musubi's on a CPU. InvalidArgument: a value that is not finite, sizes that do
// not fit. The scales need no alignment.
absl::Status QuantiseFp8(StoredType from, absl::Span<const std::byte> source,
                         const Fp8Format& format, absl::Span<std::byte> codes,
                         absl::Span<std::byte> scales);

// Values [first run, last run) as `to` (F32, F16 or BF16): code times scale in fp32, then rounded
// once. `codes`, `scales` and `destination` are those of the whole weight.
void DequantiseFp8(const Fp8Format& format, const std::byte* codes, const std::byte* scales,
                   StoredType to, int64_t first_run, int64_t last_run, std::byte* destination);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_FP8_SCALED_H_
