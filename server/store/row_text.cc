// SPDX-License-Identifier: Apache-2.0
#include "server/store/row_text.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace blockswap::server {
namespace {

using Json = nlohmann::json;

// Texts come from workers: what is not UTF-8 is replaced, not refused.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json::object() : json;
}

// NaN has no JSON form: it is written as null and read as NaN.
double Number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return 0;
  return found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::string FailureToText(const Failure& failure) {
  if (failure == Failure{}) return std::string();
  return Dump({{"category", static_cast<int>(failure.category)},
               {"reason", failure.reason},
               {"message", failure.message},
               {"exit_code", failure.exit_code},
               {"signal", failure.signal},
               {"retryable", failure.retryable},
               {"step", failure.step}});
}

Failure FailureFromText(const std::string& text) {
  Failure failure;
  if (text.empty()) return failure;
  const Json json = Parse(text);
  failure.category = static_cast<FailureCategory>(json.value("category", 0));
  failure.reason = json.value("reason", "");
  failure.message = json.value("message", "");
  failure.exit_code = json.value("exit_code", 0);
  failure.signal = json.value("signal", 0);
  failure.retryable = json.value("retryable", false);
  failure.step = json.value("step", int64_t{0});
  return failure;
}

std::string ProgressToText(const Progress& progress) {
  return Dump({{"step", progress.step},
               {"total_steps", progress.total_steps},
               {"epoch", progress.epoch},
               {"loss", progress.loss},
               {"learning_rate", progress.learning_rate},
               {"grad_norm", progress.grad_norm},
               {"seconds_per_step", progress.seconds_per_step},
               {"eta_seconds", progress.eta_seconds},
               {"last_progress_micros", progress.last_progress_micros},
               {"device_bytes", progress.device_bytes},
               {"stall_ratio", progress.stall_ratio},
               {"phase", progress.phase},
               {"phase_bytes_done", progress.phase_bytes_done},
               {"phase_bytes_total", progress.phase_bytes_total}});
}

Progress ProgressFromText(const std::string& text) {
  const Json json = Parse(text);
  Progress progress;
  progress.step = json.value("step", int64_t{0});
  progress.total_steps = json.value("total_steps", int64_t{0});
  progress.epoch = json.value("epoch", int64_t{0});
  progress.loss = Number(json, "loss");
  progress.learning_rate = Number(json, "learning_rate");
  progress.grad_norm = Number(json, "grad_norm");
  progress.seconds_per_step = Number(json, "seconds_per_step");
  progress.eta_seconds = Number(json, "eta_seconds");
  progress.last_progress_micros = json.value("last_progress_micros", int64_t{0});
  progress.device_bytes = json.value("device_bytes", int64_t{0});
  progress.stall_ratio = Number(json, "stall_ratio");
  progress.phase = json.value("phase", "");
  progress.phase_bytes_done = json.value("phase_bytes_done", int64_t{0});
  progress.phase_bytes_total = json.value("phase_bytes_total", int64_t{0});
  return progress;
}

std::string NeedsToText(const PlanNeeds& needs) {
  return Dump({{"device_bytes", needs.device_bytes},
               {"host_bytes", needs.host_bytes},
               {"disk_bytes", needs.disk_bytes},
               {"locked_bytes", needs.locked_bytes},
               {"step_seconds", needs.step_seconds},
               {"total_steps", needs.total_steps},
               {"base_key", needs.base_key},
               {"other_base_key", needs.other_base_key},
               {"master_bytes", needs.master_bytes},
               {"blocks_to_swap", needs.blocks_to_swap},
               {"max_blocks_to_swap", needs.max_blocks_to_swap},
               {"architecture", needs.architecture}});
}

PlanNeeds NeedsFromText(const std::string& text) {
  const Json json = Parse(text);
  PlanNeeds needs;
  needs.device_bytes = json.value("device_bytes", int64_t{0});
  needs.host_bytes = json.value("host_bytes", int64_t{0});
  needs.disk_bytes = json.value("disk_bytes", int64_t{0});
  needs.locked_bytes = json.value("locked_bytes", int64_t{0});
  needs.step_seconds = json.value("step_seconds", 0.0);
  needs.total_steps = json.value("total_steps", int64_t{0});
  needs.base_key = json.value("base_key", "");
  needs.other_base_key = json.value("other_base_key", "");
  needs.master_bytes = json.value("master_bytes", std::vector<int64_t>());
  needs.blocks_to_swap = json.value("blocks_to_swap", 0);
  needs.max_blocks_to_swap = json.value("max_blocks_to_swap", 0);
  needs.architecture = json.value("architecture", "");
  return needs;
}

std::string ListToText(const std::vector<std::string>& list) { return Dump(list); }

std::vector<std::string> ListFromText(const std::string& text) {
  std::vector<std::string> list;
  for (const Json& entry : Parse(text)) {
    if (entry.is_string()) list.push_back(entry.get<std::string>());
  }
  return list;
}

std::string MapToText(const std::map<std::string, std::string>& map) { return Dump(map); }

std::map<std::string, std::string> MapFromText(const std::string& text) {
  std::map<std::string, std::string> map;
  const Json json = Parse(text);
  for (const auto& [key, value] : json.items()) {
    if (value.is_string()) map[key] = value.get<std::string>();
  }
  return map;
}

std::string QueuePauseToText(const QueuePause& pause) {
  return Dump({{"reason", pause.reason}, {"since_micros", pause.since_micros}});
}

std::optional<QueuePause> QueuePauseFromText(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const Json json = Parse(text);
  return QueuePause{json.value("reason", ""), json.value("since_micros", int64_t{0})};
}

}  // namespace blockswap::server
