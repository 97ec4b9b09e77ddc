// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/testing/memory_prediction.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/fakes/null_reporter.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"
#include "worker/kernels/counter_random.h"

namespace blockswap::worker::testing {
namespace {

constexpr int64_t kSeed = 20261130;
constexpr double kMostAbove = 0.05, kMostBelow = 0.01;

// Uniform whole numbers, a function of (kSeed, shape).
class Dice {
 public:
  explicit Dice(int shape) : random_({kSeed, 0, shape, RandomPurpose::kTest}) {}
  int64_t Between(int64_t least, int64_t most) {
    return least +
           static_cast<int64_t>(random_.Uniform(next_++) * static_cast<double>(most - least + 1));
  }
  template <typename T>
  T OneOf(std::vector<T> choices) {
    return choices[static_cast<size_t>(Between(0, static_cast<int64_t>(choices.size()) - 1))];
  }

 private:
  CounterRandom random_;
  int next_ = 0;
};

enum class Kind { kPlain, kLayers, kInputsAway, kBaseTrains };

Kind KindOf(int index) {
  if (index < kPlainShapes) return Kind::kPlain;
  constexpr Kind kOthers[] = {Kind::kLayers, Kind::kInputsAway, Kind::kBaseTrains};
  return kOthers[index % 3];
}

struct Shape {
  TinyJobOptions job;
  std::vector<std::string> overrides;
  bool keeps = false;  // no recompute in any resident block
};

// The base trains in place of an adapter, which no longer has settings.
void TrainBase(int64_t swapped, int64_t ring, Shape* shape) {
  shape->job.trains_base = true;
  shape->overrides = {absl::StrCat("memory.blocks_to_swap=", swapped),
                      absl::StrCat("memory.ring_size=", ring)};
  shape->keeps = false;
}

Shape DrawShape(int index) {
  Dice dice(index);
  Shape shape;
  TinyJobOptions& job = shape.job;
  job.layers = dice.Between(3, 7);
  job.heads = dice.Between(1, 5);
  job.head_dim = dice.OneOf<int64_t>({16, 32});
  if (job.head_dim == 32) job.rope_axes = {8, 12, 12};
  job.latent_height = 2 * dice.Between(4, 14);
  job.latent_width = 2 * dice.Between(4, 14);
  job.latent_channels = dice.OneOf<int64_t>({1, 4});
  job.text_features = 4 * dice.Between(2, 10);
  job.batch_size = static_cast<int>(dice.Between(1, 3));
  job.items = job.batch_size;
  job.ragged_text = dice.OneOf<int>({0, 0, 1}) == 1;
  job.text_tokens = dice.OneOf<int64_t>({3, 20, 120});
  job.dtype = dice.OneOf<std::string>({"bf16", "fp32"});
  job.max_steps = 2;
  const int64_t swapped = dice.Between(0, job.layers - 1);
  const int64_t ring = dice.Between(1, 3);
  shape.overrides = {absl::StrCat("memory.blocks_to_swap=", swapped),
                     absl::StrCat("memory.ring_size=", ring),
                     absl::StrCat("network.rank=", dice.OneOf<int>({2, 8, 16}))};
  const std::string modules =
      dice.OneOf<std::string>({"", "", "attn", "img_mlp", "img_mod", "add_q_proj"});
  if (!modules.empty()) {
    shape.overrides.emplace_back("network.exclude_patterns=[\".*\"]");
    shape.overrides.emplace_back(absl::StrCat("network.include_patterns=[\".*", modules, ".*\"]"));
  }
  if (dice.OneOf<int>({0, 0, 1}) == 1) shape.overrides.emplace_back("memory.host_modulation=on");
  if (dice.OneOf<int>({0, 0, 0, 1}) == 1) {
    shape.overrides.emplace_back("model.quantization=fp8_scaled");
  }
  shape.keeps = dice.OneOf<int>({0, 0, 0, 1}) == 1;
  if (KindOf(index) == Kind::kLayers) shape.overrides.emplace_back("memory.granularity=layer");
  if (KindOf(index) == Kind::kInputsAway) {
    shape.overrides.emplace_back("memory.activation_offload=on");
  }
  if (KindOf(index) == Kind::kBaseTrains) TrainBase(swapped, ring, &shape);
  return shape;
}

std::string Describe(int index, const Shape& shape) {
  const TinyJobOptions& job = shape.job;
  return absl::StrCat("shape ", index, ": ", job.layers, " layers, ", job.heads, "x", job.head_dim,
                      ", ", job.dtype, ", batch ", job.batch_size, " of ",
                      job.latent_height * job.latent_width / 4, "+",
                      job.ragged_text ? "ragged" : absl::StrCat(job.text_tokens), " tokens, ",
                      absl::StrJoin(shape.overrides, " "), shape.keeps ? " kept" : "",
                      job.trains_base ? " base trains" : "");
}

void ExpectPredictedPeak(int index) {
  const Shape shape = DrawShape(index);
  const std::string name = Describe(index, shape);
  // Note [Matmul scratch] is of AVX-512, and the largest term of a model 16 wide.
  if (shape.job.dtype == "bf16" && !__builtin_cpu_supports("avx512bw")) {
    std::printf("left out, for this machine has no AVX-512: %s\n", name.c_str());
    return;
  }
  const TinyJob job(shape.job);
  RunOptions options;
  options.overrides = shape.overrides;
  options.overrides.push_back(absl::StrCat("memory.checkpointing=", shape.keeps ? "auto" : "on"));
  blockswap::testing::NullReporter reporter;
  const ExitReport report = TrainTiny(job, "run", options, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << name << ": " << report.message;
  ASSERT_FALSE(reporter.memories.empty());
  const MemoryReport& memory = reporter.memories.back();
  int64_t planned = 0;
  std::string parts;
  // The first plan's: later ones know what was measured.
  for (const auto& [purpose, bytes] : reporter.memories.front().planned_bytes) {
    planned += bytes;
    absl::StrAppend(&parts, " ", purpose, " ", bytes);
  }
  const int64_t measured = memory.measured.total_peak_bytes;
  const double ratio = static_cast<double>(planned) / static_cast<double>(measured) - 1;
  std::printf(
      "%+6.2f %%  planned %9lld measured %9lld activations %9lld  %s\n", 100 * ratio,
      static_cast<long long>(planned), static_cast<long long>(measured),
      static_cast<long long>(
          memory.measured.peak_bytes[static_cast<size_t>(offload::MemoryTag::kActivations)]),
      name.c_str());
  EXPECT_LE(ratio, kMostAbove) << name << parts;
  EXPECT_GE(ratio, -kMostBelow) << name << parts;
}

}  // namespace

void ExpectPredictedPeaks(int first, int last) {
  std::printf("seed %lld\n", static_cast<long long>(kSeed));
  for (int index = first; index < last; ++index) ExpectPredictedPeak(index);
}

}  // namespace blockswap::worker::testing
