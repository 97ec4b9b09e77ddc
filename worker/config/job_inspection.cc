// SPDX-License-Identifier: Apache-2.0
#include "worker/config/job_inspection.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/family/base_layout.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

// What a person can mend in the spec becomes a violation of its field; a corrupt file or a failing
// disk stays what it is.
absl::Status Blame(const absl::Status& status, const std::string& field,
                   std::vector<FieldViolation>* violations) {
  if (!absl::IsInvalidArgument(status) && !absl::IsNotFound(status)) return status;
  const absl::string_view why = status.message();
  violations->push_back({field, std::string(why.data(), why.size())});
  return absl::OkStatus();
}

absl::StatusOr<const Family*> ChooseFamily(const TrainConfig& config,
                                           const CheckpointSource& weights) {
  if (config.model.architecture.empty()) return DetectFamily(weights);
  return FindFamily(config.model.architecture);
}

void CheckTrainable(const ModelDescription& model, std::vector<FieldViolation>* violations) {
  const QwenImageConfig& config = model.qwen_image;
  if (model.family == "qwen_image" && config.out_channels != model.latent_channels) {
    violations->push_back(
        {"model.weights", absl::StrCat("the model takes latents of ", model.latent_channels,
                                       " channels and predicts ", config.out_channels,
                                       ": there is no training target for that")});
  }
}

void CheckQuantisation(const TrainConfig& config, const ModelDescription& model,
                       std::vector<FieldViolation>* violations) {
  if (!config.network.trains_base || model.quantization == Quantization::kNone) return;
  violations->push_back(
      {"model.weights", absl::StrCat("must be plain weights with network.type none, which trains "
                                     "them; here is ",
                                     QuantizationText(model))});
}

void SetHostModulation(const TrainConfig& config, const Family& family, ModelDescription* model,
                       std::vector<FieldViolation>* violations) {
  if (config.memory.host_modulation != offload::Toggle::kOn) return;
  if (config.network.trains_base) {
    violations->push_back({"memory.host_modulation",
                           "must be auto or off with network.type none: the modulation trains, "
                           "and what trains runs on the device"});
  } else if (!family.SetHostModulation(true, model)) {
    violations->push_back({"memory.host_modulation",
                           absl::StrCat("must be auto or off: no weights of ", model->family,
                                        " depend on the time embedding alone")});
  }
}

void CheckBlocksToSwap(const TrainConfig& config, const ModelDescription& model,
                       std::vector<FieldViolation>* violations) {
  const std::optional<int>& blocks = config.memory.blocks_to_swap;
  if (!blocks.has_value() || (*blocks >= 0 && *blocks <= model.max_blocks_to_swap)) return;
  violations->push_back(
      {"memory.blocks_to_swap",
       absl::StrCat("must be auto or from 0 to ", model.max_blocks_to_swap, ", is ", *blocks,
                    ": the model has ", model.blocks.size(), " blocks")});
}

absl::Status CheckPrompts(const TrainConfig& config, const Family& family,
                          const ModelDescription& model, std::vector<FieldViolation>* violations) {
  if (config.sampling.prompts_path.empty()) return absl::OkStatus();
  return Blame(ReadSamplePrompts(config.sampling.prompts_path, family, model).status(),
               "sampling.prompts", violations);
}

absl::Status CheckAdapterFile(const TrainConfig& config, std::vector<FieldViolation>* violations) {
  if (config.network.weights_path.empty()) return absl::OkStatus();
  return Blame(SafetensorsFile::Open(config.network.weights_path).status(), "network.weights",
               violations);
}

// A base that trains has no adapter: the layout stays empty.
absl::Status SelectAdapter(const TrainConfig& config, const Family& family, JobInspection* job,
                           std::vector<FieldViolation>* violations) {
  if (config.network.trains_base) return absl::OkStatus();
  auto adapter = SelectAdapterModules(job->model, family, config.network);
  BLOCKSWAP_RETURN_IF_ERROR(Blame(adapter.status(), "network", violations));
  if (adapter.ok()) job->adapter = *std::move(adapter);
  return CheckAdapterFile(config, violations);
}

absl::Status OpenDataset(const TrainConfig& config, const Family& family, JobInspection* job,
                         std::vector<FieldViolation>* violations) {
  const size_t before = violations->size();
  auto dataset = Dataset::Open(config.dataset_config_path, family, job->model, config.on_missing,
                               violations, config.datasets_root);
  if (dataset.ok()) {
    job->dataset = *std::move(dataset);
    return absl::OkStatus();
  }
  if (violations->size() > before) return absl::OkStatus();
  return Blame(dataset.status(), "dataset.config", violations);
}

// Steps of a training that is bounded by steps, by epochs, or by whichever ends first.
absl::StatusOr<int64_t> TotalSteps(const TrainConfig& config, const Dataset& dataset) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t total = config.training.max_steps.value_or(kMax);
  if (config.training.max_epochs.has_value()) {
    const int64_t accumulation = config.training.gradient_accumulation_steps;
    const int64_t per_epoch = (dataset.batches_per_epoch() + accumulation - 1) / accumulation;
    if (*config.training.max_epochs > kMax / std::max<int64_t>(per_epoch, 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("must be at most ", kMax / per_epoch, ", is ", *config.training.max_epochs));
    }
    total = std::min(total, per_epoch * *config.training.max_epochs);
  }
  return total;
}

void AddWarnings(JobInspection* job) {
  if (!job->weights->stripped_prefix().empty()) {
    job->warnings.push_back(absl::StrCat("the prefix ", Quoted(job->weights->stripped_prefix()),
                                         " of all tensor names was stripped"));
  }
  // All linears are cast, or none.
  const std::vector<TensorSpec>& tensors = job->model.blocks.front().tensors;
  if (absl::c_any_of(tensors, [](const TensorSpec& tensor) {
        return tensor.fp8.has_value() && tensor.fp8->plain;
      })) {
    job->warnings.push_back(
        "the weights are fp8 without scales: they are taken for a plain cast, whose values are "
        "coarse; if they were made with scales, these are lost and the model is wrong");
  }
  const std::vector<std::string>& warnings = job->dataset->warnings();
  job->warnings.insert(job->warnings.end(), warnings.begin(), warnings.end());
  if (job->config.training.schedule.warmup_steps >= job->total_steps) {
    job->warnings.push_back(absl::StrCat("the learning rate warms up for ",
                                         job->config.training.schedule.warmup_steps,
                                         " steps, but only ", job->total_steps, " are trained"));
  }
}

// What the planner has to know, with the gradients and the state of a base that trains.
void SetProfile(const Family& family, JobInspection* job) {
  job->profile = family.Profile(job->model, job->adapter, job->dataset->token_counts(job->model));
  if (!job->config.network.trains_base) return;
  const std::vector<BaseUnit> units = BaseUnitsOf(job->model);
  job->profile.gradient_bytes = BaseGradientBytes(units, job->model.dtype);
  // Beside the state, the buffer that a block's gradient comes down into.
  job->profile.host_state_bytes = BaseStateBytes(units) + job->profile.gradient_bytes -
                                  units.front().elements * DtypeBytes(Dtype::kFloat32);
}

}  // namespace

absl::StatusOr<JobInspection> InspectJob(const TrainConfig& config,
                                         std::vector<FieldViolation>* violations) {
  const size_t before = violations->size();
  const auto failed = [&] { return violations->size() > before; };
  JobInspection job;
  job.config = config;
  auto weights = CheckpointSource::Open(config.model.weights_path, config.model.config_path);
  BLOCKSWAP_RETURN_IF_ERROR(Blame(weights.status(), "model.weights", violations));
  if (failed()) return ViolationsToStatus(*violations);
  job.weights = *std::move(weights);
  const auto family = ChooseFamily(config, *job.weights);
  BLOCKSWAP_RETURN_IF_ERROR(Blame(family.status(), "model.architecture", violations));
  if (failed()) return ViolationsToStatus(*violations);
  auto model = DescribeModel(**family, *job.weights, config.model.dtype, config.model.quantization);
  BLOCKSWAP_RETURN_IF_ERROR(Blame(model.status(), "model.weights", violations));
  if (failed()) return ViolationsToStatus(*violations);
  job.model = *std::move(model);
  job.config.model.architecture = job.model.family;

  CheckTrainable(job.model, violations);
  SetHostModulation(config, **family, &job.model, violations);
  CheckQuantisation(config, job.model, violations);
  BLOCKSWAP_RETURN_IF_ERROR(OpenDataset(config, **family, &job, violations));
  BLOCKSWAP_RETURN_IF_ERROR(SelectAdapter(config, **family, &job, violations));
  CheckBlocksToSwap(config, job.model, violations);
  BLOCKSWAP_RETURN_IF_ERROR(CheckPrompts(config, **family, job.model, violations));
  if (failed()) return ViolationsToStatus(*violations);

  const auto total = TotalSteps(config, *job.dataset);
  BLOCKSWAP_RETURN_IF_ERROR(Blame(total.status(), "training.max_epochs", violations));
  if (failed()) return ViolationsToStatus(*violations);
  job.total_steps = *total;
  SetProfile(**family, &job);
  AddWarnings(&job);
  return job;
}

bool UseHostModulation(bool on, JobInspection* job) {
  if (on && job->config.network.trains_base) return false;
  const auto family = FindFamily(job->model.family);
  if (!family.ok() || !(*family)->SetHostModulation(on, &job->model)) return false;
  SetProfile(**family, job);
  return true;
}

std::string LargestBatchText(const JobInspection& job) {
  const auto family = FindFamily(job.model.family);
  const std::vector<TokenCounts> counts = job.dataset->token_counts(job.model);
  if (!family.ok() || counts.empty()) return "";
  size_t largest = 0;
  int64_t most = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    const offload::ModelProfile profile =
        (*family)->Profile(job.model, job.adapter, absl::MakeConstSpan(&counts[i], 1));
    const int64_t bytes = profile.conditioning_bytes + profile.boundary_bytes +
                          std::max(profile.block_activation_bytes, profile.edge_activation_bytes);
    if (bytes <= most) continue;
    most = bytes;
    largest = i;
  }
  const Bucket& bucket = job.dataset->buckets()[largest];
  return absl::StrCat("activations: those of the largest of ", counts.size(), " buckets, ",
                      bucket.width, "x", bucket.height, " in batches of ", counts[largest].batch,
                      " (", counts[largest].image, " image and ", counts[largest].text,
                      " text tokens a sample)");
}

offload::PlanRequest MakePlanRequest(const JobInspection& job, const Machine& machine) {
  const MemoryConfig& memory = job.config.memory;
  offload::PlanRequest request;
  request.model = job.profile;
  request.device_free_bytes = machine.device_free_bytes;
  request.host_available_bytes = machine.host_available_bytes;
  request.lockable_bytes = machine.lockable_bytes;
  request.copies_need_pinned_memory = machine.copies_need_pinned_memory;
  request.link = machine.link;
  request.compute_flops_per_second = machine.compute_flops_per_second;
  request.micro_batches = job.config.training.gradient_accumulation_steps;
  request.constraints.vram_budget_bytes = memory.vram_budget_bytes;
  request.constraints.host_budget_bytes = memory.host_budget_bytes;
  request.constraints.blocks_to_swap = memory.blocks_to_swap;
  request.constraints.ring_size = memory.ring_size;
  request.constraints.mode = memory.mode;
  request.constraints.pin_policy = memory.pinned_memory;
  request.constraints.granularity = memory.granularity;
  request.constraints.activation_offload = memory.activation_offload;
  request.constraints.checkpointing =
      job.config.training.gradient_checkpointing ? memory.checkpointing : offload::Toggle::kOff;
  request.base_trains = job.config.network.trains_base;
  request.may_stream_from_file = true;
  request.may_offload_inputs = true;
  return request;
}

}  // namespace blockswap::worker
