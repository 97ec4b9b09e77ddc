// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_dataset.h"

namespace blockswap::worker {
namespace {

class EpochOrderTest : public ::testing::Test {
 protected:
  // 13 items of 64x64, repeated twice, in batches of 4, and 5 of 96x48 alone.
  void SetUp() override {
    for (int i = 0; i < 18; ++i) {
      TinyLatent latent;
      if (i >= 13) {
        latent.width = 96;
        latent.height = 48;
        latent.tensor_width = 12;
        latent.tensor_height = 6;
      }
      const std::string cache = directory_.Path(i < 13 ? "a" : "b");
      WriteLatentCache(cache, absl::StrCat("i", i), latent);
      WriteTextCache(cache, absl::StrCat("i", i));
    }
    std::vector<FieldViolation> violations;
    const auto dataset = Dataset::Open(
        directory_.Write("d.toml",
                         "[general]\nbatch_size = 4\n"
                         "[[datasets]]\ncache_directory='a'\nresolution=64\nnum_repeats=2\n"
                         "[[datasets]]\ncache_directory='b'\nresolution=[96,48]\n"),
        **FindFamily("qwen_image"), TinyModelDescription(), MissingPolicy::kError, &violations);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    dataset_ = *dataset;
  }

  static std::vector<int64_t> Flat(const std::vector<Batch>& batches) {
    std::vector<int64_t> flat;
    for (const Batch& batch : batches) {
      flat.push_back(-1 - batch.bucket);
      flat.insert(flat.end(), batch.items.begin(), batch.items.end());
    }
    return flat;
  }

  const TempDirectory directory_;
  std::shared_ptr<Dataset> dataset_;
};

// F138: an epoch holds each item exactly as often as it is listed, in uniform batches, the last of
// a bucket short.
TEST_F(EpochOrderTest, SeesEveryItemOnceAnEpochInUniformBatches) {
  EXPECT_EQ(dataset_->batches_per_epoch(), 7 + 2);
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::map<int64_t, int> seen;
    for (const Batch& batch : dataset_->EpochOrder(42, epoch)) {
      EXPECT_LE(batch.items.size(), 4u);
      for (const int64_t item : batch.items) {
        ++seen[item];
        EXPECT_EQ(dataset_->items()[static_cast<size_t>(item)].bucket, batch.bucket);
      }
    }
    ASSERT_EQ(seen.size(), 18u);
    for (const auto& [item, times] : seen) EXPECT_EQ(times, item < 13 ? 2 : 1);
  }
}

TEST_F(EpochOrderTest, IsAPureFunctionOfSeedAndEpoch) {
  std::set<std::vector<int64_t>> orders;
  for (int64_t seed = 0; seed < 10; ++seed) {
    for (int64_t epoch = 0; epoch < 10; ++epoch) {
      const std::vector<int64_t> order = Flat(dataset_->EpochOrder(seed, epoch));
      EXPECT_EQ(order, Flat(dataset_->EpochOrder(seed, epoch)));
      orders.insert(order);
    }
  }
  EXPECT_EQ(orders.size(), 100u) << "neither the seed nor the epoch is ignored";
}

// Pinned: a later version that shuffled otherwise would break every resume.
TEST_F(EpochOrderTest, DoesNotChangeBetweenVersions) {
  EXPECT_EQ(Flat({dataset_->EpochOrder(42, 0)[0], dataset_->EpochOrder(42, 3)[8]}),
            (std::vector<int64_t>{-2, 13, 14, 15, 17, -2, 15}));
}

// F138: whoever asks, in whatever order and from however many threads, gets the same sequence.
TEST_F(EpochOrderTest, IsTheSameForAnyNumberOfReaders) {
  std::vector<std::vector<int64_t>> expected;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    for (const Batch& batch : dataset_->EpochOrder(7, epoch)) expected.push_back(batch.items);
  }
  for (const int readers : {1, 4}) {
    std::vector<std::vector<int64_t>> actual(expected.size());
    std::vector<std::thread> threads;
    for (int reader = 0; reader < readers; ++reader) {
      threads.emplace_back([this, reader, readers, &actual] {
        // Backwards, so that the epochs are not asked for in their order.
        for (auto i = static_cast<int64_t>(actual.size()) - 1; i >= 0; --i) {
          if (i % readers == reader) actual[static_cast<size_t>(i)] = dataset_->BatchAt(7, i).items;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(actual, expected) << readers << " readers";
  }
}

}  // namespace
}  // namespace blockswap::worker
