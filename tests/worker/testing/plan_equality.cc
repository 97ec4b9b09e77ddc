// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/testing/plan_equality.h"

#include <utility>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/train_run.h"

namespace blockswap::worker::testing {

std::vector<std::string> Swapping(int blocks, int ring, const std::string& pinned) {
  return {absl::StrCat("memory.blocks_to_swap=", blocks), absl::StrCat("memory.ring_size=", ring),
          "memory.pinned_memory=" + pinned};
}

PlanEquality::PlanEquality(const TinyJobOptions& options, std::vector<std::string> common)
    : job_(options), common_(std::move(common)) {
  const ExitReport report = TrainTiny(job_, "resident", {common_, {}, {}, {}, {}});
  EXPECT_EQ(report.code, ExitCode::kOk) << report.message;
  resident_ = ReadRun(job_.output("resident"));
  EXPECT_EQ(static_cast<int64_t>(resident_.steps.size()), options.max_steps);
  EXPECT_FALSE(resident_.adapter_tensors.empty());
}

void PlanEquality::Expect(const std::string& name, const std::vector<std::string>& overrides,
                          const offload::HostDeviceOptions& host,
                          const std::function<void(offload::SwapPlan*)>& edit_plan,
                          const std::vector<int>& masters_fds) {
  RunOptions options{common_, host, {}, {}, edit_plan, masters_fds};
  options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
  const ExitReport report = TrainTiny(job_, name, options);
  ASSERT_EQ(report.code, ExitCode::kOk) << name << ": " << report.message;
  const RunResult run = ReadRun(job_.output(name));
  EXPECT_EQ(run.losses, resident_.losses) << name;
  EXPECT_EQ(run.norms, resident_.norms) << name;
  EXPECT_TRUE(run.adapter_tensors == resident_.adapter_tensors) << name;
}

}  // namespace blockswap::worker::testing
