// SPDX-License-Identifier: Apache-2.0
// The promise that everything else rests on: whatever the plan, loss curve and adapter have the
// same bits.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/plan_edits.h"
#include "tests/worker/testing/plan_equality.h"
#include "tests/worker/testing/tiny_job.h"

namespace blockswap::worker {
namespace {

using testing::KeepActivations;
using testing::MakeBlockMajor;
using testing::MakeWindow;
using testing::OffloadBoundaries;
using testing::PlanEquality;
using testing::Swapping;
using testing::TinyJobOptions;

constexpr int kBlocks = 6;

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

// F070: a block that left while its adapter's gradients were being summed. Four micro-batches, as
// many blocks away as can be.
TEST(PlanEqualityTest, GradientsSumUpWhileTheirBlocksComeAndGo) {
  TinyJobOptions options;
  options.max_steps = 3;
  options.batch_size = 1;
  PlanEquality equality(options, {"training.gradient_accumulation_steps=4"});
  equality.Expect("live-gradients", Swapping(5, 1));
  equality.Expect("live-gradients-together", Swapping(5, 1), {}, MakeBlockMajor);
}

// One upload serves all micro-batches of a step; the last step of an epoch has fewer of them.
TEST(PlanEqualityTest, MicroBatchesTogetherThroughEachBlock) {
  TinyJobOptions options;
  options.max_steps = 5;
  PlanEquality equality(options,
                        {"training.gradient_accumulation_steps=3", "training.max_grad_norm=0.05"});
  for (int blocks : {0, 1, 3, 5}) {
    equality.Expect(absl::StrCat("together-", blocks), Swapping(blocks, 2), {}, MakeBlockMajor);
  }
  equality.Expect("together-one-slot", Swapping(4, 1), {}, MakeBlockMajor);
}

// What the planner makes of a budget when it can time the steps; samples leave some blocks in
// place.
TEST(PlanEqualityTest, OneWindowOverAllWeightMemory) {
  TinyJobOptions options;
  options.max_steps = 4;
  PlanEquality equality(options, {"training.gradient_accumulation_steps=2"});
  offload::HostDeviceOptions slow;
  slow.latency = absl::Milliseconds(1);
  const std::string prompts =
      absl::StrCat("sampling.prompts=", equality.job().root(), "/prompts.txt");
  for (const int slots : {4, 5}) {
    std::vector<std::string> overrides = Swapping(5, 2);
    overrides.insert(overrides.end(), {prompts, "sampling.every_steps=2"});
    equality.Expect(absl::StrCat("window-", slots), overrides, slow,
                    [slots](offload::SwapPlan* plan) { MakeWindow(plan, slots); });
  }
}

TEST(PlanEqualityTest, KeptActivations) {
  for (const char* dtype : {"bf16", "fp32"}) {
    TinyJobOptions options;
    options.max_steps = 3;
    options.dtype = dtype;
    PlanEquality equality(options, {"training.gradient_accumulation_steps=2"});
    for (int every : {1, 2}) {
      for (bool together : {false, true}) {
        const auto keep = [&](offload::SwapPlan* plan) {
          KeepActivations(plan, every);
          if (together) MakeBlockMajor(plan);
        };
        const std::string name = absl::StrCat("keep-", dtype, "-", every, together ? "-t" : "");
        equality.Expect(absl::StrCat(name, "-resident"), Swapping(0, 2), {}, keep);
        equality.Expect(absl::StrCat(name, "-streamed"), Swapping(3, 2), {}, keep);
      }
    }
    // A kept graph asks for its weights again, so even a block that has left and come back may
    // keep.
    equality.Expect("keep-streamed-blocks", Swapping(5, 1), {},
                    [](offload::SwapPlan* plan) { KeepActivations(plan, 1, false); });
  }
}

TEST(PlanEqualityTest, SavedInputsOnTheHost) {
  TinyJobOptions options;
  options.max_steps = 3;
  PlanEquality equality(options, {"training.gradient_accumulation_steps=2"});
  offload::HostDeviceOptions slow;
  slow.latency = absl::Milliseconds(1);
  for (int every : {1, 2}) {
    const auto away = [&](offload::SwapPlan* plan) { OffloadBoundaries(plan, every); };
    const auto away_together = [&](offload::SwapPlan* plan) {
      OffloadBoundaries(plan, every);
      MakeBlockMajor(plan);
    };
    equality.Expect(absl::StrCat("away-resident-", every), Swapping(0, 2), {}, away);
    equality.Expect(absl::StrCat("away-streamed-", every), Swapping(5, 1), {}, away);
    equality.Expect(absl::StrCat("away-slow-", every), Swapping(4, 2), slow, away);
    equality.Expect(absl::StrCat("away-together-", every), Swapping(4, 2), slow, away_together);
  }
  equality.Expect("away-beside-kept", Swapping(3, 2), slow, [](offload::SwapPlan* plan) {
    KeepActivations(plan, 2);
    OffloadBoundaries(plan);
    MakeBlockMajor(plan);
  });
}

TEST(PlanEqualityTest, OneLinearAtATime) {
  for (const char* dtype : {"bf16", "fp32"}) {
    TinyJobOptions options;
    options.max_steps = 3;
    options.dtype = dtype;
    PlanEquality equality(options, {"training.gradient_accumulation_steps=2"});
    for (int blocks : {1, 3, 5}) {
      const std::string name = absl::StrCat("layer-", dtype, "-", blocks);
      const std::string swap = absl::StrCat("memory.blocks_to_swap=", blocks);
      equality.Expect(name, {swap, "memory.granularity=layer"});
      equality.Expect(name + "-pageable",
                      {swap, "memory.granularity=layer", "memory.pinned_memory=never"});
    }
    offload::HostDeviceOptions slow;
    slow.latency = absl::Microseconds(200);
    equality.Expect(absl::StrCat("layer-slow-", dtype),
                    {"memory.blocks_to_swap=4", "memory.granularity=layer"}, slow);
    const std::string prompts =
        absl::StrCat("sampling.prompts=", equality.job().root(), "/prompts.txt");
    equality.Expect(
        absl::StrCat("layer-sampling-", dtype),
        {prompts, "sampling.every_steps=2", "memory.blocks_to_swap=4", "memory.granularity=layer"});
  }
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
