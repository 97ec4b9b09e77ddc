// SPDX-License-Identifier: Apache-2.0
// The content of exit.json: how an attempt ended, for whoever was not listening when it did.
#ifndef BLOCKSWAP_WORKER_CHANNEL_EXIT_REPORT_JSON_H_
#define BLOCKSWAP_WORKER_CHANNEL_EXIT_REPORT_JSON_H_

#include <string>

#include "worker/channel/reporter.h"

namespace blockswap::worker {

// One JSON object. The attempt's number tells it from what an earlier attempt left in the same
// place.
std::string ExitReportToJson(const ExitReport& report, int attempt);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_EXIT_REPORT_JSON_H_
