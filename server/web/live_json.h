// SPDX-License-Identifier: Apache-2.0
// The live figures of a job as JSON.
#ifndef BLOCKSWAP_SERVER_WEB_LIVE_JSON_H_
#define BLOCKSWAP_SERVER_WEB_LIVE_JSON_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "server/metrics/live_figures.h"

namespace blockswap::server {

// {"live": null} where there are none. Bytes and seconds; `age_seconds` is the time since the last
// report.
std::string ToJson(const std::optional<LiveJob>& live, absl::Time now);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_WEB_LIVE_JSON_H_
