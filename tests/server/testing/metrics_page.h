// SPDX-License-Identifier: Apache-2.0
// The metrics page of a running daemon, read until it says what a test waits for.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_METRICS_PAGE_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_METRICS_PAGE_H_

#include <chrono>
#include <functional>
#include <string>

#include "tests/server/testing/http_client.h"

namespace blockswap::server {

inline std::string MetricsPage(int port) { return HttpFetch(port, "/metrics").body; }

// False when `done` has not agreed to a page within half a minute.
inline bool AwaitMetrics(int port, const std::function<bool(const std::string&)>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  do {
    if (done(MetricsPage(port))) return true;
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_METRICS_PAGE_H_
