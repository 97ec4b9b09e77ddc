// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/job_file_rewrite.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace blockswap::server {

std::string JobForWorker(const std::string& spec_json, int64_t granted_bytes, int swap_override) {
  using Json = nlohmann::json;
  Json job = Json::parse(spec_json, nullptr, /*allow_exceptions=*/false);
  if (!job.is_object()) return spec_json;
  Json& memory = job["memory"];
  if (!memory.is_object()) memory = Json::object();
  const std::string budget = memory.value("vram_budget", std::string("auto"));
  if ((budget.empty() || budget == "auto") && granted_bytes > 0) {
    memory["vram_budget"] = absl::StrCat(granted_bytes);
  }
  if (swap_override >= 0) memory["blocks_to_swap"] = absl::StrCat(swap_override);
  return job.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string MemoryForWorker(const std::string& spec_json, int64_t granted_bytes,
                            int swap_override) {
  using Json = nlohmann::json;
  const Json job = Json::parse(JobForWorker(spec_json, granted_bytes, swap_override), nullptr,
                               /*allow_exceptions=*/false);
  if (!job.is_object() || !job.contains("memory")) return "{}";
  return job["memory"].dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace blockswap::server
