// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace blockswap::worker {
namespace {

std::string DigitsBase() {
  return std::string(std::getenv("BLOCKSWAP_SOURCE_DIR")) + "/deploy/examples/digits-base";
}

TEST(InspectTest, SaysWhatACheckpointIsFromItsHeader) {
  const auto report = InspectCheckpoint(DigitsBase(), "");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ((*report)["family"], "qwen_image");
  EXPECT_EQ((*report)["config"]["num_attention_heads"], 3);
  EXPECT_EQ((*report)["config"]["axes_dims_rope"], nlohmann::json({8, 12, 12}));
  EXPECT_EQ((*report)["blocks"]["count"], 6);
  EXPECT_EQ((*report)["blocks"]["max_blocks_to_swap"], 5);
  EXPECT_EQ((*report)["adapter_targets_per_block"].size(), 14u);
  EXPECT_EQ((*report)["adapter_targets_per_block"][12]["path"], "img_mod.1");
  EXPECT_EQ((*report)["adapter_targets_per_block"][12]["out_features"], 576);

  int64_t tensors = 0, bytes = 0;
  for (const auto& type : (*report)["stored_types"]) {
    tensors += type["tensors"].get<int64_t>();
    bytes += type["bytes"].get<int64_t>();
  }
  EXPECT_EQ(tensors, (*report)["tensors"].get<int64_t>());
  EXPECT_EQ(tensors, 6 * 32 + 13);
  EXPECT_EQ(bytes, (*report)["bytes"].get<int64_t>());
  // A packed block holds its parameters in two bytes each, plus less than one alignment unit a
  // tensor.
  const int64_t parameters = (*report)["blocks"]["parameters_each"].get<int64_t>();
  const int64_t packed = (*report)["blocks"]["packed_bytes_each_bf16"].get<int64_t>();
  EXPECT_GE(packed, 2 * parameters);
  EXPECT_LT(packed, 2 * parameters + 32 * 256);
  // A byte a value in the weights, two in biases and norms, and scales.
  const int64_t quantised = (*report)["blocks"]["packed_bytes_each_fp8_scaled"].get<int64_t>();
  EXPECT_GT(quantised, parameters);
  EXPECT_LT(quantised, packed * 6 / 10);
  EXPECT_EQ((*report)["quantization"], "none");
}

TEST(InspectTest, ExitsWithTheStatusOfItsError) {
  std::string program = "inspect", path = "/no/such/file.safetensors", bad = "--nonsense";
  char* missing[] = {program.data(), path.data()};
  EXPECT_EQ(RunInspect(2, missing), 10);
  char* unknown[] = {program.data(), bad.data()};
  EXPECT_EQ(RunInspect(2, unknown), 10);
}

}  // namespace
}  // namespace blockswap::worker
