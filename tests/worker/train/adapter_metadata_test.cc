// SPDX-License-Identifier: Apache-2.0
#include "worker/train/adapter_metadata.h"

#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "tests/worker/testing/tiny_job.h"

namespace blockswap::worker {
namespace {

TEST(AdapterMetadataTest, HoldsMusubisFieldsAndTheModelSpec) {
  const testing::TinyJob job;
  const absl::StatusOr<JobInspection> opened = job.Open({"training.gradient_accumulation_steps=2"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const absl::Time started = absl::FromUnixSeconds(1'700'000'000);
  const auto metadata = AdapterMetadata(*opened, {6, 2, started, started + absl::Minutes(3)});
  EXPECT_EQ(metadata.at("ss_steps"), "6");
  EXPECT_EQ(metadata.at("ss_epoch"), "2");
  EXPECT_EQ(metadata.at("ss_num_train_items"), "9");
  EXPECT_EQ(metadata.at("ss_num_batches_per_epoch"), "5");
  EXPECT_EQ(metadata.at("ss_num_epochs"), "3");  // 8 steps of 3 an epoch
  EXPECT_EQ(metadata.at("ss_gradient_accumulation_steps"), "2");
  EXPECT_EQ(metadata.at("ss_mixed_precision"), "bf16");
  EXPECT_EQ(metadata.at("ss_timestep_sampling"), "shift");
  EXPECT_EQ(metadata.at("ss_discrete_flow_shift"), "2.2");
  EXPECT_EQ(metadata.at("ss_training_started_at"), "1700000000");
  EXPECT_EQ(metadata.at("ss_fp8_base"), "False");
  EXPECT_EQ(metadata.at("modelspec.sai_model_spec"), "1.0.0");
  EXPECT_EQ(metadata.at("modelspec.resolution"), "64x64");
  EXPECT_EQ(metadata.at("modelspec.date"), "2023-11-14T22:16:20");
}

TEST(AdapterMetadataTest, SaysThatTheBaseIsFloat8) {
  const testing::TinyJob job;
  const absl::StatusOr<JobInspection> opened = job.Open({"model.quantization=fp8_scaled"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(AdapterMetadata(*opened, {}).at("ss_fp8_base"), "True");
}

}  // namespace
}  // namespace blockswap::worker
