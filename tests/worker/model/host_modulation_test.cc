// SPDX-License-Identifier: Apache-2.0
#include "worker/model/host_modulation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/worker/model/tiny_model.h"
#include "tests/worker/testing/tiny_job.h"
#include "worker/family/qwen_image_layout.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/model/dtype.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using testing::MakeTinyCheckpoint;
using testing::RandomTensor;
using testing::TinyCheckpoint;
using testing::TinyShape;

constexpr int64_t kRows = 3;

TinyCheckpoint OnHost(Dtype dtype) {
  TinyShape shape;
  shape.host_modulation = true;
  return MakeTinyCheckpoint(shape, dtype);
}

at::Tensor Plain(const TinyCheckpoint& checkpoint, const TensorSpec& spec, Dtype dtype) {
  at::Tensor tensor = at::empty(spec.shape, at::TensorOptions().dtype(ToScalarType(dtype)));
  const auto bytes = absl::MakeSpan(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
  if (!spec.fp8.has_value()) {
    EXPECT_TRUE(checkpoint.source->Read(spec.name, dtype, bytes).ok());
    return tensor;
  }
  TensorSpec packed = spec;
  packed.on_host = false;
  std::vector<std::byte> codes(static_cast<size_t>(PackedTensorBytes(packed, dtype)));
  EXPECT_TRUE(ReadPackedTensor(*checkpoint.source, packed, dtype, absl::MakeSpan(codes)).ok());
  DequantiseFp8(*spec.fp8, codes.data(), codes.data() + Fp8ScaleOffset(*spec.fp8),
                ToStoredType(dtype), 0, spec.fp8->num_scales, bytes.data());
  return tensor;
}

// What the device computes, in double.
at::Tensor Exact(const TinyCheckpoint& checkpoint, int block, int slot, const at::Tensor& x,
                 Dtype dtype) {
  const auto& tensors = checkpoint.model.blocks[static_cast<size_t>(block)].tensors;
  const auto weight = static_cast<size_t>(2 * slot);
  return at::addmm(Plain(checkpoint, tensors[weight + 1], dtype).to(at::kDouble), x.to(at::kDouble),
                   Plain(checkpoint, tensors[weight], dtype).to(at::kDouble).t());
}

class HostModulationTest : public ::testing::TestWithParam<Dtype> {
 protected:
  at::Tensor Input(int64_t sample, const TinyCheckpoint& checkpoint) const {
    return RandomTensor({kRows, checkpoint.model.qwen_image.dim()}, sample)
        .to(ToScalarType(GetParam()));
  }
  // Relative to the largest value: one rounding of the type, and fp32 sums before it.
  double tolerance() const {
    return GetParam() == Dtype::kFloat32 ? 1e-6 : GetParam() == Dtype::kFloat16 ? 1e-3 : 1e-2;
  }
  void ExpectClose(const at::Tensor& rows, const at::Tensor& exact) const {
    EXPECT_EQ(rows.scalar_type(), ToScalarType(GetParam()));
    const double largest = exact.abs().max().item<double>();
    EXPECT_LE((rows.to(at::kDouble) - exact).abs().max().item<double>(), tolerance() * largest);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, HostModulationTest,
                         ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16),
                         [](const auto& info) {
                           return info.param == Dtype::kFloat32    ? "fp32"
                                  : info.param == Dtype::kBFloat16 ? "bf16"
                                                                   : "fp16";
                         });

TEST_P(HostModulationTest, RowsAreThoseOfTheLinearForEveryNumberOfThreads) {
  const TinyCheckpoint checkpoint = OnHost(GetParam());
  const std::map<int, at::Tensor> inputs = {{kModulationSlots[0], Input(1, checkpoint)},
                                            {kModulationSlots[1], Input(2, checkpoint)}};
  std::vector<at::Tensor> first;
  for (const int threads : {0, 1, 3}) {
    auto modulation = HostModulation::Create(checkpoint.model, *checkpoint.source, threads);
    ASSERT_TRUE(modulation.ok()) << modulation.status().message();
    const auto pass = (*modulation)->Start(inputs);
    std::vector<at::Tensor> rows;
    for (int block = 0; block < 6; ++block) {
      for (const int slot : kModulationSlots) {
        rows.push_back(pass->Take(block, slot));
        ExpectClose(rows.back(), Exact(checkpoint, block, slot, inputs.at(slot), GetParam()));
      }
    }
    if (first.empty()) first = rows;
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(at::equal(rows[i], first[i])) << threads;
    EXPECT_EQ((*modulation)->stats().passes, 1);
  }
}

TEST_P(HostModulationTest, WeightsOfTheJobsTypeStayWhereTheyLie) {
  const TinyCheckpoint checkpoint = OnHost(GetParam());  // stored as fp32
  const auto modulation = HostModulation::Create(checkpoint.model, *checkpoint.source, 0);
  ASSERT_TRUE(modulation.ok());
  const int64_t dim = checkpoint.model.qwen_image.dim(), weights = 6 * 2 * 6 * dim * dim;
  // fp16 jobs use them in fp32, too.
  const bool narrow = GetParam() == Dtype::kBFloat16;
  EXPECT_EQ((*modulation)->weight_bytes(), weights * (narrow ? 2 : 4));
  EXPECT_EQ((*modulation)->copied_bytes(), narrow ? weights * 2 : 0);
}

TEST_P(HostModulationTest, CodesAreWidenedAsTheDeviceDoes) {
  TinyCheckpoint checkpoint = MakeTinyCheckpoint({}, GetParam());
  const Family& family = **DetectFamily(*checkpoint.source);
  auto quantised = DescribeModel(family, *checkpoint.source, GetParam(), Quantization::kFp8Scaled);
  ASSERT_TRUE(quantised.ok()) << quantised.status().message();
  checkpoint.model = *std::move(quantised);
  ASSERT_TRUE(family.SetHostModulation(true, &checkpoint.model));
  const auto modulation = HostModulation::Create(checkpoint.model, *checkpoint.source, 1);
  ASSERT_TRUE(modulation.ok()) << modulation.status().message();
  const int64_t dim = checkpoint.model.qwen_image.dim();
  EXPECT_LT((*modulation)->copied_bytes(), 6 * 2 * 6 * dim * dim * 3 / 2) << "a byte and scales";
  const at::Tensor input = Input(1, checkpoint);
  const auto pass =
      (*modulation)->Start({{kModulationSlots[0], input}, {kModulationSlots[1], input}});
  const Dtype lies_as = GetParam() == Dtype::kFloat16 ? Dtype::kFloat32 : GetParam();
  for (const int slot : kModulationSlots) {
    ExpectClose(pass->Take(4, slot), Exact(checkpoint, 4, slot, input, lies_as));
  }
}

TEST_P(HostModulationTest, NeedsAMarkedLinear) {
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint({}, GetParam());
  const auto modulation = HostModulation::Create(checkpoint.model, *checkpoint.source, 1);
  EXPECT_EQ(modulation.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(modulation.status().message()), HasSubstr("no linear"));
}

// The weights are used in the mapped file, where a missing page would end the process.
TEST(HostModulationFileTest, ACutFileIsAnError) {
  testing::TinyJobOptions options;
  options.dtype = "fp32";  // as stored
  const testing::TinyJob tiny(options);
  const auto job = tiny.Open({"memory.host_modulation=on"});
  ASSERT_TRUE(job.ok()) << job.status().message();
  const auto modulation = HostModulation::Create(job->model, *job->weights, 1);
  ASSERT_TRUE(modulation.ok());
  ASSERT_EQ((*modulation)->copied_bytes(), 0);
  const at::Tensor input = at::ones({1, job->model.qwen_image.dim()});
  const auto start = [&] {
    return RunContained([&] {
      (*modulation)->Start({{kModulationSlots[0], input}, {kModulationSlots[1], input}});
      return absl::OkStatus();
    });
  };
  EXPECT_TRUE(start().ok());
  const std::string file = tiny.root() + "/model/diffusion_pytorch_model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const absl::Status cut = start();
  EXPECT_FALSE(cut.ok());
  EXPECT_THAT(std::string(cut.message()), HasSubstr(file));
}

}  // namespace
}  // namespace blockswap::worker
