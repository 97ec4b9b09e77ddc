// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/host_linear_threads.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernels/counter_random.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kSeed = 20261130;
constexpr int64_t kIn = 40, kOut = 150, kRows = 2;  // several chunks a linear, the last one short
constexpr int kLinears = 12;

std::vector<float> Normal(int64_t count, int64_t sample) {
  std::vector<float> numbers(static_cast<size_t>(count));
  CounterRandom({kSeed, 0, sample, RandomPurpose::kTest}).FillNormal(absl::MakeSpan(numbers));
  return numbers;
}

class HostLinearThreadsTest : public ::testing::Test {
 protected:
  HostLinearThreadsTest() {
    for (int i = 0; i < kLinears; ++i) {
      weights_.push_back(Normal(kIn * kOut, 10 + i));
      biases_.push_back(Normal(kOut, 100 + i));
    }
    for (int i = 0; i < kLinears; ++i) {
      HostLinear linear;
      linear.in = kIn, linear.out = kOut;
      linear.number = HostNumber::kFloat32;
      linear.weight = weights_[static_cast<size_t>(i)].data();
      linear.bias = biases_[static_cast<size_t>(i)].data();
      linears_.push_back(linear);
    }
  }

  // One pass's memory.
  struct Memory {
    explicit Memory(int64_t sample) : x(Normal(kRows * kIn, sample)) {
      y.assign(kLinears, std::vector<float>(static_cast<size_t>(kRows * kOut)));
    }
    std::vector<HostLinearCall> calls() {
      std::vector<HostLinearCall> all;
      for (std::vector<float>& one : y) all.push_back({x.data(), kRows, one.data()});
      return all;
    }
    std::vector<float> x;
    std::vector<std::vector<float>> y;
  };

  std::vector<std::vector<float>> Expected(const Memory& memory) const {
    std::vector<std::vector<float>> expected = memory.y;
    for (size_t i = 0; i < expected.size(); ++i) {
      HostLinearFeatures(linears_[i], memory.x.data(), kRows, 0, kOut, expected[i].data());
    }
    return expected;
  }

  std::vector<std::vector<float>> weights_, biases_;
  std::vector<HostLinear> linears_;
};

TEST_F(HostLinearThreadsTest, EveryNumberOfThreadsGivesTheSameBits) {
  for (const int threads : {0, 1, 3}) {
    HostLinearThreads pool(linears_, threads);
    for (int64_t sample = 0; sample < 5; ++sample) {
      Memory memory(sample);
      const auto pass = pool.Start(memory.calls());
      for (int i = 0; i < kLinears; ++i) pass->Wait(i);
      EXPECT_EQ(memory.y, Expected(memory)) << threads << " threads";
    }
    EXPECT_EQ(pool.stats().passes, 5);
    EXPECT_GT(pool.stats().busy, absl::ZeroDuration());
  }
}

TEST_F(HostLinearThreadsTest, PassesMayOverlapAndBeAskedInAnyOrder) {
  HostLinearThreads pool(linears_, 2);
  Memory first(1), second(2);
  const auto one = pool.Start(first.calls()), two = pool.Start(second.calls());
  for (int i = kLinears - 1; i >= 0; --i) {
    two->Wait(i);
    one->Wait(i);
    one->Wait(i);
  }
  EXPECT_EQ(first.y, Expected(first));
  EXPECT_EQ(second.y, Expected(second));
}

// A cancelled step ends its pass wherever it is; nothing writes to the memory afterwards.
TEST_F(HostLinearThreadsTest, ThePassesOfCancelledStepsEndAtOnce) {
  HostLinearThreads pool(linears_, 2);
  for (int round = 0; round < 200; ++round) {
    auto memory = std::make_unique<Memory>(round);
    auto pass = pool.Start(memory->calls());
    if (round % 3 == 0) pass->Wait(round % kLinears);
    pass.reset();
    memory.reset();
  }
  Memory memory(7);
  const auto pass = pool.Start(memory.calls());
  pass->Wait(kLinears - 1);
  EXPECT_EQ(memory.y.back(), Expected(memory).back());
}

}  // namespace
}  // namespace blockswap::worker
