// SPDX-License-Identifier: Apache-2.0
#include "worker/config/shared_masters_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/family/family.h"

namespace blockswap::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SharedMastersKeyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteTinyCheckpoint(directory_.Path("base"), TinyQwenImageConfig(3)).ok());
    weights_ = *CheckpointSource::Open(directory_.Path("base"), "");
    family_ = *DetectFamily(*weights_);
    model_ = Describe(Quantization::kNone);
  }
  ModelDescription Describe(Quantization quantization) const {
    return *DescribeModel(*family_, *weights_, Dtype::kBFloat16, quantization);
  }
  ModelDescription Modulated() const {
    ModelDescription model = model_;
    EXPECT_TRUE(family_->SetHostModulation(true, &model));
    return model;
  }
  std::string Key(const ModelDescription& model) const {
    return *SharedMastersKey(config_, *weights_, model);
  }
  std::vector<std::string> Keys(const ModelDescription& model) const {
    return *SharedMastersKeys(config_, *weights_, model);
  }

  const TempDirectory directory_;
  TrainConfig config_;
  std::shared_ptr<CheckpointSource> weights_;
  const Family* family_ = nullptr;
  ModelDescription model_;
};

TEST_F(SharedMastersKeyTest, WhatABlockHoldsMakesTheKey) {
  const std::string key = Key(model_);
  EXPECT_EQ(key.size(), 64u);
  EXPECT_NE(Key(Modulated()), key);
  EXPECT_NE(Key(Describe(Quantization::kFp8Scaled)), key);
  ModelDescription half = model_;
  half.dtype = Dtype::kFloat16;  // as many bytes
  EXPECT_NE(Key(half), key);
}

TEST_F(SharedMastersKeyTest, SettingsThatChangeNoBlockDoNotChangeTheKey) {
  const std::string key = Key(model_);
  config_.training.seed = 7;
  config_.memory.blocks_to_swap = 2;
  config_.network.rank = 64;
  EXPECT_EQ(Key(model_), key);
}

TEST_F(SharedMastersKeyTest, JobsThatWriteToTheirMastersHaveNone) {
  config_.memory.mode = offload::TransferMode::kExchange;
  EXPECT_EQ(Key(model_), "");
  EXPECT_THAT(Keys(model_), IsEmpty());
  config_ = TrainConfig();
  config_.network.trains_base = true;
  EXPECT_EQ(Key(model_), "");
}

// A job that says "off" finds the blocks of one that said "auto" and settled so.
TEST_F(SharedMastersKeyTest, WhatIsOpenHasAKeyForEachWayItMayBeSettled) {
  const std::string off = Key(model_), on = Key(Modulated());
  config_.memory.host_modulation = offload::Toggle::kAuto;
  EXPECT_THAT(Keys(model_), ElementsAre(off, on));
  config_.memory.host_modulation = offload::Toggle::kOff;
  EXPECT_THAT(Keys(model_), ElementsAre(off));
  config_.memory.host_modulation = offload::Toggle::kOn;
  EXPECT_THAT(Keys(Modulated()), ElementsAre(on));
}

}  // namespace
}  // namespace blockswap::worker
