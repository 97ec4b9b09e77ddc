// SPDX-License-Identifier: Apache-2.0
#include "worker/train/job_identity.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/testing/tiny_job.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

class JobIdentityTest : public ::testing::Test {
 protected:
  JobIdentity With(const std::vector<std::string>& overrides) const {
    const absl::StatusOr<JobInspection> opened = job_.Open(overrides);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? IdentityOf(*opened) : JobIdentity{};
  }
  const testing::TinyJob job_;
};

TEST_F(JobIdentityTest, MemoryDeviceAndOutputDoNotMatter) {
  const JobIdentity plain = With({});
  for (const char* change :
       {"memory.blocks_to_swap=4", "memory.mode=exchange", "memory.vram_budget=1GiB",
        "memory.pinned_memory=never", "output.save_every_steps=3", "training.threads=2",
        "training.max_steps=99"}) {
    EXPECT_EQ(DescribeDifference(plain, With({change})), "") << change;
  }
}

TEST_F(JobIdentityTest, WhatChangesTheResultIsNamedWithBothValues) {
  const JobIdentity plain = With({});
  EXPECT_EQ(DescribeDifference(plain, With({"training.seed=8"})),
            "training.seed is 7 there and 8 here");
  for (const char* change :
       {"training.learning_rate=2e-3", "network.rank=8", "network.alpha=1", "model.dtype=fp32",
        "training.gradient_accumulation_steps=2", "training.timestep_sampling=uniform",
        "training.max_grad_norm=2", "training.optimizer.weight_decay=0.5",
        "training.musubi_timestep_offset=true", "model.quantization=fp8_scaled"}) {
    EXPECT_NE(DescribeDifference(plain, With({change})), "") << change;
  }
}

TEST_F(JobIdentityTest, StepsMatterWhereTheRateDependsOnThem) {
  const std::string cosine = "training.scheduler.type=cosine";
  EXPECT_THAT(DescribeDifference(With({cosine}), With({cosine, "training.max_steps=99"})),
              HasSubstr("training.max_steps is 8 there and 99 here"));
}

TEST_F(JobIdentityTest, JsonReadsBack) {
  const JobIdentity plain = With({});
  EXPECT_EQ(IdentityFromJson(IdentityToJson(plain)), plain);
  EXPECT_TRUE(IdentityFromJson("no json").empty());
}

}  // namespace
}  // namespace blockswap::worker
