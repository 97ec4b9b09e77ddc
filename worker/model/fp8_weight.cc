// SPDX-License-Identifier: Apache-2.0
#include "worker/model/fp8_weight.h"

#include <ATen/ATen.h>

#include "worker/family/family.h"
#include "worker/kernels/parallel_rows.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kGrainValues = 16384;  // of one thread: some ten microseconds

StoredType ToStored(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return StoredType::kF32;
    case at::kBFloat16:
      return StoredType::kBF16;
    case at::kHalf:
      return StoredType::kF16;
    default:
      TORCH_CHECK(false, "fp8 weights are not widened to ", type);
  }
}

at::ScalarType ScaleType(StoredType type) {
  if (type == StoredType::kF32) return at::kFloat;
  return type == StoredType::kBF16 ? at::kBFloat16 : at::kHalf;
}

at::Tensor WidenOnHost(const std::byte* codes, const Fp8Format& format, at::IntArrayRef shape,
                       at::ScalarType type) {
  const std::byte* const scales = codes + Fp8ScaleOffset(format);
  at::Tensor weight = at::empty(shape, at::TensorOptions().dtype(type));
  auto* const destination = static_cast<std::byte*>(weight.data_ptr());
  const StoredType to = ToStored(type);
  ParallelRows(format.num_scales, (kGrainValues + format.run - 1) / format.run,
               [&](int64_t first, int64_t last) {
                 DequantiseFp8(format, codes, scales, to, first, last, destination);
               });
  return weight;
}

}  // namespace

Fp8Views ViewFp8Weight(void* packed, const Fp8Format& format, at::Device device) {
  auto* const codes = static_cast<std::byte*>(packed);
  const auto view = [&](std::byte* from, int64_t columns, at::ScalarType type) {
    return at::from_blob(from, {format.num_scales, columns},
                         at::TensorOptions().dtype(type).device(device));
  };
  return {view(codes, format.run, at::kFloat8_e4m3fn),
          view(codes + Fp8ScaleOffset(format), 1, ScaleType(format.scale_type))};
}

at::Tensor WidenFp8Weight(void* packed, const Fp8Format& format, at::IntArrayRef shape,
                          at::ScalarType type, at::Device device) {
  if (device.is_cpu()) return WidenOnHost(static_cast<std::byte*>(packed), format, shape, type);
  const Fp8Views views = ViewFp8Weight(packed, format, device);
  // A code is exact in every type. The product in place is computed in fp32 and rounded once,
  // whatever the two types, and needs no second copy of the weight.
  return views.codes.to(type).mul_(views.scales).view(shape);
}

}  // namespace blockswap::worker
