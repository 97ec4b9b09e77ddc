// SPDX-License-Identifier: Apache-2.0
// What streaming saves on the device, by the ledger, for plain and for quantised weights.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"

namespace blockswap::worker {
namespace {

using blockswap::testing::NullReporter;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

constexpr int kBlocks = 6;
constexpr int kRing = 2;

struct WeightBytes {
  int64_t resident = 0, ring = 0;
};

class ResidentBytesTest : public ::testing::TestWithParam<const char*> {
 protected:
  ResidentBytesTest() : job_(Options()) {}

  // A file of codes is codes whatever is asked for.
  static bool IsStored() { return std::string(GetParam()) == "stored_fp8"; }
  static TinyJobOptions Options() {
    TinyJobOptions options;
    options.plain_fp8 = IsStored();
    options.heads = 4;
    options.head_dim = 32;  // width 128: two runs of 64 a row
    options.rope_axes = {8, 12, 12};
    options.max_steps = 1;
    return options;
  }

  std::vector<std::string> Overrides(int blocks) const {
    return {absl::StrCat("model.quantization=", IsStored() ? "none" : GetParam()),
            absl::StrCat("memory.blocks_to_swap=", blocks),
            absl::StrCat("memory.ring_size=", kRing)};
  }

  int64_t BlockBytes() const {
    const auto opened = job_.Open(Overrides(0));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? opened->profile.blocks[0].bytes : 0;
  }

  // Trains one step; planned and measured weights must agree to the byte.
  WeightBytes Measure(int blocks) const {
    NullReporter reporter;
    const ExitReport report =
        TrainTiny(job_, absl::StrCat("swap-", blocks), {Overrides(blocks), {}, {}, {}}, &reporter);
    EXPECT_EQ(report.code, ExitCode::kOk) << report.message;
    if (reporter.memories.empty()) {
      ADD_FAILURE() << "no memory was reported";
      return {};
    }
    const MemoryReport& memory = reporter.memories.back();
    for (const offload::MemoryTag tag :
         {offload::MemoryTag::kRing, offload::MemoryTag::kResidentBlocks}) {
      const std::string name(offload::MemoryTagName(tag));
      EXPECT_EQ(memory.measured.current_bytes[static_cast<size_t>(tag)],
                memory.planned_bytes.at(name))
          << name;
    }
    return {memory.measured.current_bytes[static_cast<size_t>(offload::MemoryTag::kResidentBlocks)],
            memory.measured.current_bytes[static_cast<size_t>(offload::MemoryTag::kRing)]};
  }

  const TinyJob job_;
};
INSTANTIATE_TEST_SUITE_P(Forms, ResidentBytesTest,
                         ::testing::Values("none", "fp8_scaled", "stored_fp8"),
                         [](const auto& param) { return std::string(param.param); });

// F074: float8 layers were once skipped by an offloader, and the option freed nothing. Plain casts
// and codes with scales alike.
TEST_P(ResidentBytesTest, FallByEveryBlockThatIsStreamed) {
  const int64_t block = BlockBytes();
  ASSERT_GT(block, 0);
  if (IsStored()) {
    // One byte a value and little else, where bfloat16 takes two.
    TinyJobOptions wide = Options();
    wide.plain_fp8 = false;
    EXPECT_LT(static_cast<double>(block),
              0.6 * static_cast<double>(TinyJob(wide).Open({})->profile.blocks[0].bytes));
  }
  const WeightBytes all = Measure(0);
  EXPECT_EQ(all.ring, 0);
  EXPECT_NEAR(static_cast<double>(all.resident), static_cast<double>(kBlocks * block),
              0.05 * static_cast<double>(kBlocks * block));
  for (const int streamed : {1, 3, kBlocks - 1}) {
    const WeightBytes some = Measure(streamed);
    const auto saved = static_cast<double>(all.resident - some.resident);
    const auto expected = static_cast<double>(streamed * block);
    EXPECT_NEAR(saved, expected, 0.05 * expected) << streamed;
    EXPECT_EQ(some.ring, std::min(kRing, streamed) * block) << streamed;
  }
}

}  // namespace
}  // namespace blockswap::worker
