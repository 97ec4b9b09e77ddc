// SPDX-License-Identifier: Apache-2.0
#include "worker/train/adapter_metadata.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/status_macros.h"
#include "worker/io/atomic_file.h"
#include "worker/io/sha256.h"

namespace blockswap::worker {
namespace {

using Metadata = std::map<std::string, std::string>;

std::string Flag(bool value) { return value ? "True" : "False"; }  // as Python prints it
std::string Number(double value) { return absl::StrFormat("%.15g", value); }

std::string SamplingName(TimestepSampling sampling) {
  switch (sampling) {
    case TimestepSampling::kUniform:
      return "uniform";
    case TimestepSampling::kSigmoid:
      return "sigmoid";
    case TimestepSampling::kShift:
      return "shift";
    case TimestepSampling::kQwenShift:
      return "qwen_shift";
  }
  return "";
}

std::string PrecisionName(Dtype dtype) {
  return dtype == Dtype::kFloat32 ? "no" : dtype == Dtype::kBFloat16 ? "bf16" : "fp16";
}

// The largest bucket: what the adapter was trained for.
std::string Resolution(const Dataset& dataset) {
  int64_t width = 0, height = 0;
  for (const Bucket& bucket : dataset.buckets()) {
    if (bucket.width * bucket.height > width * height) {
      width = bucket.width;
      height = bucket.height;
    }
  }
  return absl::StrCat(width, "x", height);
}

std::string NetworkArguments(const NetworkConfig& network) {
  nlohmann::json arguments = nlohmann::json::object();
  if (!network.include_patterns.empty()) arguments["include_patterns"] = network.include_patterns;
  if (!network.exclude_patterns.empty()) arguments["exclude_patterns"] = network.exclude_patterns;
  return arguments.dump();
}

void AddTraining(const JobInspection& job, const TrainingMoment& moment, Metadata* metadata) {
  Metadata& fields = *metadata;
  const TrainingConfig& training = job.config.training;
  const int64_t batches = job.dataset->batches_per_epoch();
  const int64_t steps_per_epoch =
      (batches + training.gradient_accumulation_steps - 1) / training.gradient_accumulation_steps;
  fields["ss_training_started_at"] =
      Number(absl::ToDoubleSeconds(moment.started - absl::UnixEpoch()));
  fields["ss_training_finished_at"] =
      Number(absl::ToDoubleSeconds(moment.finished - absl::UnixEpoch()));
  fields["ss_learning_rate"] = Number(training.learning_rate);
  fields["ss_num_train_items"] = absl::StrCat(job.dataset->items().size());
  fields["ss_num_batches_per_epoch"] = absl::StrCat(batches);
  fields["ss_num_epochs"] = absl::StrCat((job.total_steps + steps_per_epoch - 1) / steps_per_epoch);
  fields["ss_gradient_checkpointing"] = Flag(training.gradient_checkpointing);
  fields["ss_gradient_checkpointing_cpu_offload"] = Flag(false);
  fields["ss_gradient_accumulation_steps"] = absl::StrCat(training.gradient_accumulation_steps);
  fields["ss_max_train_steps"] = absl::StrCat(job.total_steps);
  fields["ss_lr_warmup_steps"] = absl::StrCat(training.schedule.warmup_steps);
  fields["ss_lr_scheduler"] =
      training.schedule.type == ScheduleType::kCosine ? "cosine" : "constant";
  fields["ss_mixed_precision"] = PrecisionName(job.model.dtype);
  fields["ss_seed"] = absl::StrCat(training.seed);
  fields["ss_optimizer"] =
      absl::StrFormat("torch.optim.adamw.AdamW(betas=(%s, %s),eps=%s,weight_decay=%s)",
                      Number(training.adamw.beta1), Number(training.adamw.beta2),
                      Number(training.adamw.eps), Number(training.adamw.weight_decay));
  fields["ss_max_grad_norm"] = Number(training.max_grad_norm);
  fields["ss_timestep_sampling"] = SamplingName(training.timestep_sampling);
  fields["ss_sigmoid_scale"] = Number(training.sigmoid_scale);
  fields["ss_discrete_flow_shift"] = Number(training.discrete_flow_shift);
  fields["ss_weighting_scheme"] = "none";
  fields["ss_steps"] = absl::StrCat(moment.step);
  fields["ss_epoch"] = absl::StrCat(moment.epoch);
}

struct ContentHashes {
  std::string data, legacy;
};

// The data section alone, so that metadata does not change it; the legacy form is a window of the
// whole file.
absl::StatusOr<ContentHashes> HashesOf(const std::string& path) {
  constexpr size_t kLegacyOffset = 0x100000, kLegacyBytes = 0x10000, kLegacyDigits = 8,
                   kLengthBytes = 8;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  const std::string file = content.str();
  uint64_t header_bytes = 0;
  if (!in || file.size() < kLengthBytes)
    return absl::DataLossError(absl::StrCat("cannot read back ", path));
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  const absl::string_view view(file);
  ContentHashes hashes;
  hashes.data = Sha256Hex(view.substr(std::min<size_t>(file.size(), kLengthBytes + header_bytes)));
  hashes.legacy = Sha256Hex(view.substr(std::min(file.size(), kLegacyOffset), kLegacyBytes))
                      .substr(0, kLegacyDigits);
  return hashes;
}

}  // namespace

Metadata AdapterMetadata(const JobInspection& job, const TrainingMoment& moment) {
  const TrainConfig& config = job.config;
  Metadata metadata;
  metadata["ss_session_id"] = Sha256Hex(config.spec_json).substr(0, 16);
  metadata["ss_output_name"] = config.output.name;
  metadata["ss_base_model_version"] = job.model.family;
  metadata["ss_network_module"] = absl::StrCat("networks.lora_", job.model.family);
  metadata["ss_network_dim"] = absl::StrCat(config.network.rank);
  metadata["ss_network_alpha"] = Number(config.network.alpha);
  metadata["ss_network_dropout"] = "None";
  metadata["ss_network_args"] = NetworkArguments(config.network);
  metadata["ss_training_comment"] = "None";
  metadata["ss_fp8_base"] = Flag(job.model.quantization != Quantization::kNone);
  metadata["ss_full_fp16"] = Flag(false);
  metadata["ss_full_bf16"] = Flag(false);
  metadata["ss_datasets"] = job.dataset->datasets_json();
  metadata["ss_sd_model_name"] =
      std::filesystem::path(config.model.weights_path).filename().string();
  AddTraining(job, moment, &metadata);
  metadata["modelspec.sai_model_spec"] = "1.0.0";
  metadata["modelspec.architecture"] =
      job.model.family == "qwen_image" ? "Qwen-Image/lora" : job.model.family + "/lora";
  metadata["modelspec.implementation"] = "blockswap";
  metadata["modelspec.title"] = config.output.name;
  metadata["modelspec.resolution"] = Resolution(*job.dataset);
  metadata["modelspec.date"] =
      absl::FormatTime("%Y-%m-%dT%H:%M:%S", moment.finished, absl::UTCTimeZone());
  metadata["modelspec.timestep_range"] =
      absl::StrFormat("%g,%g", config.training.min_timestep, config.training.max_timestep);
  return metadata;
}

absl::Status SaveAdapter(const Adapter& adapter, const JobInspection& job,
                         const TrainingMoment& moment, const std::string& path) {
  Metadata metadata = AdapterMetadata(job, moment);
  const Dtype precision = job.config.output.save_precision;
  Metadata training_only;
  for (const auto& [key, value] : metadata) {
    if (key.rfind("ss_", 0) == 0) training_only[key] = value;
  }
  const std::string trial = absl::StrCat(path, ".hash-", RandomSuffix());
  const absl::Cleanup remove_trial = [&trial] { std::remove(trial.c_str()); };
  BLOCKSWAP_RETURN_IF_ERROR(adapter.Save(trial, precision, training_only));
  BLOCKSWAP_ASSIGN_OR_RETURN(const ContentHashes hashes, HashesOf(trial));
  metadata["sshs_model_hash"] = hashes.data;
  metadata["sshs_legacy_hash"] = hashes.legacy;
  return adapter.Save(path, precision, metadata);
}

}  // namespace blockswap::worker
