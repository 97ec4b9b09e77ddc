// SPDX-License-Identifier: Apache-2.0
// What the daemon serves to browsers: the built-in page, /api/v1 and the watch stream.
#ifndef BLOCKSWAP_SERVER_WEB_WEB_ROUTES_H_
#define BLOCKSWAP_SERVER_WEB_WEB_ROUTES_H_

#include <chrono>
#include <vector>

#include "server/metrics/http_exchange.h"
#include "server/metrics/live_figures.h"
#include "server/rpc/json_gateway.h"

namespace blockswap::server {

struct WebOptions {
  // A stream that has nothing to say says so, so that a page knows how old its data is.
  std::chrono::milliseconds heartbeat{5000};
};

// Gateway and figures outlive the routes.
std::vector<HttpRoute> WebRoutes(JsonGateway& gateway, const LiveFigures& live,
                                 WebOptions options = {});

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_WEB_WEB_ROUTES_H_
