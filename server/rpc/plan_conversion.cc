// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/plan_conversion.h"

#include <google/protobuf/util/time_util.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "offload/plan/shortfall.h"
#include "server/base/reason.h"
#include "server/rpc/proto_conversion.h"

namespace blockswap::server {
namespace {

google::protobuf::Duration ToDuration(absl::Duration time) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(time));
}

// An unknown time stays absent: a program must not take it for an instant.
template <typename Message>
void SetTime(absl::Duration time, google::protobuf::Duration* (Message::*field)(), Message* out) {
  if (time > absl::ZeroDuration()) *(out->*field)() = ToDuration(time);
}

void SetTimes(const offload::Prediction& predicted, v1::MemoryPlan* out) {
  SetTime(predicted.step, &v1::MemoryPlan::mutable_step_time, out);
  SetTime(predicted.compute, &v1::MemoryPlan::mutable_compute_time, out);
  SetTime(predicted.copy, &v1::MemoryPlan::mutable_copy_time, out);
  SetTime(predicted.bound, &v1::MemoryPlan::mutable_bound_time, out);
  SetTime(predicted.even_spacing_bound, &v1::MemoryPlan::mutable_even_spacing_bound_time, out);
  if (predicted.step <= absl::ZeroDuration()) return;
  // Known with the step, and often nothing.
  *out->mutable_stall_time() = ToDuration(predicted.stall);
}

}  // namespace

v1::MemoryPlan PlanToProto(const offload::SwapPlan& plan) {
  const offload::Prediction& predicted = plan.prediction;
  v1::MemoryPlan out;
  out.set_num_blocks(static_cast<int>(plan.blocks.size()));
  out.set_blocks_to_swap(plan.blocks_to_swap);
  out.set_ring_size(plan.slots);
  out.set_mode(std::string(offload::TransferModeName(plan.mode)));
  out.set_granularity(std::string(offload::GranularityName(plan.granularity)));
  out.set_block_major(plan.block_major);
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
  out.set_file_bytes(predicted.file_bytes);
  out.set_boundary_host_bytes(predicted.boundary_host_bytes);
  out.set_h2d_bytes_per_step(predicted.h2d_bytes_per_step);
  out.set_d2h_bytes_per_step(predicted.d2h_bytes_per_step);
  SetTimes(predicted, &out);
  for (const int block : plan.streamed_blocks()) out.add_streamed_blocks(block);
  for (int block = 0; block < out.num_blocks(); ++block) {
    if (plan.blocks[static_cast<size_t>(block)].keeps_activations) out.add_keeping_blocks(block);
  }
  for (const std::string& note : plan.notes) out.add_notes(ValidUtf8(note));
  out.set_json(offload::PlanToJson(plan));
  out.set_text(offload::PlanToText(plan));
  return out;
}

v1::PlanAlternative AlternativeToProto(const offload::Alternative& alternative) {
  v1::PlanAlternative out;
  out.set_vram_budget_bytes(alternative.vram_budget_bytes);
  out.set_fits(alternative.fits);
  out.set_device_bytes(alternative.device_bytes);
  out.set_blocks_to_swap(alternative.blocks_to_swap);
  out.set_num_streamed(alternative.num_streamed);
  out.set_h2d_bytes_per_step(alternative.h2d_bytes_per_step);
  SetTime(alternative.step, &v1::PlanAlternative::mutable_step_time, &out);
  out.set_saves(alternative.saves);
  return out;
}

absl::Status WillNotFit(const absl::Status& refusal, const std::string& device) {
  std::map<std::string, std::string> metadata = {{"device", device}};
  if (const auto shortfall = offload::ShortfallOf(refusal)) {
    metadata["resource"] = shortfall->resource;
    metadata["need"] = absl::StrCat(shortfall->needed_bytes);
    metadata["have"] = absl::StrCat(shortfall->available_bytes);
    metadata["would_fit"] = shortfall->would_fit;
  }
  return WithReason(refusal, "WILL_NOT_FIT", metadata);
}

}  // namespace blockswap::server
