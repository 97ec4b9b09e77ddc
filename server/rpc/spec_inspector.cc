// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/spec_inspector.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "offload/plan/planner.h"
#include "server/base/reason.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"
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
  if (best != nullptr) return *best;
  return SpecInvalid({{"device", absl::StrCat("\"", requested, "\" is none of auto, ", names)}});
}

worker::Machine MachineOf(const DeviceState& device) {
  worker::Machine machine;
  // What a running job holds will be free when this one's turn comes.
  machine.device_free_bytes = device.holder.empty() ? device.free_bytes : device.total_bytes;
  const base::HostFacts host = base::ReadHostFacts();
  machine.host_available_bytes = host.available_bytes;
  if (device.kind == DeviceKind::kHost) {
    machine.host_available_bytes =
        std::max<int64_t>(0, machine.host_available_bytes - device.total_bytes);
  }
  machine.lockable_bytes = std::min(device.lockable_bytes, host.lockable_bytes);
  machine.copies_need_pinned_memory = device.kind == DeviceKind::kCuda;
  return machine;
}

v1::MemoryPlan ToProto(const offload::SwapPlan& plan, const offload::ModelProfile& profile) {
  const offload::Prediction& predicted = plan.prediction;
  v1::MemoryPlan out;
  out.set_num_blocks(static_cast<int>(plan.blocks.size()));
  out.set_blocks_to_swap(plan.blocks_to_swap);
  out.set_ring_size(plan.slots);
  out.set_mode(std::string(offload::TransferModeName(plan.mode)));
  out.set_vram_budget_bytes(plan.vram_budget_bytes);
  out.set_device_bytes(predicted.device_bytes);
  auto& purposes = *out.mutable_device_bytes_by_purpose();
  purposes["ring"] = predicted.ring_bytes;
  purposes["resident"] = predicted.resident_bytes;
  purposes["edge"] = predicted.edge_bytes;
  purposes["adapter"] = predicted.adapter_bytes;
  purposes["optimizer"] = predicted.optimizer_bytes;
  purposes["activations"] = predicted.activation_bytes;
  out.set_pinned_bytes(predicted.pinned_bytes);
  out.set_pageable_bytes(predicted.pageable_bytes);
  out.set_h2d_bytes_per_step(predicted.h2d_bytes_per_step);
  out.set_d2h_bytes_per_step(predicted.d2h_bytes_per_step);
  if (predicted.step > absl::ZeroDuration()) {
    *out.mutable_step_time() = google::protobuf::util::TimeUtil::NanosecondsToDuration(
        absl::ToInt64Nanoseconds(predicted.step));
  }
  for (const int block : plan.streamed_blocks()) out.add_streamed_blocks(block);
  for (const std::string& note : plan.notes) out.add_notes(ValidUtf8(note));
  out.set_json(offload::PlanToJson(plan));
  out.set_text(offload::PlanToText(plan));
  int64_t model_bytes = profile.edge_bytes;
  for (const offload::BlockProfile& block : profile.blocks) model_bytes += block.bytes;
  out.set_model_bytes(model_bytes);
  return out;
}

PlanNeeds NeedsOf(const offload::SwapPlan& plan, const worker::JobInspection& job) {
  PlanNeeds needs;
  needs.device_bytes = plan.prediction.device_bytes;
  needs.host_bytes = plan.prediction.pinned_bytes + plan.prediction.pageable_bytes;
  // A checkpoint holds the adapter and its optimizer state; the profile counts gradients with the
  // adapter.
  needs.disk_bytes = job.profile.adapter_bytes + job.profile.optimizer_bytes;
  needs.blocks_to_swap = plan.blocks_to_swap;
  needs.max_blocks_to_swap = job.profile.max_blocks_to_swap;
  needs.architecture = job.config.model.architecture;
  return needs;
}

}  // namespace

std::vector<std::string> SpecInspector::architectures() const {
  std::vector<std::string> names;
  for (const worker::Family* family : worker::AllFamilies()) names.emplace_back(family->name());
  return names;
}

absl::StatusOr<CheckedSpec> SpecInspector::Check(const v1::JobSpec& spec,
                                                 const std::vector<DeviceState>& devices) {
  worker::SpecResult validated = worker::ValidateSpec(spec, roots_);
  if (!validated.violations.empty()) return SpecInvalid(ToViolations(validated.violations));
  if (!validated.outside_roots.empty())
    return PathNotAllowed(ToViolations(validated.outside_roots));
  BLOCKSWAP_ASSIGN_OR_RETURN(const DeviceState device, ChooseDevice(spec.device(), devices));
  std::vector<worker::FieldViolation> violations;
  auto inspected = worker::InspectJob(*validated.config, &violations);
  if (!violations.empty()) return SpecInvalid(ToViolations(violations));
  BLOCKSWAP_RETURN_IF_ERROR(inspected.status());
  auto plan = offload::Plan(worker::MakePlanRequest(*inspected, MachineOf(device)));
  if (!plan.ok()) {
    if (absl::IsInvalidArgument(plan.status())) {
      return SpecInvalid({{"memory", ValidUtf8(std::string(plan.status().message()))}});
    }
    return WithReason(plan.status(), "WILL_NOT_FIT", {{"device", device.name}});
  }
  CheckedSpec checked;
  checked.plan = ToProto(*plan, inspected->profile);
  checked.needs = NeedsOf(*plan, *inspected);
  checked.device = device.name;
  checked.total_steps = inspected->total_steps;
  checked.num_items = inspected->dataset->counts().used;
  checked.warnings = inspected->warnings;
  return checked;
}

}  // namespace blockswap::server
