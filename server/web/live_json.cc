// SPDX-License-Identifier: Apache-2.0
#include "server/web/live_json.h"

#include <nlohmann/json.hpp>

namespace blockswap::server {
namespace {

using Json = nlohmann::json;

Json MemoryJson(const MemoryUpdate& memory) {
  return {{"device_planned_bytes", memory.planned_bytes},
          {"device_allocated_bytes", memory.allocated_bytes},
          {"device_peak_bytes", memory.peak_bytes},
          {"device_budget_bytes", memory.device_budget_bytes},
          {"host_rss_bytes", memory.host_rss_bytes},
          {"host_pinned_bytes", memory.host_pinned_bytes},
          {"host_locked_bytes", memory.host_locked_bytes},
          {"host_master_bytes", memory.host_master_bytes},
          {"host_shared_bytes", memory.host_shared_bytes},
          {"host_file_bytes", memory.host_file_bytes},
          {"pinning_fell_back", memory.pinning_fell_back}};
}

Json SwapJson(const LiveJob& live) {
  const SwapCounters& swap = live.swap;
  const SwapWindow& recent = live.recent;
  return {{"h2d_bytes", swap.h2d_bytes},
          {"d2h_bytes", swap.d2h_bytes},
          {"blocks_on_device", swap.blocks_on_device},
          {"blocks_on_host", swap.blocks_on_host},
          {"blocks_in_flight", swap.blocks_in_flight},
          {"recent",
           {{"steps", recent.steps},
            {"step_seconds", recent.step_seconds},
            {"h2d_bytes", recent.h2d_bytes},
            {"d2h_bytes", recent.d2h_bytes},
            {"h2d_busy_seconds", recent.h2d_busy_seconds},
            {"stall_seconds", recent.stall_seconds},
            {"hits", recent.hits},
            {"late", recent.late},
            {"misses", recent.misses}}}};
}

}  // namespace

std::string ToJson(const std::optional<LiveJob>& live, absl::Time now) {
  Json json = {{"live", nullptr}};
  if (live.has_value()) {
    json["live"] = {{"slot", live->slot},          {"attempt", live->attempt},
                    {"running", live->is_running}, {"swap", SwapJson(*live)},
                    {"memory", nullptr},           {"age_seconds", nullptr}};
    if (live->memory.has_value()) json["live"]["memory"] = MemoryJson(*live->memory);
    if (live->report_time != absl::UnixEpoch()) {
      json["live"]["age_seconds"] = absl::ToDoubleSeconds(now - live->report_time);
    }
  }
  // What a worker calls its purposes may be anything.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace blockswap::server
