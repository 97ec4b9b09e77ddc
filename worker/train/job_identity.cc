// SPDX-License-Identifier: Apache-2.0
#include "worker/train/job_identity.h"

#include <filesystem>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "worker/io/sha256.h"

namespace blockswap::worker {
namespace {

constexpr size_t kMaxDifferencesShown = 5;

std::string Number(double value) { return absl::StrFormat("%.17g", value); }

std::string DescribeWeights(const JobInspection& job) {
  std::string table;
  for (const auto& [name, tensor] : job.weights->tensors()) {
    absl::StrAppend(&table, name, " ", StoredTypeName(tensor.entry.type), " ",
                    absl::StrJoin(tensor.entry.shape, "x"), "\n");
  }
  return absl::StrCat(job.weights->tensors().size(), " tensors, ", job.weights->total_bytes(),
                      " bytes, table ", Sha256Hex(table).substr(0, 16));
}

// Which weights are codes, and how their scales lie.
std::string DescribeQuantisation(const ModelDescription& model) {
  std::string table;
  for (const DescribedBlock& block : model.blocks) {
    for (const TensorSpec& tensor : block.tensors) {
      if (!tensor.fp8.has_value()) continue;
      absl::StrAppend(&table, tensor.name, " ", StoredTypeName(tensor.fp8->scale_type), " ",
                      tensor.fp8->run, "\n");
    }
  }
  return absl::StrCat("fp8_scaled, table ", Sha256Hex(table).substr(0, 16));
}

std::string DescribeDataset(const Dataset& dataset) {
  std::string table;
  for (const DatasetItem& item : dataset.items()) {
    absl::StrAppend(&table, item.name, " ", item.channels, "x", item.frames, "x", item.height, "x",
                    item.width, " ", item.text_tokens, " ", item.bucket, "\n");
  }
  for (const Bucket& bucket : dataset.buckets()) {
    absl::StrAppend(&table, bucket.batch_size, ": ", absl::StrJoin(bucket.items, ","), "\n");
  }
  return absl::StrCat(dataset.items().size(), " items, table ", Sha256Hex(table).substr(0, 16));
}

std::string DescribeAdapter(const AdapterLayout& layout) {
  std::string table;
  for (const AdapterModule& module : layout.modules) {
    absl::StrAppend(&table, module.key, " ", module.rank, " ", Number(module.alpha), "\n");
  }
  return absl::StrCat(layout.modules.size(), " modules, table ", Sha256Hex(table).substr(0, 16));
}

std::string DescribeFile(const std::string& path) {
  if (path.empty()) return "none";
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return absl::StrCat(std::filesystem::path(path).filename().string(), ", ", error ? 0 : bytes,
                      " bytes");
}

void AddTraining(const TrainingConfig& training, JobIdentity* identity) {
  JobIdentity& facts = *identity;
  facts["training.learning_rate"] = Number(training.learning_rate);
  facts["training.optimizer.beta1"] = Number(training.adamw.beta1);
  facts["training.optimizer.beta2"] = Number(training.adamw.beta2);
  facts["training.optimizer.eps"] = Number(training.adamw.eps);
  facts["training.optimizer.weight_decay"] = Number(training.adamw.weight_decay);
  facts["training.scheduler.type"] =
      training.schedule.type == ScheduleType::kCosine ? "cosine" : "constant";
  facts["training.scheduler.warmup_steps"] = absl::StrCat(training.schedule.warmup_steps);
  facts["training.scheduler.min_lr_ratio"] = Number(training.schedule.min_lr_ratio);
  facts["training.seed"] = absl::StrCat(training.seed);
  facts["training.timestep_sampling"] = absl::StrCat(static_cast<int>(training.timestep_sampling));
  facts["training.discrete_flow_shift"] = Number(training.discrete_flow_shift);
  facts["training.sigmoid_scale"] = Number(training.sigmoid_scale);
  facts["training.min_timestep"] = Number(training.min_timestep);
  facts["training.max_timestep"] = Number(training.max_timestep);
  facts["training.gradient_accumulation_steps"] =
      absl::StrCat(training.gradient_accumulation_steps);
  facts["training.max_grad_norm"] = Number(training.max_grad_norm);
  facts["training.on_nonfinite"] =
      training.on_nonfinite == NonfinitePolicy::kSkip ? "skip" : "stop";
  facts["training.musubi_timestep_offset"] = training.musubi_timestep_offset ? "true" : "false";
}

}  // namespace

JobIdentity IdentityOf(const JobInspection& job) {
  JobIdentity identity;
  identity["name"] = job.config.name;
  identity["model.architecture"] = job.model.family;
  identity["model.dtype"] = std::string(StoredTypeName(ToStoredType(job.model.dtype)));
  identity["model.weights"] = DescribeWeights(job);
  if (job.model.quantization != Quantization::kNone)
    identity["model.quantization"] = DescribeQuantisation(job.model);
  // Host and device round differently. Not set is off, as in checkpoints from before the choice.
  if (job.model.host_modulation) identity[kHostModulationFact] = "on";
  identity["dataset"] = DescribeDataset(*job.dataset);
  identity["network"] =
      job.config.network.trains_base ? "none, the base trains" : DescribeAdapter(job.adapter);
  identity["network.weights"] = DescribeFile(job.config.network.weights_path);
  AddTraining(job.config.training, &identity);
  if (job.config.training.schedule.type == ScheduleType::kCosine) {
    identity["training.max_steps"] = absl::StrCat(job.total_steps);
  }
  return identity;
}

std::string DescribeDifference(const JobIdentity& there, const JobIdentity& here) {
  std::set<std::string> names;
  for (const auto& [name, value] : there) names.insert(name);
  for (const auto& [name, value] : here) names.insert(name);
  const auto value_in = [](const JobIdentity& identity, const std::string& name) {
    const auto found = identity.find(name);
    return found == identity.end() ? std::string("not set") : found->second;
  };
  std::vector<std::string> differences;
  for (const std::string& name : names) {
    const std::string was = value_in(there, name), is = value_in(here, name);
    if (was != is)
      differences.push_back(absl::StrCat(name, " is ", was, " there and ", is, " here"));
  }
  if (differences.size() > kMaxDifferencesShown) {
    const size_t more = differences.size() - kMaxDifferencesShown;
    differences.resize(kMaxDifferencesShown);
    differences.push_back(absl::StrCat(more, " more"));
  }
  return absl::StrJoin(differences, "; ");
}

std::string IdentityToJson(const JobIdentity& identity) { return nlohmann::json(identity).dump(); }

JobIdentity IdentityFromJson(const std::string& text) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  JobIdentity identity;
  if (!parsed.is_object()) return identity;
  for (const auto& [name, value] : parsed.items()) {
    if (value.is_string()) identity[name] = value.get<std::string>();
  }
  return identity;
}

}  // namespace blockswap::worker
