// SPDX-License-Identifier: Apache-2.0
// The same bits for every plan, wherever the weights lie and whatever they are stored as.
#include <unistd.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "offload/base/master_file.h"
#include "tests/worker/testing/plan_edits.h"
#include "tests/worker/testing/plan_equality.h"
#include "tests/worker/testing/tiny_job.h"
#include "worker/config/shared_masters_key.h"

namespace blockswap::worker {
namespace {

using testing::KeepActivations;
using testing::MakeBlockMajor;
using testing::PlanEquality;
using testing::Swapping;
using testing::TinyJobOptions;

constexpr int kBlocks = 6;

// Codes and scales move together; the widened copy is made anew by each op.
TEST(PlanEqualityOfWeightsTest, QuantisedWeights) {
  for (const char* dtype : {"bf16", "fp32"}) {
    TinyJobOptions options;
    options.max_steps = 3;
    options.dtype = dtype;
    PlanEquality equality(options, {"model.quantization=fp8_scaled"});
    const std::string name = absl::StrCat("fp8-", dtype);
    for (int blocks = 1; blocks < kBlocks; ++blocks) {
      equality.Expect(absl::StrCat(name, "-", blocks), Swapping(blocks, 1 + blocks % 3));
    }
    equality.Expect(name + "-pageable", Swapping(4, 2, "never"));
    equality.Expect(name + "-exchange", {"memory.blocks_to_swap=3", "memory.mode=exchange"});
    equality.Expect(name + "-kept", Swapping(3, 2), {},
                    [](offload::SwapPlan* plan) { KeepActivations(plan, 1); });
    equality.Expect(name + "-together", Swapping(4, 1), {}, MakeBlockMajor);
    equality.Expect(name + "-layer", {"memory.blocks_to_swap=4", "memory.granularity=layer"});
  }
}

// Blocks that are read from the checkpoint at each use.
TEST(PlanEqualityOfWeightsTest, FileTier) {
  for (const char* dtype : {"bf16", "fp32"}) {
    TinyJobOptions options;
    options.max_steps = 3;
    options.dtype = dtype;
    PlanEquality equality(options);
    const auto all_in_file = [](offload::SwapPlan* plan) {
      for (offload::BlockPlacement& block : plan->blocks) block.tier = offload::HostTier::kFile;
    };
    const auto every_other = [](offload::SwapPlan* plan) {
      for (size_t i = 0; i < plan->blocks.size(); i += 2) {
        plan->blocks[i].tier = offload::HostTier::kFile;
      }
    };
    offload::HostDeviceOptions staged;
    staged.copies_need_pinned_memory = true;
    const std::string name = absl::StrCat("file-", dtype);
    equality.Expect(name + "-all", Swapping(5, 2), {}, all_in_file);
    equality.Expect(name + "-one-slot", Swapping(5, 1), {}, all_in_file);
    equality.Expect(name + "-half", Swapping(5, 2), {}, every_other);
    equality.Expect(name + "-staged", Swapping(4, 2, "never"), staged, every_other);
  }
}

// Jobs of one server read the same masters, whatever each of them streams.
TEST(PlanEqualityOfWeightsTest, MastersSharedWithOtherJobs) {
  TinyJobOptions options;
  options.max_steps = 3;
  PlanEquality equality(options);
  const absl::StatusOr<JobInspection> job = equality.job().Open({});
  ASSERT_TRUE(job.ok()) << job.status();
  const int fd = *base::CreateMasterFile(*SharedMastersKey(job->config, *job->weights, job->model));
  equality.Expect("shared-first", Swapping(3, 2), {}, nullptr, {fd});
  const int64_t taken = base::MasterFileBytes(fd);
  EXPECT_GT(taken, 0);
  equality.Expect("shared-again", Swapping(3, 2), {}, nullptr, {fd});
  EXPECT_EQ(base::MasterFileBytes(fd), taken);
  equality.Expect("shared-more", Swapping(5, 1), {}, nullptr, {fd});
  EXPECT_GT(base::MasterFileBytes(fd), taken);
  // An exchanging job would write to them: it gets its own.
  const int64_t all = base::MasterFileBytes(fd);
  equality.Expect("shared-exchange", {"memory.blocks_to_swap=2", "memory.mode=exchange"}, {},
                  nullptr, {fd});
  EXPECT_EQ(base::MasterFileBytes(fd), all);
  equality.Expect("shared-last", Swapping(4, 2), {}, nullptr, {fd});
  close(fd);
}

// The planner leaves in the file what host_budget has no room for.
TEST(PlanEqualityOfWeightsTest, MastersBeyondTheHostBudget) {
  TinyJobOptions options;
  options.max_steps = 3;
  PlanEquality equality(options);
  int blocks_in_file = 0;
  const auto count = [&](offload::SwapPlan* plan) {
    for (const offload::BlockPlacement& block : plan->blocks) {
      blocks_in_file += block.residence == offload::Residence::kStreamed &&
                        block.tier == offload::HostTier::kFile;
    }
  };
  std::vector<std::string> overrides = Swapping(5, 2);
  overrides.emplace_back("memory.host_budget=400KiB");
  equality.Expect("host-budget", overrides, {}, count);
  EXPECT_GT(blocks_in_file, 0);
}

// Another job than with modulation on the device; but one job for every plan.
TEST(PlanEqualityOfWeightsTest, HostModulation) {
  for (const char* dtype : {"bf16", "fp32"}) {
    TinyJobOptions options;
    options.max_steps = 3;
    options.dtype = dtype;
    PlanEquality equality(options, {"memory.host_modulation=on", "network.rank=3",
                                    "training.gradient_accumulation_steps=2"});
    const std::string name = absl::StrCat("modulation-", dtype);
    for (int blocks = 1; blocks < kBlocks; ++blocks) {
      equality.Expect(absl::StrCat(name, "-", blocks), Swapping(blocks, 1 + blocks % 3));
    }
    equality.Expect(name + "-exchange", {"memory.blocks_to_swap=3", "memory.mode=exchange"});
    equality.Expect(name + "-layer", {"memory.blocks_to_swap=3", "memory.granularity=layer"});
    equality.Expect(name + "-together", Swapping(4, 2), {}, MakeBlockMajor);
    equality.Expect(name + "-kept", Swapping(2, 2), {},
                    [](offload::SwapPlan* plan) { KeepActivations(plan, 1); });
  }
}

TEST(PlanEqualityOfWeightsTest, HostModulationOfQuantisedWeights) {
  TinyJobOptions options;
  options.max_steps = 2;
  PlanEquality equality(options, {"memory.host_modulation=on", "model.quantization=fp8_scaled"});
  equality.Expect("modulation-fp8-3", Swapping(3, 2));
  equality.Expect("modulation-fp8-5", Swapping(5, 1));
}

}  // namespace
}  // namespace blockswap::worker
