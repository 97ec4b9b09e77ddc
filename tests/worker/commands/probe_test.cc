// SPDX-License-Identifier: Apache-2.0
// What the interoperability tests of the probe do not cover: its refusals and its report. They hold
// its numbers to diffusers.
#include "worker/commands/probe.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using testing::RandomTensor;

using Tensors = std::map<std::string, at::Tensor>;

class ProbeTest : public ::testing::Test {
 protected:
  ProbeTest() : directory_(::testing::TempDir() + "/probe-XXXXXX") {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    options_.weights =
        std::string(std::getenv("BLOCKSWAP_SOURCE_DIR")) + "/deploy/examples/digits-base";
    options_.inputs = directory_ + "/inputs.safetensors";
    options_.outputs = directory_ + "/outputs.safetensors";
    options_.gradients = true;
  }
  ~ProbeTest() override { std::filesystem::remove_all(directory_); }

  static Tensors Inputs() {
    return {{"hidden_states", RandomTensor({2, 6, 4}, 1)},
            {"timestep", at::full({2}, 0.25, at::kFloat)},
            {"encoder_hidden_states", RandomTensor({2, 5, 24}, 2)},
            {"img_shapes", at::tensor({1, 2, 3, 1, 2, 3}, at::kLong).view({2, 1, 3})},
            {"grad_output", RandomTensor({2, 6, 4}, 3)}};
  }

  absl::StatusOr<std::string> RunOn(const Tensors& inputs) const {
    std::vector<TensorToWrite> writes;
    for (const auto& [name, tensor] : inputs) {
      writes.push_back({name,
                        tensor.scalar_type() == at::kLong ? StoredType::kI64 : StoredType::kF32,
                        tensor.sizes().vec(),
                        absl::MakeConstSpan(static_cast<const std::byte*>(tensor.const_data_ptr()),
                                            tensor.nbytes())});
    }
    EXPECT_TRUE(WriteSafetensors(options_.inputs, writes, {}).ok());
    return Probe(options_);
  }

  void ExpectRefused(const Tensors& inputs, const std::string& words) const {
    std::ofstream(options_.outputs) << "left over";
    const auto report = RunOn(inputs);
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(options_.outputs));
  }

  std::string directory_;
  ProbeOptions options_;
};

TEST_F(ProbeTest, WritesFp32AndReportsWhatMoved) {
  options_.dtype = Dtype::kBFloat16;
  options_.blocks_to_swap = 4;
  const auto report = RunOn(Inputs());
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto json = nlohmann::json::parse(*report);
  EXPECT_EQ(json["blocks"], 6);
  EXPECT_EQ(json["blocks_streamed"], 4);
  EXPECT_GT(json["h2d_bytes"], 0);
  EXPECT_GT(json["backward_seconds"], 0.0);
  const auto file = SafetensorsFile::Open(options_.outputs);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->tensors().size(), 2u);
  EXPECT_EQ((*file)->tensors().at("grad.hidden_states").type, StoredType::kF32);
  EXPECT_EQ((*file)->tensors().at("sample").shape, (std::vector<int64_t>{2, 6, 4}));
}

TEST_F(ProbeTest, RefusesInputsThatDoNotFit) {
  const auto with = [](const std::string& name, const at::Tensor& tensor) {
    Tensors inputs = Inputs();
    inputs[name] = tensor;
    return inputs;
  };
  ExpectRefused(with("hidden_states", RandomTensor({2, 6, 5}, 1)),
                "'hidden_states' has shape [2, 6, 5]");
  ExpectRefused(with("hidden_states", RandomTensor({2, 7, 4}, 1)),
                "describes 6 tokens, 'hidden_states' has 7");
  ExpectRefused(with("timestep", at::zeros({3})), "'timestep' has shape [3]");
  ExpectRefused(with("timestep", at::zeros({2}, at::kLong)), "'timestep' has type I64");
  ExpectRefused(with("grad_output", RandomTensor({2, 6, 3}, 1)), "'grad_output'");
  ExpectRefused(with("guidance", at::zeros({2})), "'guidance'");
  ExpectRefused(with("img_shapes", at::tensor({1, 2, 3, 1, 3, 2}, at::kLong).view({2, 1, 3})),
                "differs between samples");
  ExpectRefused(with("img_shapes", at::tensor({1, -2, -3, 1, -2, -3}, at::kLong).view({2, 1, 3})),
                "side -2");
  for (const std::vector<int64_t>& row :
       {std::vector<int64_t>{1, 0, 1, 1, 1}, {1, 1, 2, 0, 0}, {0, 1, 1, 1, 1}}) {
    const at::Tensor mask = at::stack({at::ones({5}, at::kLong), at::tensor(row, at::kLong)});
    ExpectRefused(with("encoder_hidden_states_mask", mask), "encoder_hidden_states_mask");
  }
}

TEST_F(ProbeTest, StreamsSingleLayers) {
  options_.blocks_to_swap = 1;
  options_.granularity = offload::Granularity::kLayer;
  const auto report = RunOn(Inputs());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(*report, HasSubstr("\"blocks_streamed\":1"));
}

TEST_F(ProbeTest, NeverDeletesAnInputGivenAsOutput) {
  options_.outputs = options_.inputs;
  const auto report = RunOn(Inputs());
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::exists(options_.inputs));
}

TEST_F(ProbeTest, WrongCommandLinesExitWithTen) {
  std::string program = "probe", flag = "--dtype", value = "fp64";
  char* arguments[] = {program.data(), flag.data(), value.data()};
  EXPECT_EQ(RunProbe(3, arguments), 10);
}

}  // namespace
}  // namespace blockswap::worker
