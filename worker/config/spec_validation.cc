// SPDX-License-Identifier: Apache-2.0
#include "worker/config/spec_validation.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/config/field_checker.h"
#include "worker/config/spec_validation_sections.h"
#include "worker/family/family.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kMostSteps = 1'000'000'000;
constexpr int kMostPatterns = 64;
constexpr size_t kMostLabels = 32;
constexpr size_t kLongestLabelPart = 63;
constexpr size_t kLongestLabelPrefix = 253;

void CheckModel(const v1::ModelSpec& spec, const Roots& roots, FieldChecker* check,
                ModelConfig* config) {
  if (!spec.architecture().empty()) {
    const auto family = FindFamily(spec.architecture());
    if (family.ok()) {
      config->architecture = spec.architecture();
    } else {
      const absl::string_view why = family.status().message();
      check->Violate("model.architecture", std::string(why.data(), why.size()));
    }
  }
  if (spec.weights().empty()) {
    check->Violate("model.weights",
                   "is required: a safetensors file, an index or a diffusers directory");
  } else {
    check->Path("model.weights", spec.weights(), roots.models, PathKind::kFileOrDirectory,
                &config->weights_path);
  }
  if (!spec.config().empty()) {
    check->Path("model.config", spec.config(), roots.models, PathKind::kFile, &config->config_path);
  }
  check->Choice<Dtype>("model.dtype", spec.dtype(),
                       {{"bf16", Dtype::kBFloat16}, {"fp32", Dtype::kFloat32}}, {}, &config->dtype);
  check->Choice<Quantization>(
      "model.quantization", spec.quantization(),
      {{"none", Quantization::kNone}, {"fp8_scaled", Quantization::kFp8Scaled}}, {},
      &config->quantization);
}

void CheckDataset(const v1::DatasetSpec& spec, const Roots& roots, FieldChecker* check,
                  TrainConfig* config) {
  config->datasets_root = roots.datasets;
  if (spec.config().empty()) {
    check->Violate("dataset.config", "is required: a musubi dataset TOML");
  } else {
    check->Path("dataset.config", spec.config(), roots.datasets, PathKind::kFile,
                &config->dataset_config_path);
  }
  check->Choice<MissingPolicy>("dataset.on_missing", spec.on_missing(),
                               {{"error", MissingPolicy::kError}, {"skip", MissingPolicy::kSkip}},
                               {}, &config->on_missing);
}

template <typename Patterns>
void CheckPatterns(const char* field, const Patterns& patterns, FieldChecker* check,
                   std::vector<std::string>* result) {
  if (patterns.size() > kMostPatterns) {
    check->Violate(field, absl::StrCat("must have at most ", kMostPatterns, " patterns, has ",
                                       patterns.size()));
    return;
  }
  result->assign(patterns.begin(), patterns.end());
}

void RefuseAdapterSettings(const v1::NetworkSpec& spec, FieldChecker* check) {
  const std::pair<const char*, bool> settings[] = {
      {"network.rank", spec.has_rank()},
      {"network.alpha", spec.has_alpha()},
      {"network.include_patterns", !spec.include_patterns().empty()},
      {"network.exclude_patterns", !spec.exclude_patterns().empty()},
      {"network.weights", !spec.weights().empty()}};
  for (const auto& [field, given] : settings) {
    if (!given) continue;
    check->Violate(field,
                   "is a setting of an adapter, and network.type none trains the base itself");
  }
}

void CheckNetwork(const v1::NetworkSpec& spec, const Roots& roots, FieldChecker* check,
                  NetworkConfig* config) {
  check->Choice<bool>("network.type", spec.type(), {{"lora", false}, {"none", true}}, {},
                      &config->trains_base);
  if (config->trains_base) {
    RefuseAdapterSettings(spec, check);
    return;
  }
  check->Whole("network.rank", spec.has_rank(), spec.rank(), 1, 4096, &config->rank);
  check->Real("network.alpha", spec.has_alpha(), spec.alpha(), FieldChecker::Bound::kClosed, 0,
              FieldChecker::Bound::kClosed, 1e6, &config->alpha);
  if (config->alpha == 0) config->alpha = config->rank;  // musubi's meaning of 0
  CheckPatterns("network.include_patterns", spec.include_patterns(), check,
                &config->include_patterns);
  CheckPatterns("network.exclude_patterns", spec.exclude_patterns(), check,
                &config->exclude_patterns);
  if (!spec.weights().empty()) {
    check->Path("network.weights", spec.weights(), roots.models, PathKind::kFile,
                &config->weights_path);
  }
}

void CheckBlocksToSwap(const std::string& text, FieldChecker* check, MemoryConfig* config) {
  if (text.empty() || text == "auto") return;
  int64_t blocks = 0;
  if (!absl::SimpleAtoi(text, &blocks) || blocks < 0) {
    check->Violate("memory.blocks_to_swap",
                   absl::StrCat("must be auto or a whole number of at least 0, is ", Quoted(text)));
    return;
  }
  // The model's own limit is far lower and named when its file has been read.
  check->Whole("memory.blocks_to_swap", /*given=*/true, blocks, 0, kMostSteps, &blocks);
  if (blocks <= kMostSteps) config->blocks_to_swap = static_cast<int>(blocks);
}

void CheckMemory(const v1::JobSpec& job, FieldChecker* check, TrainConfig* config) {
  const v1::MemorySpec& spec = job.memory();
  MemoryConfig* memory = &config->memory;
  check->Bytes("memory.vram_budget", spec.vram_budget(), &memory->vram_budget_bytes);
  check->Bytes("memory.host_budget", spec.host_budget(), &memory->host_budget_bytes);
  CheckBlocksToSwap(spec.blocks_to_swap(), check, memory);
  if (!config->training.gradient_checkpointing && memory->blocks_to_swap != 0) {
    check->Violate(
        "memory.blocks_to_swap",
        "must be 0 when training.gradient_checkpointing is false: a streamed block's weights are "
        "gone when its backward needs them; set memory.blocks_to_swap: 0 or "
        "training.gradient_checkpointing: true");
  }
  check->Choice<offload::TransferMode>("memory.mode", spec.mode(),
                                       {{"h2d_only", offload::TransferMode::kH2dOnly},
                                        {"exchange", offload::TransferMode::kExchange}},
                                       {}, &memory->mode);
  if (config->network.trains_base && memory->mode == offload::TransferMode::kH2dOnly) {
    check->Violate(
        "memory.mode",
        "h2d_only never writes weights back, so it needs a frozen base: network.type none "
        "needs memory.mode exchange");
  }
  if (config->network.trains_base && config->model.quantization != Quantization::kNone) {
    check->Violate(
        "model.quantization",
        "must be none with network.type none: codes of fp8_scaled are frozen, a base that "
        "trains needs weights of the file's own type");
  }
  int ring_size = 0;
  check->Whole("memory.ring_size", spec.has_ring_size(), spec.ring_size(), 1, 1024, &ring_size);
  if (spec.has_ring_size()) memory->ring_size = ring_size;
  check->Choice<offload::PinPolicy>("memory.pinned_memory", spec.pinned_memory(),
                                    {{"auto", offload::PinPolicy::kAuto},
                                     {"required", offload::PinPolicy::kRequired},
                                     {"never", offload::PinPolicy::kNever}},
                                    {}, &memory->pinned_memory);
  check->Choice<offload::Granularity>(
      "memory.granularity", spec.granularity(),
      {{"block", offload::Granularity::kBlock}, {"layer", offload::Granularity::kLayer}}, {},
      &memory->granularity);
  const std::vector<std::pair<std::string, offload::Toggle>> toggles = {
      {"auto", offload::Toggle::kAuto},
      {"on", offload::Toggle::kOn},
      {"off", offload::Toggle::kOff}};
  check->Choice("memory.activation_offload", spec.activation_offload(), toggles, {},
                &memory->activation_offload);
  check->Choice("memory.host_modulation", spec.host_modulation(), toggles, {},
                &memory->host_modulation);
  check->Choice("memory.checkpointing", spec.checkpointing(), toggles, {}, &memory->checkpointing);
  memory->verify_weights = spec.verify_weights();
}

void CheckSampling(const v1::SamplingSpec& spec, const Roots& roots, FieldChecker* check,
                   SamplingConfig* config) {
  check->Whole("sampling.every_steps", /*given=*/true, spec.every_steps(), 0, kMostSteps,
               &config->every_steps);
  if (!spec.prompts().empty()) {
    check->Path("sampling.prompts", spec.prompts(), roots.datasets, PathKind::kFile,
                &config->prompts_path);
  } else if (config->every_steps > 0) {
    check->Violate("sampling.prompts", "is required when sampling.every_steps is given");
  }
  int64_t steps = 0;
  check->Whole("sampling.steps", spec.has_steps(), spec.steps(), 1, 1000, &steps);
  if (steps > 0) config->steps = static_cast<int>(steps);
  check->Bytes("sampling.vram_budget", spec.vram_budget(), &config->vram_budget_bytes);
}

void CheckOutput(const v1::JobSpec& job, FieldChecker* check, OutputConfig* config) {
  const v1::OutputSpec& spec = job.output();
  if (spec.name().empty()) {
    config->name = job.name();
  } else {
    check->Name("output.name", spec.name(), &config->name);
  }
  check->Whole("output.save_every_steps", spec.has_save_every_steps(), spec.save_every_steps(), 0,
               kMostSteps, &config->save_every_steps);
  check->Whole("output.keep_checkpoints", spec.has_keep_checkpoints(), spec.keep_checkpoints(), 1,
               1000, &config->keep_checkpoints);
  check->Choice<Dtype>(
      "output.save_precision", spec.save_precision(),
      {{"fp32", Dtype::kFloat32}, {"bf16", Dtype::kBFloat16}, {"fp16", Dtype::kFloat16}}, {},
      &config->save_precision);
}

bool IsDevice(const std::string& text) {
  if (text == "auto" || text == "host") return true;
  if (absl::StartsWith(text, "cuda:")) {
    int ordinal = 0;
    return text.find_first_not_of("0123456789", 5) == std::string::npos &&
           absl::SimpleAtoi(text.substr(5), &ordinal) && ordinal < 1024;
  }
  return (absl::StartsWith(text, "GPU-") || absl::StartsWith(text, "MIG-")) && text.size() <= 64 &&
         text.find_first_not_of("0123456789abcdefABCDEF-", 4) == std::string::npos &&
         text.size() > 4;
}

bool IsAlphanumeric(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

// Kubernetes' label syntax: the tools that people filter with know it.
bool IsLabelPart(absl::string_view text) {
  if (text.empty() || text.size() > kLongestLabelPart) return false;
  if (!IsAlphanumeric(text.front()) || !IsAlphanumeric(text.back())) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool IsLabelKey(absl::string_view key) {
  const size_t slash = key.find('/');
  if (slash == absl::string_view::npos) return IsLabelPart(key);
  const absl::string_view prefix = key.substr(0, slash);
  if (prefix.empty() || prefix.size() > kLongestLabelPrefix) return false;
  for (const absl::string_view word : absl::StrSplit(prefix, '.')) {
    if (!IsLabelPart(word)) return false;
  }
  return IsLabelPart(key.substr(slash + 1));
}

void CheckLabels(const v1::JobSpec& spec, FieldChecker* check) {
  if (spec.labels().size() > kMostLabels) {
    check->Violate("labels",
                   absl::StrCat("must be at most ", kMostLabels, ", are ", spec.labels().size()));
  }
  for (const auto& [key, value] : spec.labels()) {
    const std::string field = absl::StrCat("labels.", Quoted(key));
    if (!IsLabelKey(key)) {
      check->Violate(
          field,
          "must be at most 63 letters, digits, '-', '_' and '.', first and last a letter "
          "or digit, optionally behind a domain and '/'");
    }
    if (!value.empty() && !IsLabelPart(value)) {
      check->Violate(field,
                     absl::StrCat("must have a value of at most 63 letters, digits, '-', '_' and "
                                  "'.', first and last a letter or digit, or none; has ",
                                  Quoted(value)));
    }
  }
}

void CheckRest(const v1::JobSpec& spec, FieldChecker* check, TrainConfig* config) {
  if (!spec.device().empty()) {
    if (IsDevice(spec.device())) {
      config->device = spec.device();
    } else {
      check->Violate("device", absl::StrCat("must be auto, host, cuda:N or a GPU uuid, is ",
                                            Quoted(spec.device())));
    }
  }
  int unused = 0;
  check->Whole("retry.max_restarts", spec.retry().has_max_restarts(), spec.retry().max_restarts(),
               0, 1000, &unused);
  check->Whole("priority", /*given=*/true, spec.priority(), -100, 100, &unused);
  CheckLabels(spec, check);
}

void CheckAll(const v1::JobSpec& spec, const Roots& roots, FieldChecker* check,
              TrainConfig* config) {
  check->Name("name", spec.name(), &config->name);
  CheckModel(spec.model(), roots, check, &config->model);
  CheckDataset(spec.dataset(), roots, check, config);
  CheckNetwork(spec.network(), roots, check, &config->network);
  CheckTraining(spec.training(), check, &config->training);
  CheckMemory(spec, check, config);
  CheckSampling(spec.sampling(), roots, check, &config->sampling);
  CheckOutput(spec, check, &config->output);
  CheckRest(spec, check, config);
}

}  // namespace

std::vector<FieldRule> JobFieldRules() {
  std::vector<FieldRule> rules;
  FieldRule& architecture = rules.emplace_back();
  architecture.field = "model.architecture";
  for (const Family* family : AllFamilies()) architecture.words.emplace_back(family->name());
  SpecResult ignored;
  FieldChecker check(&ignored, &rules);
  TrainConfig config;
  CheckAll(v1::JobSpec(), Roots(), &check, &config);
  return rules;
}

absl::StatusOr<MemoryConfig> ReadMemorySpec(const v1::MemorySpec& spec) {
  SpecResult result;
  FieldChecker check(&result);
  v1::JobSpec job;
  *job.mutable_memory() = spec;
  TrainConfig config;
  CheckMemory(job, &check, &config);
  if (!result.violations.empty()) return ViolationsToStatus(result.violations);
  return config.memory;
}

SpecResult ValidateSpec(const v1::JobSpec& spec, const Roots& roots) {
  SpecResult result;
  FieldChecker check(&result);
  TrainConfig config;
  CheckAll(spec, roots, &check, &config);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto printed =
      google::protobuf::util::MessageToJsonString(spec, &config.spec_json, options);
  if (!printed.ok()) check.Violate("", "cannot be written as JSON");
  if (result.violations.empty() && result.outside_roots.empty()) result.config = std::move(config);
  return result;
}

}  // namespace blockswap::worker
