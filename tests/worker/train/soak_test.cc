// SPDX-License-Identifier: Apache-2.0
// What must stay as it is over many steps, many jobs and every way a job ends: frozen weights,
// memory, threads.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "offload/base/proc_file.h"
#include "offload/plan/planner.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"
#include "worker/io/sha256.h"
#include "worker/sampler/flow_sampler.h"
#include "worker/train/compute_threads.h"
#include "worker/train/loaded_job.h"
#include "worker/train/step_runner.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

using blockswap::testing::NullReporter;
using testing::ReadRun;
using testing::RunOptions;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

constexpr uint32_t kSeed = 20261130;

int64_t Threads() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& task : fs::directory_iterator("/proc/self/task")) ++count;
  return count;
}

int64_t LockedBytes() { return base::ReadProcBytes("/proc/self/status", "VmLck").value_or(0); }
int64_t ResidentBytes() {
#ifdef BLOCKSWAP_SANITIZED
  return 0;  // they keep what is freed, and tell of leaks themselves
#else
  return base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
#endif
}

// A job in memory, its device and a runner of its steps.
class OpenJob {
 public:
  OpenJob(const TinyJob& tiny, const std::vector<std::string>& overrides)
      : job_(*tiny.Open(overrides)), session_(*DeviceSession::Open({"host", {}, {}})) {
    UseThreads(job_.config.training.threads);
    const Machine machine = *session_->Measure();
    loaded_ =
        *LoadedJob::Load(&job_, *offload::Plan(MakePlanRequest(job_, machine)), session_.get());
    runner_ = std::make_unique<StepRunner>(&job_, loaded_->walk_context(), &loaded_->trained());
  }

  absl::Status Step(int64_t step, const std::function<absl::Status()>& stop) {
    const auto outcome = runner_->ComputeGradients(step, stop);
    if (!outcome.ok()) return outcome.status();
    StepOutcome taken = *outcome;
    return runner_->Update(&taken);
  }

  // One line a block, and what the base model says to a fixed input: that reads the edges too.
  std::vector<std::string> Checksums() {
    std::vector<std::string> sums;
    for (size_t block = 0; block < job_.profile.blocks.size(); ++block) {
      std::string bytes(static_cast<size_t>(job_.profile.blocks[block].bytes), '\0');
      const absl::Status read = loaded_->swapper().ReadBlock(
          static_cast<int>(block),
          absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
      EXPECT_TRUE(read.ok()) << read;
      sums.push_back(Sha256Hex(bytes));
    }
    const auto micro = runner_->FirstMicroBatch(1);
    EXPECT_TRUE(micro.ok()) << micro.status();
    EXPECT_TRUE(loaded_->swapper().BeginPass(offload::PassKind::kForwardOnly).ok());
    const auto walk = WalkForward(loaded_->base_walk_context(), micro->inputs);
    EXPECT_TRUE(walk.ok()) << walk.status();
    const at::Tensor output = walk->output.contiguous();
    sums.push_back(
        Sha256Hex(std::string(static_cast<const char*>(output.data_ptr()), output.nbytes())));
    return sums;
  }

  const JobInspection& job() const { return job_; }
  DeviceSession& session() { return *session_; }
  LoadedJob& loaded() { return *loaded_; }

 private:
  const JobInspection job_;
  const std::unique_ptr<DeviceSession> session_;
  std::unique_ptr<LoadedJob> loaded_;
  std::unique_ptr<StepRunner> runner_;
};

absl::Status GoOn() { return absl::OkStatus(); }

// F071: asynchronous offload that damages the base over time.
TEST(SoakTest, FrozenWeightsStayAsTheyAreThroughTrainingSamplingCancelAndResume) {
  TinyJobOptions options;
  options.max_steps = 200;
  const TinyJob tiny(options);
  const std::vector<std::string> overrides = {"memory.blocks_to_swap=4", "memory.ring_size=2",
                                              "memory.verify_weights=true"};
  std::vector<std::string> before;
  {
    OpenJob open(tiny, overrides);
    before = open.Checksums();
    for (int64_t step = 1; step <= 200; ++step) ASSERT_TRUE(open.Step(step, GoOn).ok()) << step;
    EXPECT_EQ(open.Checksums(), before) << "after 200 steps";

    const auto family = FindFamily(open.job().model.family);
    ASSERT_TRUE(family.ok());
    const auto prompts =
        ReadSamplePrompts(tiny.root() + "/prompts.txt", **family, open.job().model);
    ASSERT_TRUE(prompts.ok()) << prompts.status();
    const auto latents =
        SampleLatents(open.loaded().walk_context(), *prompts, open.job().config.training, GoOn);
    ASSERT_TRUE(latents.ok()) << latents.status();
    EXPECT_EQ(open.Checksums(), before) << "after sampling";

    int asked = 0;
    const absl::Status cancelled = open.Step(
        1, [&asked] { return ++asked > 8 ? absl::CancelledError("stop") : absl::OkStatus(); });
    EXPECT_TRUE(absl::IsCancelled(cancelled)) << cancelled;
    EXPECT_EQ(open.Checksums(), before) << "after a cancel in mid-backward";
    ASSERT_TRUE(open.Step(1, GoOn).ok());
    EXPECT_EQ(open.Checksums(), before) << "after going on";
  }
  OpenJob resumed(tiny, {"memory.blocks_to_swap=2", "memory.ring_size=1"});
  EXPECT_EQ(resumed.Checksums(), before) << "under another plan";
}

// Two prompts through each block together give the latents that each has alone.
TEST(SoakTest, PromptsDrawnTogetherAreThoseDrawnAlone) {
  const TinyJob tiny;
  OpenJob open(tiny, {"memory.blocks_to_swap=4"});
  const auto family = FindFamily(open.job().model.family);
  const auto prompts = ReadSamplePrompts(tiny.root() + "/prompts.txt", **family, open.job().model);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_EQ(prompts->size(), 2u);
  const WalkContext context = open.loaded().walk_context();
  const TrainingConfig& training = open.job().config.training;
  const int64_t moved = open.loaded().swapper().stats().h2d_bytes;
  const auto together = SampleLatents(context, *prompts, training, GoOn);
  ASSERT_TRUE(together.ok()) << together.status();
  const int64_t moved_together = open.loaded().swapper().stats().h2d_bytes - moved;
  for (size_t i = 0; i < prompts->size(); ++i) {
    const auto alone = SampleLatents(context, {(*prompts)[i]}, training, GoOn);
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_TRUE(at::equal(alone->front(), (*together)[i])) << i;
  }
  const int64_t moved_alone = open.loaded().swapper().stats().h2d_bytes - moved - moved_together;
  EXPECT_LT(moved_together, moved_alone * 3 / 4);
}

// F046: cancels at random moments, each followed by a tiny job that must work.
TEST(SoakTest, TwoHundredCancelsAreEachFollowedByAJobThatWorks) {
  std::printf("seed %u\n", kSeed);
  TinyJobOptions options;
  options.max_steps = 2;
  options.layers = 3;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "reference").code, ExitCode::kOk);
  const std::string expected = ReadRun(job.output("reference")).adapter_tensors;
  std::mt19937 random(kSeed);
  int early = 0;
  for (int round = 0; round < 200; ++round) {
    // A step asks twice per block and once by itself.
    const int patience = static_cast<int>(random() % 14);
    int asked = 0;
    RunOptions cancelled;
    cancelled.overrides = {absl::StrCat("memory.blocks_to_swap=", 1 + random() % 2),
                           absl::StrCat("memory.ring_size=", 1 + random() % 2)};
    cancelled.host.latency = absl::Microseconds(random() % 300);
    cancelled.stop_requested = [&] {
      return asked++ < patience ? StopRequest::kNone
             : round % 2 == 0   ? StopRequest::kCancel
                                : StopRequest::kNow;
    };
    const std::string name = absl::StrCat("cancel-", round);
    const ExitReport stopped = TrainTiny(job, name, cancelled);
    ASSERT_TRUE(stopped.code == ExitCode::kCancelled || stopped.code == ExitCode::kOk)
        << round << ": " << stopped.message;
    early += stopped.code == ExitCode::kCancelled ? 1 : 0;
    // The tiny job goes on where the other stopped, or from the start.
    const ExitReport next = TrainTiny(job, name, {});
    ASSERT_EQ(next.code, ExitCode::kOk) << round << ": " << next.message;
    ASSERT_TRUE(ReadRun(job.output(name)).adapter_tensors == expected) << round;
    fs::remove_all(job.output(name));
  }
  EXPECT_GT(early, 150);
}

// F085: what a job held is given back, however it ends.
TEST(SoakTest, ThirtyJobsLeaveNothingBehind) {
  TinyJobOptions options;
  options.max_steps = 3;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "warm-up").code, ExitCode::kOk);
  const int64_t threads = Threads(), locked = LockedBytes();
  int64_t resident = 0;
  for (int round = 0; round < 32; ++round) {
    RunOptions run;
    run.overrides = {"memory.blocks_to_swap=4"};
    NullReporter reporter;
    ExitCode expected = ExitCode::kOk;
    std::vector<std::byte> damaged;
    switch (round % 4) {
      case 1:
        expected = ExitCode::kCancelled;
        reporter.after_step = [&](const StepReport&) { reporter.stop = StopRequest::kCancel; };
        break;
      case 2:
        expected = ExitCode::kDeviceOutOfMemory;
        run.host.before_charge = [&](offload::MemoryLedger& ledger) {
          if (!reporter.steps.empty()) ledger.SetBudget(4096);
        };
        break;
      case 3:
        // A link that damages what it carries: the self-test ends the job. One block, so that one
        // copy at a time reads `damaged`.
        expected = ExitCode::kDeviceFault;
        run.overrides = {"memory.blocks_to_swap=1", "memory.ring_size=1"};
        run.host.h2d_source = [&damaged](offload::DeviceSpan destination, const std::byte* source) {
          damaged.assign(source, source + destination.bytes);
          damaged[1] ^= std::byte{0x40};
          return static_cast<const std::byte*>(damaged.data());
        };
        break;
      default:
        break;
    }
    const std::string name = absl::StrCat("round-", round);
    const ExitReport report = TrainTiny(job, name, run, &reporter);
    EXPECT_EQ(report.code, expected) << round << ": " << report.message;
    EXPECT_EQ(Threads(), threads) << round;
    EXPECT_EQ(LockedBytes(), locked) << round;
    if (round == 7) resident = ResidentBytes();
    fs::remove_all(job.output(name));
  }
  EXPECT_LT(ResidentBytes(), resident + (8 << 20));
}

// F059: optimizer state that came back from a checkpoint to another place than its parameters.
TEST(SoakTest, AResumedJobThatSwapsGoesOnAsIfUnbroken) {
  TinyJobOptions options;
  options.max_steps = 6;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=5", "memory.ring_size=1"};
  ASSERT_EQ(TrainTiny(job, "whole", run).code, ExitCode::kOk);
  NullReporter reporter;
  reporter.after_step = [&](const StepReport& step) {
    if (step.step == 3) reporter.stop = StopRequest::kSuspend;
  };
  ASSERT_EQ(TrainTiny(job, "broken", run, &reporter).code, ExitCode::kSuspended);
  NullReporter resumed;
  ASSERT_EQ(TrainTiny(job, "broken", run, &resumed).code, ExitCode::kOk);
  EXPECT_EQ(resumed.readies.front().start_step, 3);
  EXPECT_EQ(ReadRun(job.output("broken")).losses, ReadRun(job.output("whole")).losses);
  EXPECT_TRUE(ReadRun(job.output("broken")).adapter_tensors ==
              ReadRun(job.output("whole")).adapter_tensors);
  OpenJob open(job, run.overrides);
  const at::Tensor parameters = open.loaded().adapter().parameters();
  for (const at::Tensor& moment :
       {open.loaded().optimizer().first_moment(), open.loaded().optimizer().second_moment()}) {
    EXPECT_EQ(moment.device(), parameters.device());
    EXPECT_EQ(moment.scalar_type(), parameters.scalar_type());
  }
}

// F083: start weights and batches of changing size: what is allocated after a step is what was
// allocated two steps before.
TEST(SoakTest, StartWeightsAndChangingBatchesDoNotAddUp) {
  TinyJobOptions options;
  options.max_steps = 100;
  options.batch_size = 1;  // texts of 2, 3 and 4 tokens take turns
  const TinyJob tiny(options);
  RunOptions first;
  first.overrides = {"training.max_steps=2"};
  ASSERT_EQ(TrainTiny(tiny, "start", first).code, ExitCode::kOk);
  OpenJob open(tiny,
               {"memory.blocks_to_swap=3",
                absl::StrCat("network.weights=", tiny.output("start"), "/tiny-lora.safetensors")});
  std::vector<int64_t> allocated;
  for (int64_t step = 1; step <= 100; ++step) {
    ASSERT_TRUE(open.Step(step, GoOn).ok()) << step;
    allocated.push_back(open.session().runtime()->ledger().Snapshot().total_bytes);
    if (step > 2) {
      ASSERT_EQ(allocated.back(), allocated[allocated.size() - 3]) << step;
    }
  }
}

// A thousand steps: bytes on the device, threads and host memory stay flat.
TEST(SoakTest, AThousandStepsLeaveMemoryFlat) {
  TinyJobOptions options;
  options.max_steps = 1000;
  options.layers = 3;
  options.items = 4;
  const TinyJob tiny(options);
  OpenJob open(tiny, {"memory.blocks_to_swap=2", "memory.ring_size=1"});
  for (int64_t step = 1; step <= 100; ++step) ASSERT_TRUE(open.Step(step, GoOn).ok());
  const offload::MemorySnapshot warm = open.session().runtime()->ledger().Snapshot();
  const int64_t threads = Threads(), resident = ResidentBytes();
  for (int64_t step = 101; step <= 1000; ++step) {
    ASSERT_TRUE(open.Step(step, GoOn).ok());
    const offload::MemorySnapshot now = open.session().runtime()->ledger().Snapshot();
    ASSERT_EQ(now.current_bytes, warm.current_bytes) << step;
    ASSERT_EQ(now.total_peak_bytes, warm.total_peak_bytes) << step;
  }
  EXPECT_EQ(Threads(), threads);
  EXPECT_LT(ResidentBytes(), resident + (4 << 20));
}

}  // namespace
}  // namespace blockswap::worker
