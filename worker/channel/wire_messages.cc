// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/wire_messages.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/text/utf8.h"

namespace blockswap::worker {
namespace {

constexpr size_t kMaxTextBytes = 16 * 1024;
constexpr size_t kMaxPlanBytes = 400 * 1024;
constexpr int kMaxSkippedCheckpoints = 50;

std::string WireText(absl::string_view text, size_t max_bytes = kMaxTextBytes) {
  return proto::Shorten(proto::ToValidUtf8(text), max_bytes);
}

void FillCounters(const offload::SwapStats& swap, v1::SwapCounters* counters) {
  counters->set_h2d_bytes(swap.h2d_bytes);
  counters->set_d2h_bytes(swap.d2h_bytes);
  counters->set_h2d_transfers(swap.h2d_transfers);
  counters->set_d2h_transfers(swap.d2h_transfers);
  counters->set_h2d_link_bytes(swap.h2d_link_bytes);
  counters->set_d2h_link_bytes(swap.d2h_link_bytes);
  counters->set_h2d_busy_seconds(absl::ToDoubleSeconds(swap.h2d_busy));
  counters->set_d2h_busy_seconds(absl::ToDoubleSeconds(swap.d2h_busy));
  counters->set_forward_stall_seconds(absl::ToDoubleSeconds(swap.forward_stall));
  counters->set_backward_stall_seconds(absl::ToDoubleSeconds(swap.backward_stall));
  counters->set_hits(swap.hits);
  counters->set_late(swap.late);
  counters->set_misses(swap.misses);
  counters->set_blocks_on_device(swap.blocks_on_device);
  counters->set_blocks_on_host(swap.blocks_on_host);
  counters->set_blocks_in_flight(swap.blocks_in_flight);
}

void FillAllocator(const AllocatorReport& allocator, v1::AllocatorStats* out) {
  out->set_allocated_bytes(allocator.allocated_bytes);
  out->set_active_bytes(allocator.active_bytes);
  out->set_reserved_bytes(allocator.reserved_bytes);
  out->set_retries(allocator.retries);
  out->set_out_of_memory(allocator.out_of_memory);
  out->set_segments_allocated(allocator.segments_allocated);
  out->set_segments_freed(allocator.segments_freed);
}

}  // namespace

v1::WorkerMessage ToMessage(const ReadyReport& ready) {
  v1::WorkerMessage message;
  v1::Ready* out = message.mutable_ready();
  // Half a plan is no JSON; the whole one is in plan.json.
  if (ready.plan_json.size() <= kMaxPlanBytes)
    out->set_plan_json(proto::ToValidUtf8(ready.plan_json));
  out->set_plan_text(WireText(ready.plan_text, kMaxPlanBytes));
  out->set_start_step(ready.start_step);
  out->set_total_steps(ready.total_steps);
  out->set_device(WireText(ready.device));
  out->set_resumed_from(WireText(ready.resumed_from));
  for (const std::string& skipped : ready.skipped_checkpoints) {
    if (out->skipped_checkpoints_size() == kMaxSkippedCheckpoints) break;
    out->add_skipped_checkpoints(WireText(skipped, 1024));
  }
  return message;
}

v1::WorkerMessage ToMessage(const PlanReport& plan) {
  v1::WorkerMessage message;
  v1::Replanned* out = message.mutable_replanned();
  if (plan.plan_json.size() <= kMaxPlanBytes) out->set_plan_json(proto::ToValidUtf8(plan.plan_json));
  out->set_plan_text(WireText(plan.plan_text, kMaxPlanBytes));
  out->set_reason(WireText(plan.reason, 256));
  out->set_step(plan.step);
  out->set_replans(plan.replans);
  return message;
}

v1::WorkerMessage ToMessage(const StepReport& step) {
  v1::WorkerMessage message;
  v1::Step* out = message.mutable_steps()->add_steps();
  out->set_step(step.step);
  out->set_epoch(step.epoch);
  out->set_loss(step.loss);
  out->set_learning_rate(step.learning_rate);
  out->set_grad_norm(step.grad_norm);
  out->set_seconds(step.seconds);
  out->set_samples(step.samples);
  for (const auto& [phase, seconds] : step.phase_seconds)
    (*out->mutable_phase_seconds())[phase] = seconds;
  FillCounters(step.swap, out->mutable_swap());
  out->set_device_bytes_peak(step.device_bytes_peak);
  out->set_tokens(step.tokens);
  return message;
}

v1::WorkerMessage ToMessage(const MemoryReport& memory) {
  v1::WorkerMessage message;
  v1::MemoryReport* out = message.mutable_memory();
  for (const auto& [purpose, bytes] : memory.planned_bytes) {
    (*out->mutable_device_planned_bytes())[WireText(purpose, 64)] = bytes;
  }
  for (int i = 0; i < offload::kNumMemoryTags; ++i) {
    const std::string name(offload::MemoryTagName(static_cast<offload::MemoryTag>(i)));
    const size_t index = static_cast<size_t>(i);
    (*out->mutable_device_allocated_bytes())[name] = memory.measured.current_bytes[index];
    (*out->mutable_device_peak_bytes())[name] = memory.measured.peak_bytes[index];
  }
  out->set_device_budget_bytes(memory.measured.budget_bytes);
  out->set_host_rss_bytes(memory.host_rss_bytes);
  out->set_host_pinned_bytes(memory.host_pinned_bytes);
  out->set_host_master_bytes(memory.host_master_bytes);
  out->set_host_locked_bytes(memory.host_locked_bytes);
  out->set_host_shared_bytes(memory.host_shared_bytes);
  out->set_host_file_bytes(memory.host_file_bytes);
  out->set_pinning_fell_back(memory.pinning_fell_back);
  for (const auto& [place, bytes] : memory.host_planned_bytes) {
    (*out->mutable_host_planned_bytes())[WireText(place, 64)] = bytes;
  }
  if (memory.allocator.has_value()) FillAllocator(*memory.allocator, out->mutable_allocator());
  return message;
}

v1::WorkerMessage ToMessage(const ExitReport& report) {
  v1::WorkerMessage message;
  v1::Exiting* out = message.mutable_exiting();
  out->set_exit_code(static_cast<int>(report.code));
  out->set_step(report.step);
  out->set_adapter_file(WireText(report.adapter_file));
  if (!report.category.empty()) {
    v1::Failure* failure = out->mutable_failure();
    failure->set_category(ToFailureCategory(report.category));
    failure->set_reason(WireText(report.reason, 256));
    failure->set_message(WireText(report.message));
    failure->set_exit_code(static_cast<int>(report.code));
    failure->set_step(report.step);
  }
  return message;
}

v1::WorkerMessage PhaseMessage(absl::string_view phase) {
  v1::WorkerMessage message;
  message.mutable_phase()->set_phase(WireText(phase, 64));
  return message;
}

v1::WorkerMessage LoadMessage(int64_t bytes_done, int64_t bytes_total) {
  v1::WorkerMessage message = PhaseMessage("loading");
  message.mutable_phase()->set_bytes_done(bytes_done);
  message.mutable_phase()->set_bytes_total(bytes_total);
  return message;
}

v1::WorkerMessage WarningMessage(absl::string_view reason, const std::string& text) {
  v1::WorkerMessage message;
  message.mutable_warning()->set_reason(WireText(reason, 256));
  message.mutable_warning()->set_message(WireText(text));
  return message;
}

v1::FailureCategory ToFailureCategory(const std::string& category) {
  constexpr char kPrefix[] = "FAILURE_CATEGORY_";
  const std::string name =
      absl::StartsWith(category, kPrefix) ? category : absl::StrCat(kPrefix, category);
  v1::FailureCategory value = v1::FAILURE_CATEGORY_UNSPECIFIED;
  if (v1::FailureCategory_Parse(name, &value) && value != v1::FAILURE_CATEGORY_UNSPECIFIED)
    return value;
  return v1::FAILURE_CATEGORY_SERVER_INTERNAL;
}

}  // namespace blockswap::worker
