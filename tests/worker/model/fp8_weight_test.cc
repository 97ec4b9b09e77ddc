// SPDX-License-Identifier: Apache-2.0
#include "worker/model/fp8_weight.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/worker/model/tiny_model.h"
#include "worker/kernels/device_memory.h"

namespace blockswap::worker {
namespace {

using testing::MakeHostDevice;
using testing::MakeInputs;
using testing::MakeRandomAdapter;
using testing::MakeSwapper;
using testing::MakeTinyCheckpoint;
using testing::RandomTensor;
using testing::TinyCheckpoint;
using testing::TinyShape;

StoredType Stored(at::ScalarType type) {
  return type == at::kFloat  ? StoredType::kF32
         : type == at::kHalf ? StoredType::kF16
                             : StoredType::kBF16;
}

// A quantised weight as a packed block holds it.
struct Packed {
  Fp8Format format;
  std::vector<std::byte> bytes;
};

Packed Pack(const at::Tensor& weight, const Fp8Format& format) {
  Packed packed{format, std::vector<std::byte>(
                            static_cast<size_t>(Fp8ScaleOffset(format) + format.scale_bytes()))};
  const auto all = absl::MakeSpan(packed.bytes);
  EXPECT_TRUE(
      QuantiseFp8(Stored(weight.scalar_type()),
                  absl::MakeConstSpan(static_cast<const std::byte*>(weight.const_data_ptr()),
                                      weight.nbytes()),
                  format, all.first(static_cast<size_t>(format.num_values())),
                  all.subspan(static_cast<size_t>(Fp8ScaleOffset(format))))
          .ok());
  return packed;
}

// The kernel of the CPU and the library's operations, which a GPU runs, are one arithmetic.
TEST(Fp8WeightTest, WidensAsTheLibrarysOperationsDo) {
  for (const at::ScalarType from : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t width : {192, 96}) {
      const at::Tensor plain = RandomTensor({40, width}, width, 0.3).to(from);
      std::vector<Fp8Format> formats = {MakeFp8Format(Stored(from), {40, width})};
      formats.push_back({Stored(from), 40 * width, 1, false});
      for (const Fp8Format& format : formats) {
        Packed packed = Pack(plain, format);
        const Fp8Views views = ViewFp8Weight(packed.bytes.data(), format, at::kCPU);
        for (const at::ScalarType to : {at::kFloat, at::kBFloat16, at::kHalf}) {
          const at::Tensor actual =
              WidenFp8Weight(packed.bytes.data(), format, {40, width}, to, at::kCPU);
          EXPECT_EQ(actual.scalar_type(), to);
          EXPECT_TRUE(at::equal(actual, views.codes.to(to).mul_(views.scales).view({40, width})))
              << from << " to " << to << ", run " << format.run;
        }
      }
    }
  }
}

TEST(Fp8WeightTest, StaysWithinTheFormatsPrecision) {
  const at::Tensor plain = RandomTensor({64, 256}, 5, 0.3);
  Packed packed = Pack(plain, MakeFp8Format(StoredType::kF32, {64, 256}));
  const at::Tensor widened =
      WidenFp8Weight(packed.bytes.data(), packed.format, {64, 256}, at::kFloat, at::kCPU);
  // Three bits of mantissa: at most 1/16 of a value, or half the smallest step of its run.
  const at::Tensor step = plain.view({64, 4, 64}).abs().amax(-1, true).div(448.0 * 1024);
  const at::Tensor bound = at::maximum(plain.abs().div(16).view({64, 4, 64}), step);
  EXPECT_TRUE((widened - plain).abs().view({64, 4, 64}).le(bound.mul(1.0001)).all().item<bool>());
  EXPECT_GT((widened - plain).abs().max().item<float>(), 0);
}

// Bytes that a block's forward leaves on the device for its backward.
int64_t HeldBytes(Quantization quantization) {
  TinyShape shape;
  shape.layers = 2;
  shape.quantization = quantization;
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint(shape, Dtype::kBFloat16);
  const auto device = MakeHostDevice();
  const auto swapper = MakeSwapper(checkpoint, {1, 1}, device.get());
  const CountedHostMemory counted(&device->ledger());
  const auto model = CreateModel(checkpoint.model, *checkpoint.source, at::kCPU);
  EXPECT_TRUE(model.ok()) << model.status();
  const Adapter adapter = MakeRandomAdapter(checkpoint.model, /*with_gradients=*/true);
  const ModelInputs inputs = MakeInputs(checkpoint.model, 1, {{1, 3, 5}}, 7);
  const auto conditioning = (*model)->Condition(inputs);
  Streams streams = (*model)->Embed(inputs);
  for (at::Tensor& stream : streams) stream = stream.detach().requires_grad_();
  EXPECT_TRUE(swapper->BeginPass(offload::PassKind::kForwardOnly).ok());
  const auto lease = swapper->Acquire(0, offload::Direction::kForward);
  EXPECT_TRUE(lease.ok()) << lease.status();
  const BlockWeights weights =
      WeightsOfLease(*lease, checkpoint.model.blocks[0], Dtype::kBFloat16, at::kCPU);
  const int64_t before = device->ledger().Snapshot().total_bytes;
  const Streams next = (*model)->ForwardBlock(0, streams, *conditioning, weights, adapter.block(0));
  return device->ledger().Snapshot().total_bytes - before;
}

// A widened weight that autograd kept would make a kept or recomputed block as large as a plain
// one.
TEST(Fp8WeightTest, NothingWidenedIsKeptForBackward) {
  const int64_t plain = HeldBytes(Quantization::kNone);
  EXPECT_GT(plain, 0);
  EXPECT_EQ(HeldBytes(Quantization::kFp8Scaled), plain);
}

}  // namespace
}  // namespace blockswap::worker
