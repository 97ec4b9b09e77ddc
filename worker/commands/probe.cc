// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/probe.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_device.h"
#include "offload/plan/planner.h"
#include "offload/swap/block_swapper.h"
#include "worker/adapter/adapter.h"
#include "worker/commands/probe_tensors.h"
#include "worker/commands/probe_weights.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/model/model.h"
#include "worker/train/block_walk.h"

namespace blockswap::worker {
namespace {

// What is known before anything is loaded.
struct ProbeSubject {
  std::shared_ptr<CheckpointSource> source;
  const Family* family = nullptr;
  ModelDescription model;
  AdapterLayout adapter;  // empty without an adapter file
};

absl::StatusOr<ProbeSubject> OpenSubject(const ProbeOptions& options) {
  ProbeSubject subject;
  BLOCKSWAP_ASSIGN_OR_RETURN(subject.source,
                             CheckpointSource::Open(options.weights, options.config));
  BLOCKSWAP_ASSIGN_OR_RETURN(subject.family, options.architecture.empty()
                                                 ? DetectFamily(*subject.source)
                                                 : FindFamily(options.architecture));
  BLOCKSWAP_ASSIGN_OR_RETURN(subject.model, DescribeModel(*subject.family, *subject.source,
                                                          options.dtype, options.quantization));
  if (options.weight_gradients &&
      (options.host_modulation || subject.model.quantization != Quantization::kNone)) {
    return absl::InvalidArgumentError(
        "--weight_grad needs plain weights on the device: neither --host_modulation on nor "
        "quantised ones");
  }
  if (options.host_modulation && !subject.family->SetHostModulation(true, &subject.model)) {
    return absl::InvalidArgumentError(absl::StrCat("--host_modulation on: no weights of ",
                                                   subject.model.family,
                                                   " depend on the time embedding alone; use off"));
  }
  if (!options.adapter.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(subject.adapter, LayoutOfFile(options.adapter, subject.model));
  }
  return subject;
}

absl::StatusOr<offload::SwapPlan> MakePlan(const ProbeOptions& options, const ProbeSubject& subject,
                                           const ModelInputs& inputs,
                                           const offload::DeviceFacts& facts) {
  const TokenCounts tokens{inputs.hidden_states_BSC.size(1),
                           inputs.encoder_hidden_states_BTJ.size(1),
                           inputs.hidden_states_BSC.size(0)};
  const base::HostFacts host = base::ReadHostFacts();
  offload::PlanRequest request;
  request.model =
      subject.family->Profile(subject.model, subject.adapter, absl::MakeConstSpan(&tokens, 1));
  request.device_free_bytes = facts.free_bytes;
  request.host_available_bytes = host.available_bytes;
  request.lockable_bytes = host.lockable_bytes;
  request.constraints.blocks_to_swap = options.blocks_to_swap;
  request.constraints.ring_size = options.ring_size;
  request.constraints.mode = options.mode;
  request.constraints.pin_policy = options.pin_policy;
  request.constraints.granularity = options.granularity;
  return offload::Plan(request);
}

std::string Report(const offload::BlockSwapper& swapper, const WalkResult& result) {
  const offload::SwapStats stats = swapper.stats();
  nlohmann::ordered_json report;
  report["blocks"] = swapper.plan().blocks.size();
  report["blocks_streamed"] = swapper.plan().num_streamed();
  report["loads"] = stats.h2d_transfers;
  report["h2d_bytes"] = stats.h2d_bytes;
  report["d2h_bytes"] = stats.d2h_bytes;
  report["device_weight_bytes_peak"] = stats.device_weight_bytes_peak;
  report["host_master_bytes"] = stats.host_master_bytes;
  report["pinned_bytes"] = stats.pinned_bytes;
  report["forward_seconds"] = absl::ToDoubleSeconds(result.forward);
  report["backward_seconds"] = absl::ToDoubleSeconds(result.backward);
  return report.dump();
}

void AddWeightGradients(const std::vector<BaseUnit>& units, const BaseGradients& gradients,
                        std::map<std::string, at::Tensor>* outputs) {
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (size_t i = 0; i < units[unit].tensors.size(); ++i) {
      const int index = static_cast<int>(unit);
      (*outputs)["grad." + units[unit].tensors[i].name] =
          gradients.View(gradients.sum(index), index, static_cast<int>(i));
    }
  }
}

std::map<std::string, at::Tensor> Outputs(const WalkResult& result,
                                          const std::optional<Adapter>& adapter, bool gradients) {
  std::map<std::string, at::Tensor> outputs = {{"sample", result.output}};
  if (!gradients) return outputs;
  outputs["grad.hidden_states"] = result.hidden_states_grad;
  if (!adapter.has_value()) return outputs;
  for (const AdapterModule& module : adapter->layout().modules) {
    const LoraModule& lora =
        adapter->block(module.target.block).linears[static_cast<size_t>(module.target.slot)];
    outputs[absl::StrCat("grad.", module.key, ".lora_down.weight")] = lora.down_grad;
    outputs[absl::StrCat("grad.", module.key, ".lora_up.weight")] = lora.up_grad;
  }
  return outputs;
}

absl::StatusOr<WalkResult> Walk(const WalkContext& context, const ProbeInputs& inputs,
                                bool gradients) {
  BLOCKSWAP_RETURN_IF_ERROR(context.swapper->BeginPass(
      gradients ? offload::PassKind::kTraining : offload::PassKind::kForwardOnly));
  absl::StatusOr<WalkResult> result =
      gradients
          ? WalkTraining(
                context, inputs.model,
                [&](const at::Tensor&) -> absl::StatusOr<at::Tensor> { return inputs.grad_output; },
                /*want_hidden_states_grad=*/true, nullptr)
          : WalkForward(context, inputs.model);
  BLOCKSWAP_RETURN_IF_ERROR(result.status());
  BLOCKSWAP_RETURN_IF_ERROR(context.swapper->Drain());
  return result;
}

absl::Status RunOnHost(const ProbeOptions& options, const ProbeSubject& subject,
                       std::string* report) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<offload::HostDevice> device,
                             offload::HostDevice::Create({}));
  const CountedHostMemory counted(&device->ledger());
  BLOCKSWAP_ASSIGN_OR_RETURN(const ProbeInputs inputs,
                             ReadQwenImageInputs(options.inputs, subject.model, options.gradients));
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan,
                             MakePlan(options, subject, inputs.model, device->facts()));
  std::vector<offload::BlockProfile> profiles;
  for (const DescribedBlock& block : subject.model.blocks)
    profiles.push_back(PackBlock(block, options.dtype));
  const auto read_block = [&](int block, absl::Span<std::byte> destination) {
    const auto index = static_cast<size_t>(block);
    return ReadPackedBlock(*subject.source, subject.model.blocks[index], profiles[index],
                           options.dtype, destination);
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const std::unique_ptr<offload::BlockSwapper> swapper,
      offload::BlockSwapper::Create(device.get(), std::move(plan), profiles, read_block));
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                             CreateModel(subject.model, *subject.source, at::kCPU));
  std::optional<Adapter> adapter;
  if (!options.adapter.empty()) {
    adapter = Adapter::Create(subject.model, subject.adapter, at::kCPU, options.gradients);
    BLOCKSWAP_RETURN_IF_ERROR(adapter->Load(options.adapter));
  }
  WalkContext context{model.get(), &subject.model, swapper.get(),
                      adapter.has_value() ? &*adapter : nullptr, at::kCPU};
  const std::vector<BaseUnit> units = BaseUnitsOf(subject.model);
  std::unique_ptr<BaseGradients> weights;
  if (options.weight_gradients) {
    BLOCKSWAP_ASSIGN_OR_RETURN(weights, BaseGradients::Create(device.get(), &units, options.dtype,
                                                              at::kCPU, /*lock=*/false));
    model->TrainEdges(weights->edges());
    context.base = weights.get();
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const WalkResult result, Walk(context, inputs, options.gradients));
  std::map<std::string, at::Tensor> outputs = Outputs(result, adapter, options.gradients);
  if (weights != nullptr) {
    BLOCKSWAP_RETURN_IF_ERROR(weights->Finish());
    AddWeightGradients(units, *weights, &outputs);
  }
  if (options.fp8_weights.has_value()) {
    BLOCKSWAP_RETURN_IF_ERROR(
        AddFp8Weights(subject.model, *options.fp8_weights, swapper.get(), &outputs));
  }
  BLOCKSWAP_RETURN_IF_ERROR(WriteProbeOutputs(options.outputs, outputs));
  *report = Report(*swapper, result);
  return absl::OkStatus();
}

// A result of an earlier run must not pass for this one's; an input given as output by mistake must
// not be deleted.
absl::Status RemoveStaleOutput(const ProbeOptions& options) {
  std::error_code error;
  if (!std::filesystem::exists(options.outputs, error)) return absl::OkStatus();
  for (const std::string& input :
       {options.weights, options.config, options.inputs, options.adapter}) {
    if (!input.empty() && std::filesystem::equivalent(input, options.outputs, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--outputs ", options.outputs, " is also an input"));
    }
  }
  if (!std::filesystem::is_regular_file(options.outputs, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--outputs ", options.outputs, " is no regular file"));
  }
  std::filesystem::remove(options.outputs, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the old ", options.outputs, " cannot be removed: ", error.message()));
}

}  // namespace

absl::StatusOr<std::string> Probe(const ProbeOptions& options) {
  BLOCKSWAP_RETURN_IF_ERROR(RemoveStaleOutput(options));
  std::string report;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(const ProbeSubject subject, OpenSubject(options));
    return RunOnHost(options, subject, &report);
  }));
  return report;
}

}  // namespace blockswap::worker
