// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::offload {
namespace {

using Json = nlohmann::ordered_json;

Json ScheduleJson(const TransferSchedule& schedule) {
  Json transfers = Json::array();
  for (const Transfer& transfer : schedule.transfers) {
    transfers.push_back({{"after_visit", transfer.after_visit},
                         {"load", transfer.load},
                         {"evict", transfer.evict}});
  }
  return {{"visits", schedule.visits}, {"transfers", transfers}, {"initial", schedule.initial}};
}

Json PredictionJson(const Prediction& prediction) {
  return {{"device_bytes", prediction.device_bytes},
          {"ring_bytes", prediction.ring_bytes},
          {"resident_bytes", prediction.resident_bytes},
          {"edge_bytes", prediction.edge_bytes},
          {"adapter_bytes", prediction.adapter_bytes},
          {"optimizer_bytes", prediction.optimizer_bytes},
          {"activation_bytes", prediction.activation_bytes},
          {"pinned_bytes", prediction.pinned_bytes},
          {"pageable_bytes", prediction.pageable_bytes},
          {"file_bytes", prediction.file_bytes},
          {"boundary_host_bytes", prediction.boundary_host_bytes},
          {"h2d_bytes_per_step", prediction.h2d_bytes_per_step},
          {"d2h_bytes_per_step", prediction.d2h_bytes_per_step},
          {"compute_seconds", absl::ToDoubleSeconds(prediction.compute)},
          {"copy_seconds", absl::ToDoubleSeconds(prediction.copy)},
          {"stall_seconds", absl::ToDoubleSeconds(prediction.stall)},
          {"step_seconds", absl::ToDoubleSeconds(prediction.step)},
          {"bound_seconds", absl::ToDoubleSeconds(prediction.bound)},
          {"even_spacing_bound_seconds", absl::ToDoubleSeconds(prediction.even_spacing_bound)}};
}

void AppendBytes(const char* what, int64_t bytes, std::string& text) {
  absl::StrAppendFormat(&text, "  %-22s %12s\n", what, base::FormatByteSize(bytes));
}

void AppendTime(const char* what, absl::Duration time, std::string& text) {
  const double seconds = absl::ToDoubleSeconds(time);
  absl::StrAppendFormat(
      &text, "  %-22s %12s\n", what,
      seconds < 1 ? absl::StrFormat("%.3f ms", 1e3 * seconds) : absl::StrFormat("%.3f s", seconds));
}

// "0-3, 5, 7-9"
std::string Ranges(const std::vector<int>& indices) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < indices.size();) {
    size_t end = i;
    while (end + 1 < indices.size() && indices[end + 1] == indices[end] + 1) ++end;
    ranges.push_back(end == i ? absl::StrCat(indices[i])
                              : absl::StrCat(indices[i], "-", indices[end]));
    i = end + 1;
  }
  return ranges.empty() ? "none" : absl::StrJoin(ranges, ", ");
}

// One character a block, see kStripLegend.
char StripMark(const BlockPlacement& block) {
  if (block.residence == Residence::kResident) return block.keeps_activations ? '@' : '#';
  switch (block.tier) {
    case HostTier::kPinned:
      return '.';
    case HostTier::kPageable:
      return '-';
    case HostTier::kFile:
      return '_';
  }
  return '?';
}

constexpr char kStripLegend[] =
    "# resident, @ resident and keeps activations; streamed from . locked - pageable _ file";
constexpr size_t kStripWidth = 60;

void AppendStrip(const SwapPlan& plan, std::string& text) {
  std::string strip;
  for (const BlockPlacement& block : plan.blocks) strip += StripMark(block);
  for (size_t begin = 0; begin < strip.size(); begin += kStripWidth) {
    absl::StrAppend(&text, begin == 0 ? "strip      " : "           ",
                    strip.substr(begin, kStripWidth), "\n");
  }
  absl::StrAppend(&text, "           ", kStripLegend, "\n");
}

void AppendHost(const SwapPlan& plan, std::string& text) {
  const Prediction& prediction = plan.prediction;
  absl::StrAppend(&text, "host memory\n");
  AppendBytes("page-locked", prediction.pinned_bytes, text);
  AppendBytes("pageable", prediction.pageable_bytes, text);
  if (prediction.boundary_host_bytes > 0) {
    AppendBytes("of it saved inputs", prediction.boundary_host_bytes, text);
  }
  if (prediction.file_bytes > 0) AppendBytes("left in the file", prediction.file_bytes, text);
}

void AppendStep(const SwapPlan& plan, std::string& text) {
  const Prediction& prediction = plan.prediction;
  absl::StrAppend(&text, "link, each step\n");
  AppendBytes("host to device", prediction.h2d_bytes_per_step, text);
  AppendBytes("device to host", prediction.d2h_bytes_per_step, text);
  if (prediction.copy > absl::ZeroDuration()) AppendTime("copy time", prediction.copy, text);
  if (prediction.step <= absl::ZeroDuration()) return;
  AppendTime("compute time", prediction.compute, text);
  AppendTime("stall", prediction.stall, text);
  AppendTime("step", prediction.step, text);
  AppendTime("bound", prediction.bound, text);
  AppendTime("bound, even spacing", prediction.even_spacing_bound, text);
}

}  // namespace

std::string PlanToJson(const SwapPlan& plan) {
  Json blocks = Json::array();
  for (const BlockPlacement& block : plan.blocks) {
    Json entry = {{"residence", std::string(ResidenceName(block.residence))}};
    if (block.residence == Residence::kStreamed) {
      entry["tier"] = std::string(HostTierName(block.tier));
    }
    entry["keeps_activations"] = block.keeps_activations;
    entry["offloads_boundary"] = block.offloads_boundary;
    blocks.push_back(std::move(entry));
  }
  const Json json = {{"blocks_to_swap", plan.blocks_to_swap},
                     {"num_streamed", plan.num_streamed()},
                     {"slots", plan.slots},
                     {"slot_bytes", plan.slot_bytes},
                     {"slot_sizes", plan.slot_sizes},
                     {"block_major", plan.block_major},
                     {"base_trains", plan.base_trains},
                     {"mode", std::string(TransferModeName(plan.mode))},
                     {"granularity", plan.granularity == Granularity::kBlock ? "block" : "layer"},
                     {"pin_policy", std::string(PinPolicyName(plan.pin_policy))},
                     {"vram_budget_bytes", plan.vram_budget_bytes},
                     {"blocks", std::move(blocks)},
                     {"prediction", PredictionJson(plan.prediction)},
                     {"training", ScheduleJson(plan.training)},
                     {"forward_only", ScheduleJson(plan.forward_only)},
                     {"notes", plan.notes}};
  return json.dump(/*indent=*/2);
}

std::string PlanToText(const SwapPlan& plan) {
  const Prediction& prediction = plan.prediction;
  std::string text = absl::StrFormat(
      "blocks     %d, %d streamed over %d slots of %s (mode %s, blocks_to_swap %d)\n",
      plan.blocks.size(), plan.num_streamed(), plan.slots, base::FormatByteSize(plan.slot_bytes),
      std::string(TransferModeName(plan.mode)), plan.blocks_to_swap);
  absl::StrAppend(&text, "streamed   ", Ranges(plan.streamed_blocks()), "\n");
  AppendStrip(plan, text);
  absl::StrAppend(&text, "device memory, predicted peak\n");
  AppendBytes("ring", prediction.ring_bytes, text);
  AppendBytes("resident blocks", prediction.resident_bytes, text);
  AppendBytes("other weights", prediction.edge_bytes, text);
  AppendBytes("adapter and gradients", prediction.adapter_bytes, text);
  AppendBytes("optimizer", prediction.optimizer_bytes, text);
  AppendBytes("activations", prediction.activation_bytes, text);
  AppendBytes("total", prediction.device_bytes, text);
  if (plan.vram_budget_bytes > 0) AppendBytes("budget", plan.vram_budget_bytes, text);
  AppendHost(plan, text);
  AppendStep(plan, text);
  for (const std::string& note : plan.notes) absl::StrAppend(&text, "note: ", note, "\n");
  return text;
}

}  // namespace blockswap::offload
