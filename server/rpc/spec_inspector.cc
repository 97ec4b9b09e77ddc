// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/spec_inspector.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "offload/plan/alternatives.h"
#include "offload/plan/device_profiles.h"
#include "offload/plan/planner.h"
#include "server/base/log.h"
#include "server/base/reason.h"
#include "server/rpc/plan_conversion.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"
#include "worker/config/shared_masters_key.h"
#include "worker/config/spec_validation.h"
#include "worker/family/family.h"

namespace blockswap::server {
namespace {

std::vector<Violation> ToViolations(const std::vector<worker::FieldViolation>& violations) {
  std::vector<Violation> out;
  for (const worker::FieldViolation& violation : violations) {
    out.push_back({violation.field, ValidUtf8(violation.description)});
  }
  return out;
}

// The largest device the job may run on.
absl::StatusOr<DeviceState> ChooseDevice(const std::string& requested,
                                         const std::vector<DeviceState>& devices) {
  const DeviceState* best = nullptr;
  std::string names;
  for (const DeviceState& device : devices) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", device.name);
    if (!DeviceFits(device, requested)) continue;
    if (best == nullptr || device.total_bytes > best->total_bytes) best = &device;
  }
  if (best != nullptr && best->total_bytes == 0 && best->health == DeviceHealth::kUnhealthy) {
    return WithReason(
        absl::UnavailableError(absl::StrCat("device ", best->name, ": ", best->health_reason)),
        "DEVICE_UNHEALTHY", {{"device", best->name}});
  }
  if (best != nullptr) return *best;
  return SpecInvalid({{"device", absl::StrCat("\"", requested, "\" is none of auto, ", names)}});
}

worker::Machine MachineOf(const DeviceState& device) {
  worker::Machine machine;
  // What a running job holds will be free when this one's turn comes.
  machine.device_free_bytes = device.is_idle() ? device.free_bytes : device.total_bytes;
  const base::HostFacts host = base::ReadHostFacts();
  machine.host_available_bytes = host.available_bytes;
  if (device.kind == DeviceKind::kHost) {
    machine.host_available_bytes =
        std::max<int64_t>(0, machine.host_available_bytes - device.total_bytes);
  }
  machine.lockable_bytes = std::min(device.lockable_bytes, host.lockable_bytes);
  machine.copies_need_pinned_memory = device.kind == DeviceKind::kCuda;
  machine.link.h2d_bytes_per_second = device.link.h2d;
  machine.link.d2h_bytes_per_second = device.link.d2h;
  machine.link.duplex_h2d_bytes_per_second = device.link.duplex_h2d;
  machine.link.duplex_d2h_bytes_per_second = device.link.duplex_d2h;
  machine.link.pageable_bytes_per_second = device.link.pageable;
  machine.link.latency = absl::Seconds(device.link.latency_seconds);
  return machine;
}

int64_t ModelBytes(const offload::ModelProfile& profile) {
  int64_t bytes = profile.edge_bytes;
  for (const offload::BlockProfile& block : profile.blocks) bytes += block.bytes;
  return bytes;
}

// A GPU's speed is known by its name until a job has measured it; a link that was measured counts.
void AddKnownSpeeds(const DeviceState& device, worker::Machine* machine) {
  // A part of a GPU (MIG) is as fast as its share, which no table knows.
  const bool is_whole = device.kind == DeviceKind::kCuda && device.card_uuid == device.uuid;
  const offload::DeviceProfile* card =
      is_whole ? offload::ProfileOfCard(device.description) : nullptr;
  if (card == nullptr) return;
  if (machine->compute_flops_per_second <= 0) machine->compute_flops_per_second = card->bf16_flops;
  if (machine->link.h2d_bytes_per_second <= 0) machine->link = card->link;
}

// Of a card that is not here: the host is this one.
offload::PlanRequest RequestFor(const worker::JobInspection& job,
                                const offload::DeviceProfile& card) {
  const base::HostFacts host = base::ReadHostFacts();
  worker::Machine machine;
  machine.host_available_bytes = host.available_bytes;
  machine.lockable_bytes = host.lockable_bytes;
  return offload::RequestOn(card, worker::MakePlanRequest(job, machine));
}

// A job whose weights cannot be named only does not share them.
void NoteSharedBase(const offload::SwapPlan& plan, const worker::JobInspection& job,
                    PlanNeeds* needs) {
  const auto keys = worker::SharedMastersKeys(job.config, *job.weights, job.model);
  if (!keys.ok()) {
    LogWarning("a job's weights will not be shared: {}", std::string(keys.status().message()));
  }
  if (!keys.ok() || keys->empty()) return;
  needs->base_key = keys->front();
  if (keys->size() > 1) needs->other_base_key = keys->back();
  for (size_t i = 0; i < plan.blocks.size(); ++i) {
    const bool in_memory = plan.blocks[i].residence == offload::Residence::kStreamed &&
                           plan.blocks[i].tier != offload::HostTier::kFile;
    needs->master_bytes.push_back(in_memory ? job.profile.blocks[i].bytes : 0);
  }
}

PlanNeeds NeedsOf(const offload::SwapPlan& plan, const worker::JobInspection& job) {
  PlanNeeds needs;
  needs.device_bytes = plan.prediction.device_bytes;
  needs.host_bytes = plan.prediction.pinned_bytes + plan.prediction.pageable_bytes;
  // A checkpoint holds the adapter and its optimizer state; the profile counts gradients with the
  // adapter.
  needs.disk_bytes = job.profile.adapter_bytes + job.profile.optimizer_bytes;
  if (job.config.memory.pinned_memory == offload::PinPolicy::kRequired) {
    needs.locked_bytes = plan.prediction.pinned_bytes;
  }
  const double step_seconds = absl::ToDoubleSeconds(plan.prediction.step);
  if (std::isfinite(step_seconds) && step_seconds > 0) needs.step_seconds = step_seconds;
  needs.total_steps = job.total_steps;
  NoteSharedBase(plan, job, &needs);
  needs.blocks_to_swap = plan.blocks_to_swap;
  needs.max_blocks_to_swap = job.profile.max_blocks_to_swap;
  needs.architecture = job.config.model.architecture;
  return needs;
}

absl::StatusOr<worker::JobInspection> Inspect(const worker::TrainConfig& config) {
  std::vector<worker::FieldViolation> violations;
  auto inspected = worker::InspectJob(config, &violations);
  if (!violations.empty()) return SpecInvalid(ToViolations(violations));
  return inspected;
}

absl::StatusOr<CheckedSpec> Answer(const worker::JobInspection& job,
                                   const offload::PlanRequest& request, const std::string& device,
                                   bool alternatives) {
  const absl::StatusOr<offload::SwapPlan> plan = offload::Plan(request);
  if (!plan.ok()) {
    if (absl::IsInvalidArgument(plan.status())) {
      return SpecInvalid({{"memory", ValidUtf8(std::string(plan.status().message()))}});
    }
    return WillNotFit(plan.status(), device);
  }
  CheckedSpec checked;
  checked.plan = PlanToProto(*plan);
  checked.plan.set_model_bytes(ModelBytes(job.profile));
  const std::string largest = worker::LargestBatchText(job);
  if (!largest.empty()) checked.plan.add_notes(largest);
  checked.needs = NeedsOf(*plan, job);
  if (checked.needs.disk_bytes > 0) {
    checked.plan.add_notes(absl::StrCat("a checkpoint takes about ",
                                        base::FormatByteSize(checked.needs.disk_bytes),
                                        " on the disk of the job's output directory"));
  }
  checked.device = device;
  checked.total_steps = job.total_steps;
  checked.num_items = job.dataset->counts().used;
  checked.warnings = job.warnings;
  if (!alternatives) return checked;
  for (const offload::Alternative& other : offload::Alternatives(request, *plan)) {
    checked.alternatives.push_back(AlternativeToProto(other));
  }
  return checked;
}

}  // namespace

std::vector<std::string> SpecInspector::architectures() const {
  std::vector<std::string> names;
  for (const worker::Family* family : worker::AllFamilies()) names.emplace_back(family->name());
  return names;
}

worker::ScopedOpenRoots SpecInspector::OnlyBelowRoots() const {
  return worker::ScopedOpenRoots({roots_.models, roots_.datasets});
}

absl::StatusOr<worker::TrainConfig> SpecInspector::Validate(const v1::JobSpec& spec) const {
  worker::SpecResult validated = worker::ValidateSpec(spec, roots_);
  if (!validated.violations.empty()) return SpecInvalid(ToViolations(validated.violations));
  if (!validated.outside_roots.empty())
    return PathNotAllowed(ToViolations(validated.outside_roots));
  return *std::move(validated.config);
}

absl::StatusOr<CheckedSpec> SpecInspector::Check(const v1::JobSpec& spec,
                                                 const std::vector<DeviceState>& devices) {
  const worker::ScopedOpenRoots below = OnlyBelowRoots();
  BLOCKSWAP_ASSIGN_OR_RETURN(const worker::TrainConfig config, Validate(spec));
  BLOCKSWAP_ASSIGN_OR_RETURN(const DeviceState device, ChooseDevice(spec.device(), devices));
  BLOCKSWAP_ASSIGN_OR_RETURN(const worker::JobInspection job, Inspect(config));
  worker::Machine machine = MachineOf(device);
  AddKnownSpeeds(device, &machine);
  return Answer(job, worker::MakePlanRequest(job, machine), device.name, /*alternatives=*/false);
}

absl::StatusOr<CheckedSpec> SpecInspector::PlanOnly(const v1::JobSpec& spec,
                                                    const std::vector<DeviceState>& devices,
                                                    const std::string& device_profile) {
  const worker::ScopedOpenRoots below = OnlyBelowRoots();
  BLOCKSWAP_ASSIGN_OR_RETURN(const worker::TrainConfig config, Validate(spec));
  if (device_profile.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const DeviceState device, ChooseDevice(spec.device(), devices));
    BLOCKSWAP_ASSIGN_OR_RETURN(const worker::JobInspection job, Inspect(config));
    worker::Machine machine = MachineOf(device);
    AddKnownSpeeds(device, &machine);
    return Answer(job, worker::MakePlanRequest(job, machine), device.name, /*alternatives=*/true);
  }
  const auto card = offload::FindDeviceProfile(device_profile);
  if (!card.ok()) {
    return SpecInvalid({{"device_profile", ValidUtf8(std::string(card.status().message()))}});
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const worker::JobInspection job, Inspect(config));
  return Answer(job, RequestFor(job, *card), device_profile, /*alternatives=*/true);
}

}  // namespace blockswap::server
