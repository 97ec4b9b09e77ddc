// SPDX-License-Identifier: Apache-2.0
#include "worker/config/spec_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/config/spec_fixture.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

class SpecValidationTest : public SpecFixture {};

TEST_F(SpecValidationTest, FillsInTheDocumentedDefaults) {
  const SpecResult result = ValidateSpec(good_, roots_);
  ASSERT_TRUE(result.config.has_value()) << ViolationsToStatus(result.violations);
  const TrainConfig& config = *result.config;
  EXPECT_EQ(config.model.weights_path, directory_.Path("models/base.safetensors"));
  EXPECT_EQ(config.dataset_config_path, directory_.Path("datasets/d.toml"));
  EXPECT_EQ(config.datasets_root, roots_.datasets);
  EXPECT_EQ(config.model.dtype, Dtype::kBFloat16);
  EXPECT_EQ(config.network.rank, 16);
  EXPECT_EQ(config.network.alpha, 1.0);
  EXPECT_EQ(config.training.seed, 42);
  EXPECT_EQ(config.training.learning_rate, 1e-4);
  EXPECT_EQ(config.training.timestep_sampling, TimestepSampling::kShift);
  EXPECT_TRUE(config.training.gradient_checkpointing);
  EXPECT_FALSE(config.memory.vram_budget_bytes.has_value());
  EXPECT_FALSE(config.memory.blocks_to_swap.has_value());
  EXPECT_FALSE(config.memory.ring_size.has_value()) << "the planner's choice";
  EXPECT_EQ(config.output.name, "digits");
  EXPECT_EQ(config.output.keep_checkpoints, 3);
  EXPECT_EQ(config.device, "auto");
  EXPECT_THAT(config.spec_json, HasSubstr("\"max_steps\":\"10\""));
}

TEST_F(SpecValidationTest, TakesEveryValueOfTheExample) {
  const SpecResult result = With([](v1::JobSpec& spec) {
    spec.mutable_model()->set_architecture("qwen_image");
    spec.mutable_model()->set_weights("base");
    spec.mutable_model()->set_dtype("fp32");
    spec.mutable_network()->set_alpha(0);
    spec.mutable_network()->set_rank(8);
    spec.mutable_training()->set_timestep_sampling("qwen_shift");
    spec.mutable_training()->mutable_scheduler()->set_type("cosine");
    spec.mutable_memory()->set_vram_budget("12MiB");
    spec.mutable_memory()->set_blocks_to_swap("4");
    spec.mutable_memory()->set_mode("exchange");
    spec.mutable_memory()->set_pinned_memory("never");
    spec.mutable_sampling()->set_prompts("prompts.txt");
    spec.mutable_sampling()->set_every_steps(5);
    spec.mutable_output()->set_save_precision("fp16");
    spec.set_device("cuda:1");
  });
  ASSERT_TRUE(result.config.has_value()) << ViolationsToStatus(result.violations);
  EXPECT_EQ(result.config->network.alpha, 8.0) << "0 means the rank, as in musubi";
  EXPECT_EQ(result.config->memory.vram_budget_bytes, int64_t{12} << 20);
  EXPECT_EQ(result.config->memory.blocks_to_swap, 4);
  EXPECT_EQ(result.config->memory.mode, offload::TransferMode::kExchange);
  EXPECT_EQ(result.config->output.save_precision, Dtype::kFloat16);
}

TEST_F(SpecValidationTest, ReportsEveryViolationAtOnceInSchemaOrder) {
  v1::JobSpec spec;
  spec.mutable_model()->set_dtype("bf61");
  spec.mutable_network()->set_rank(0);
  spec.mutable_training()->set_learning_rate(-1);
  spec.mutable_training()->mutable_optimizer()->set_type("adamw8bit");
  spec.mutable_memory()->set_vram_budget("much");
  spec.mutable_memory()->set_ring_size(0);
  spec.mutable_output()->set_save_precision("fp8");
  spec.set_device("gpu");
  spec.set_priority(101);
  const SpecResult result = ValidateSpec(spec, roots_);
  std::vector<std::string> fields;
  for (const FieldViolation& violation : result.violations) fields.push_back(violation.field);
  EXPECT_EQ(fields, (std::vector<std::string>{
                        "name", "model.weights", "model.dtype", "dataset.config", "network.rank",
                        "training.max_steps", "training.learning_rate", "training.optimizer.type",
                        "memory.vram_budget", "memory.ring_size", "output.save_precision", "device",
                        "priority"}));
  EXPECT_THAT(
      ViolationsToStatus(result.violations).ToString(),
      HasSubstr("model.dtype: must be one of bf16, fp32, is \"bf61\"; did you mean \"bf16\"?\n"));
  EXPECT_THAT(ViolationsToStatus(result.violations).ToString(),
              HasSubstr("network.rank: must be from 1 to 4096, is 0"));
}

// Row 32 of the fault list: NaN, infinity, negative, zero where it means nothing, and the largest
// value, in every numeric field.
TEST_F(SpecValidationTest, RefusesNonsenseInEveryNumber) {
  using Set = std::function<void(v1::JobSpec&, double)>;
  const std::vector<std::pair<std::string, Set>> reals = {
      {"network.alpha", [](auto& s, double v) { s.mutable_network()->set_alpha(v); }},
      {"training.learning_rate",
       [](auto& s, double v) { s.mutable_training()->set_learning_rate(v); }},
      {"training.optimizer.beta1",
       [](auto& s, double v) { s.mutable_training()->mutable_optimizer()->set_beta1(v); }},
      {"training.optimizer.beta2",
       [](auto& s, double v) { s.mutable_training()->mutable_optimizer()->set_beta2(v); }},
      {"training.optimizer.eps",
       [](auto& s, double v) { s.mutable_training()->mutable_optimizer()->set_eps(v); }},
      {"training.optimizer.weight_decay",
       [](auto& s, double v) { s.mutable_training()->mutable_optimizer()->set_weight_decay(v); }},
      {"training.scheduler.min_lr_ratio",
       [](auto& s, double v) { s.mutable_training()->mutable_scheduler()->set_min_lr_ratio(v); }},
      {"training.discrete_flow_shift",
       [](auto& s, double v) { s.mutable_training()->set_discrete_flow_shift(v); }},
      {"training.sigmoid_scale",
       [](auto& s, double v) { s.mutable_training()->set_sigmoid_scale(v); }},
      {"training.min_timestep",
       [](auto& s, double v) { s.mutable_training()->set_min_timestep(v); }},
      {"training.max_timestep",
       [](auto& s, double v) { s.mutable_training()->set_max_timestep(v); }},
      {"training.max_grad_norm",
       [](auto& s, double v) { s.mutable_training()->set_max_grad_norm(v); }},
  };
  for (const auto& [field, set] : reals) {
    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity(), -1.0, std::numeric_limits<double>::max()}) {
      SCOPED_TRACE(value);
      ExpectViolation([&, &apply = set](v1::JobSpec& spec) { apply(spec, value); }, field);
    }
  }
  for (const char* zero : {"training.learning_rate", "training.optimizer.eps",
                           "training.discrete_flow_shift", "training.sigmoid_scale"}) {
    for (const auto& [field, set] : reals) {
      if (field != zero) continue;
      ExpectViolation([&apply = set](v1::JobSpec& spec) { apply(spec, 0.0); }, field, "above 0");
    }
  }
}

TEST_F(SpecValidationTest, RefusesWholeNumbersOutOfRange) {
  using Set = std::function<void(v1::JobSpec&, int64_t)>;
  struct Case {
    std::string field;
    Set set;
    bool zero_is_right, wide;
  };
  const auto narrow = [](int64_t v) { return static_cast<int32_t>(v); };
  const std::vector<Case> cases = {
      {"network.rank", [&](auto& s, int64_t v) { s.mutable_network()->set_rank(narrow(v)); }, false,
       false},
      {"training.max_steps", [](auto& s, int64_t v) { s.mutable_training()->set_max_steps(v); },
       false, true},
      {"training.max_epochs", [](auto& s, int64_t v) { s.mutable_training()->set_max_epochs(v); },
       false, true},
      {"training.scheduler.warmup_steps",
       [](auto& s, int64_t v) { s.mutable_training()->mutable_scheduler()->set_warmup_steps(v); },
       true, true},
      {"training.seed", [](auto& s, int64_t v) { s.mutable_training()->set_seed(v); }, true, true},
      {"training.gradient_accumulation_steps",
       [&](auto& s, int64_t v) {
         s.mutable_training()->set_gradient_accumulation_steps(narrow(v));
       },
       false, false},
      {"training.threads",
       [&](auto& s, int64_t v) { s.mutable_training()->set_threads(narrow(v)); }, false, false},
      {"memory.ring_size",
       [&](auto& s, int64_t v) { s.mutable_memory()->set_ring_size(narrow(v)); }, false, false},
      {"sampling.every_steps",
       [](auto& s, int64_t v) {
         s.mutable_sampling()->set_every_steps(v);
         s.mutable_sampling()->set_prompts("prompts.txt");
       },
       true, true},
      {"sampling.steps", [&](auto& s, int64_t v) { s.mutable_sampling()->set_steps(narrow(v)); },
       false, false},
      {"output.save_every_steps",
       [](auto& s, int64_t v) { s.mutable_output()->set_save_every_steps(v); }, true, true},
      {"output.keep_checkpoints",
       [&](auto& s, int64_t v) { s.mutable_output()->set_keep_checkpoints(narrow(v)); }, false,
       false},
      {"retry.max_restarts",
       [&](auto& s, int64_t v) { s.mutable_retry()->set_max_restarts(narrow(v)); }, true, false},
      {"priority", [&](auto& s, int64_t v) { s.set_priority(narrow(v)); }, true, false},
  };
  for (const Case& one : cases) {
    std::vector<int64_t> values = {std::numeric_limits<int32_t>::min(),
                                   std::numeric_limits<int32_t>::max()};
    if (one.wide)
      values = {-1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    if (!one.zero_is_right) values.push_back(0);
    for (const int64_t value : values) {
      SCOPED_TRACE(value);
      ExpectViolation([&](v1::JobSpec& spec) { one.set(spec, value); }, one.field, "must be from ");
    }
  }
}

TEST_F(SpecValidationTest, RefusesBadWordsWithTheNearestChoice) {
  ExpectViolation([](auto& s) { s.mutable_model()->set_architecture("qwen-image"); },
                  "model.architecture", "did you mean \"qwen_image\"?");
  ExpectViolation([](auto& s) { s.mutable_dataset()->set_on_missing("ignore"); },
                  "dataset.on_missing", "must be one of error, skip");
  ExpectViolation([](auto& s) { s.mutable_training()->set_timestep_sampling("shfit"); },
                  "training.timestep_sampling", "did you mean \"shift\"?");
  ExpectViolation([](auto& s) { s.mutable_training()->mutable_scheduler()->set_type("linear"); },
                  "training.scheduler.type", "must be one of constant, cosine");
  ExpectViolation([](auto& s) { s.mutable_training()->set_on_nonfinite("Stop"); },
                  "training.on_nonfinite", "did you mean \"stop\"?");
  ExpectViolation([](auto& s) { s.mutable_memory()->set_pinned_memory("yes"); },
                  "memory.pinned_memory");
  for (const char* bytes : {"-1", "12 GB RAM", "0", "99999999999TiB", "nan"}) {
    ExpectViolation([&](auto& s) { s.mutable_memory()->set_vram_budget(bytes); },
                    "memory.vram_budget");
    ExpectViolation([&](auto& s) { s.mutable_memory()->set_host_budget(bytes); },
                    "memory.host_budget");
  }
  for (const char* blocks : {"-1", "many", "1.5", "99999999999999999999", "4x"}) {
    ExpectViolation([&](auto& s) { s.mutable_memory()->set_blocks_to_swap(blocks); },
                    "memory.blocks_to_swap");
  }
  for (const char* device :
       {"cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:99999", "GPU-", "GPU-/etc"}) {
    ExpectViolation([&](auto& s) { s.set_device(device); }, "device");
  }
}

TEST_F(SpecValidationTest, ReadsABaseThatTrains) {
  const auto train_base = [](auto& s) {
    s.clear_network();
    s.mutable_network()->set_type("none");
    s.mutable_memory()->set_mode("exchange");
  };
  const SpecResult result = With(train_base);
  ASSERT_TRUE(result.config.has_value());
  EXPECT_TRUE(result.config->network.trains_base);
  ExpectViolation(
      [&](auto& s) {
        train_base(s);
        s.mutable_network()->set_rank(8);
      },
      "network.rank", "network.type none trains the base itself");
  ExpectViolation(
      [&](auto& s) {
        train_base(s);
        s.mutable_network()->add_exclude_patterns(".*");
      },
      "network.exclude_patterns", "is a setting of an adapter");
}

TEST_F(SpecValidationTest, ReadsHowMemoryIsSpent) {
  const SpecResult result = With([](auto& s) {
    s.mutable_model()->set_quantization("fp8_scaled");
    s.mutable_memory()->set_granularity("layer");
    s.mutable_memory()->set_activation_offload("on");
    s.mutable_memory()->set_host_modulation("off");
    s.mutable_memory()->set_checkpointing("on");
    s.mutable_memory()->set_verify_weights(true);
    s.mutable_sampling()->set_vram_budget("3GiB");
  });
  ASSERT_TRUE(result.config.has_value());
  EXPECT_EQ(result.config->model.quantization, Quantization::kFp8Scaled);
  const MemoryConfig& memory = result.config->memory;
  EXPECT_EQ(memory.granularity, offload::Granularity::kLayer);
  EXPECT_EQ(memory.activation_offload, offload::Toggle::kOn);
  EXPECT_EQ(memory.host_modulation, offload::Toggle::kOff);
  EXPECT_EQ(memory.checkpointing, offload::Toggle::kOn);
  EXPECT_TRUE(memory.verify_weights);
  EXPECT_EQ(result.config->sampling.vram_budget_bytes, int64_t{3} << 30);
  ExpectViolation([](auto& s) { s.mutable_memory()->set_host_modulation("yes"); },
                  "memory.host_modulation", "must be one of auto, on, off");
}

TEST_F(SpecValidationTest, ReadsMemorySettingsAlone) {
  v1::MemorySpec spec;
  spec.set_vram_budget("2GiB");
  spec.set_ring_size(3);
  const absl::StatusOr<MemoryConfig> memory = ReadMemorySpec(spec);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->vram_budget_bytes, int64_t{2} << 30);
  EXPECT_EQ(memory->ring_size, 3);
  spec.set_ring_size(0);
  spec.set_mode("swap");
  const absl::Status status = ReadMemorySpec(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("memory.ring_size"), HasSubstr("memory.mode")));
}

TEST_F(SpecValidationTest, NamesRulesAcrossFields) {
  // h2d_only never brings weights back, so it cannot train the base.
  const SpecResult base = With([](auto& s) {
    s.clear_network();
    s.mutable_network()->set_type("none");
  });
  ASSERT_EQ(base.violations.size(), 1u);
  EXPECT_EQ(base.violations[0].field, "memory.mode");
  EXPECT_THAT(base.violations[0].description,
              HasSubstr("network.type none needs memory.mode exchange"));
  ExpectViolation(
      [](auto& s) {
        s.mutable_training()->set_min_timestep(500);
        s.mutable_training()->set_max_timestep(500);
      },
      "training.min_timestep", "must be below training.max_timestep, 500");
  ExpectViolation([](auto& s) { s.mutable_training()->mutable_scheduler()->set_warmup_steps(11); },
                  "training.scheduler.warmup_steps", "at most training.max_steps, 10");
  ExpectViolation([](auto& s) { s.mutable_sampling()->set_every_steps(5); }, "sampling.prompts",
                  "is required");
  ExpectViolation([](auto& s) { s.mutable_training()->clear_max_steps(); }, "training.max_steps",
                  "is required unless training.max_epochs");
  EXPECT_TRUE(With([](auto& s) {
                s.mutable_training()->clear_max_steps();
                s.mutable_training()->set_max_epochs(2);
              }).config.has_value());
}

// F003: streaming without recomputing is refused at submit, naming both options; without streaming
// it is fine.
TEST_F(SpecValidationTest, RefusesStreamingWithoutCheckpointing) {
  for (const char* blocks : {"", "auto", "1", "30"}) {
    for (const char* mode : {"", "h2d_only", "exchange"}) {
      const SpecResult result = With([&](auto& s) {
        s.mutable_training()->set_gradient_checkpointing(false);
        s.mutable_memory()->set_blocks_to_swap(blocks);
        s.mutable_memory()->set_mode(mode);
      });
      ASSERT_EQ(result.violations.size(), 1u);
      EXPECT_EQ(result.violations[0].field, "memory.blocks_to_swap");
      EXPECT_THAT(result.violations[0].description, HasSubstr("training.gradient_checkpointing"));
      EXPECT_THAT(result.violations[0].description, HasSubstr("memory.blocks_to_swap: 0"));
    }
  }
  EXPECT_TRUE(With([](auto& s) {
                s.mutable_training()->set_gradient_checkpointing(false);
                s.mutable_memory()->set_blocks_to_swap("0");
              }).config.has_value());
}

TEST_F(SpecValidationTest, RefusesNamesThatAreNoFileNames) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("../x"),
        std::string(".hidden"), std::string("-rf"), std::string("a b"), std::string("a\nb"),
        std::string("a\0b", 3), std::string("\u00e4"), std::string(64, 'a')}) {
    ExpectViolation(
        [&](auto& s) {
          s.set_name(name);
          s.mutable_output()->set_name("fine");
        },
        "name", "must be 1 to 63 letters");
    if (name.empty()) continue;
    ExpectViolation([&](auto& s) { s.mutable_output()->set_name(name); }, "output.name");
  }
  ExpectViolation([](auto& s) { s.mutable_labels()->insert({"a b", "x"}); }, "labels.\"a b\"");
  ExpectViolation(
      [](auto& s) {
        s.mutable_labels()->insert({"a", std::string(257, 'x')});
      },
      "labels.\"a\"");
  // The syntax of Kubernetes, keys with a domain included.
  for (const char* key : {"/a", "a/", "-a", "a-", "example..com/a", "a/b/c"}) {
    ExpectViolation([key](auto& s) { s.mutable_labels()->insert({key, "x"}); },
                    absl::StrCat("labels.\"", key, "\""));
  }
  for (const char* value : {"a b", "-a", "a_", "x=y"}) {
    ExpectViolation([value](auto& s) { s.mutable_labels()->insert({"a", value}); },
                    "labels.\"a\"");
  }
  ExpectViolation(
      [](auto& s) {
        for (int i = 0; i < 33; ++i) s.mutable_labels()->insert({absl::StrCat("k", i), "v"});
      },
      "labels", "at most 32");
  ExpectViolation(
      [](auto& s) {
        for (int i = 0; i < 65; ++i)
          s.mutable_network()->add_exclude_patterns(absl::StrCat("x", i));
      },
      "network.exclude_patterns", "at most 64");
}

}  // namespace
}  // namespace blockswap::worker
