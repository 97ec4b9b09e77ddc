// SPDX-License-Identifier: Apache-2.0
// The promise that everything else rests on: whatever the plan, loss curve and adapter have the
// same bits.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"

namespace blockswap::worker {
namespace {

using testing::ReadRun;
using testing::RunOptions;
using testing::RunResult;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

constexpr int kBlocks = 6;

std::vector<std::string> Swapping(int blocks, int ring, const std::string& pinned = "auto") {
  return {absl::StrCat("memory.blocks_to_swap=", blocks), absl::StrCat("memory.ring_size=", ring),
          "memory.pinned_memory=" + pinned};
}

// One job, its resident run, and a check of any other run against it.
class PlanEquality {
 public:
  explicit PlanEquality(const TinyJobOptions& options, std::vector<std::string> common = {})
      : job_(options), common_(std::move(common)) {
    const ExitReport report = TrainTiny(job_, "resident", {common_, {}, {}, {}});
    EXPECT_EQ(report.code, ExitCode::kOk) << report.message;
    resident_ = ReadRun(job_.output("resident"));
    EXPECT_EQ(static_cast<int64_t>(resident_.steps.size()), options.max_steps);
    EXPECT_FALSE(resident_.adapter_tensors.empty());
  }

  void Expect(const std::string& name, const std::vector<std::string>& overrides,
              const offload::HostDeviceOptions& host = {}) {
    RunOptions options{common_, host, {}, {}};
    options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
    const ExitReport report = TrainTiny(job_, name, options);
    ASSERT_EQ(report.code, ExitCode::kOk) << name << ": " << report.message;
    const RunResult run = ReadRun(job_.output(name));
    EXPECT_EQ(run.losses, resident_.losses) << name;
    EXPECT_EQ(run.norms, resident_.norms) << name;
    EXPECT_TRUE(run.adapter_tensors == resident_.adapter_tensors) << name;
  }

  const TinyJob& job() const { return job_; }

 private:
  const TinyJob job_;
  const std::vector<std::string> common_;
  RunResult resident_;
};

TEST(PlanEqualityTest, EveryNumberOfStreamedBlocksAndEveryRing) {
  TinyJobOptions options;
  options.max_steps = 4;
  PlanEquality equality(options);
  for (int blocks = 1; blocks < kBlocks; ++blocks) {
    for (int ring = 1; ring <= 3; ++ring) {
      equality.Expect(absl::StrCat("ring-", blocks, "-", ring), Swapping(blocks, ring));
    }
  }
}

TEST(PlanEqualityTest, FullPrecisionToo) {
  TinyJobOptions options;
  options.max_steps = 3;
  options.dtype = "fp32";
  PlanEquality equality(options);
  for (int blocks = 1; blocks < kBlocks; ++blocks) {
    equality.Expect(absl::StrCat("fp32-", blocks), Swapping(blocks, 2));
  }
}

TEST(PlanEqualityTest, PinnedOrNot) {
  TinyJobOptions options;
  options.max_steps = 3;
  PlanEquality equality(options);
  equality.Expect("pageable", Swapping(4, 2, "never"));
  offload::HostDeviceOptions staged;
  staged.copies_need_pinned_memory = true;  // pageable masters go through the staging pool
  equality.Expect("staged", Swapping(4, 2, "never"), staged);
}

TEST(PlanEqualityTest, ExchangeMode) {
  TinyJobOptions options;
  options.max_steps = 4;
  PlanEquality equality(options);
  for (int blocks = 1; blocks < kBlocks; ++blocks) {
    equality.Expect(absl::StrCat("exchange-", blocks),
                    {absl::StrCat("memory.blocks_to_swap=", blocks), "memory.mode=exchange"});
  }
}

TEST(PlanEqualityTest, BudgetInsteadOfBlocks) {
  TinyJobOptions options;
  options.max_steps = 3;
  PlanEquality equality(options);
  equality.Expect("unlimited", {"memory.blocks_to_swap=auto"});
  equality.Expect("budget", {"memory.blocks_to_swap=auto", "memory.vram_budget=2600KiB"});
}

// F002: the same job with copies that arrive late.
TEST(PlanEqualityTest, SlowLinks) {
  TinyJobOptions options;
  options.max_steps = 3;
  PlanEquality equality(options);
  offload::HostDeviceOptions slow;
  slow.latency = absl::Milliseconds(2);
  equality.Expect("slow-ring", Swapping(4, 2), slow);
  equality.Expect("slow-exchange", {"memory.blocks_to_swap=3", "memory.mode=exchange"}, slow);
}

// F005: sampling at step 0 and every 2 steps leaves the losses as they are.
TEST(PlanEqualityTest, SamplingBetweenSteps) {
  TinyJobOptions options;
  options.max_steps = 6;
  PlanEquality equality(options);
  const std::string prompts =
      absl::StrCat("sampling.prompts=", equality.job().root(), "/prompts.txt");
  for (const char* mode : {"h2d_only", "exchange"}) {
    equality.Expect(absl::StrCat("sampling-", mode),
                    {prompts, "sampling.every_steps=2", "memory.blocks_to_swap=3",
                     absl::StrCat("memory.mode=", mode)});
  }
}

TEST(PlanEqualityTest, AccumulationAndClipping) {
  TinyJobOptions options;
  options.max_steps = 5;
  PlanEquality equality(options,
                        {"training.gradient_accumulation_steps=2", "training.max_grad_norm=0.05"});
  equality.Expect("accumulation-ring", Swapping(5, 2));
  equality.Expect("accumulation-one-slot", Swapping(3, 1));
  equality.Expect("accumulation-exchange", {"memory.blocks_to_swap=2", "memory.mode=exchange"});
}

// F001 at the width where it showed: full attention heads, a text longer than a tile.
TEST(PlanEqualityTest, FullWidthBlocks) {
  TinyJobOptions options;
  options.layers = 3;
  options.heads = 4;
  options.head_dim = 128;
  options.rope_axes = {16, 56, 56};
  options.latent_height = options.latent_width = 16;
  options.ragged_text = false;
  options.text_tokens = 40;
  options.items = 2;
  options.batch_size = 1;
  options.max_steps = 2;
  PlanEquality equality(options);
  equality.Expect("wide-1", Swapping(1, 1));
  equality.Expect("wide-2", Swapping(2, 2));
  equality.Expect("wide-exchange", {"memory.blocks_to_swap=1", "memory.mode=exchange"});
}

}  // namespace
}  // namespace blockswap::worker
