// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/exit_report_json.h"

#include <nlohmann/json.hpp>

namespace blockswap::worker {

std::string ExitReportToJson(const ExitReport& report, int attempt) {
  nlohmann::ordered_json json;
  json["attempt"] = attempt;
  json["exit_code"] = static_cast<int>(report.code);
  json["category"] = report.category;
  json["reason"] = report.reason;
  json["message"] = report.message;
  json["step"] = report.step;
  json["adapter_file"] = report.adapter_file;
  // Messages may quote bytes of broken files.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace blockswap::worker
