// SPDX-License-Identifier: Apache-2.0
// Structured values as the text of one column: JSON that an older or newer server reads, too.
#ifndef BLOCKSWAP_SERVER_STORE_ROW_TEXT_H_
#define BLOCKSWAP_SERVER_STORE_ROW_TEXT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/jobs/job.h"

namespace blockswap::server {

// Reading never fails: what is missing or malformed takes its default. Text that is not UTF-8 is
// replaced when written.
std::string FailureToText(const Failure& failure);  // empty: none
Failure FailureFromText(const std::string& text);
std::string ProgressToText(const Progress& progress);
Progress ProgressFromText(const std::string& text);
std::string NeedsToText(const PlanNeeds& needs);
PlanNeeds NeedsFromText(const std::string& text);
std::string ListToText(const std::vector<std::string>& list);
std::vector<std::string> ListFromText(const std::string& text);
std::string MapToText(const std::map<std::string, std::string>& map);
std::map<std::string, std::string> MapFromText(const std::string& text);
std::string QueuePauseToText(const QueuePause& pause);
std::optional<QueuePause> QueuePauseFromText(const std::string& text);  // empty: none

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_ROW_TEXT_H_
