// SPDX-License-Identifier: Apache-2.0
#include "client/cli/endpoint.h"

#include "absl/strings/str_cat.h"
#include "client/cli/contexts.h"
#include "offload/base/status_macros.h"
#include "proto/endpoint/default_endpoint.h"

namespace blockswap::cli {
namespace {

// Whether a flag or a variable says it.
bool Take(const EndpointSetting& setting, const Endpoint& flags, const Endpoint& variables,
          ResolvedEndpoint* resolved) {
  std::string& value = resolved->endpoint.*setting.field;
  std::string& origin = resolved->origins.*setting.field;
  value = flags.*setting.field;
  origin = absl::StrCat("flag ", setting.flag);
  if (!value.empty()) return true;
  value = variables.*setting.field;
  origin = absl::StrCat("environment ", setting.variable);
  if (!value.empty()) return true;
  origin = "default";
  return false;
}

}  // namespace

const std::vector<EndpointSetting>& EndpointSettings() {
  static const auto* const settings = new std::vector<EndpointSetting>{
      {"context", &Endpoint::context, "--context", "BLOCKSWAP_CONTEXT"},
      {"server", &Endpoint::server, "--server", "BLOCKSWAP_SERVER"},
      {"token_file", &Endpoint::token_file, "--token-file", "BLOCKSWAP_TOKEN_FILE"},
      {"tls_ca", &Endpoint::tls_ca, "--tls-ca", "BLOCKSWAP_TLS_CA"},
      {"tls_cert", &Endpoint::tls_cert, "--tls-cert", "BLOCKSWAP_TLS_CERT"},
      {"tls_key", &Endpoint::tls_key, "--tls-key", "BLOCKSWAP_TLS_KEY"}};
  return *settings;
}

absl::StatusOr<ResolvedEndpoint> ResolveEndpoint(const Endpoint& flags, const Endpoint& variables,
                                                 const Contexts& contexts) {
  ResolvedEndpoint resolved;
  Endpoint& endpoint = resolved.endpoint;
  if (!Take(EndpointSettings().front(), flags, variables, &resolved)) {
    endpoint.context = contexts.current;
    if (contexts.current != kNoContext) resolved.origins.context = "file";
  }
  Endpoint context;
  if (endpoint.context != kNoContext) {
    BLOCKSWAP_ASSIGN_OR_RETURN(context, FindContext(contexts, endpoint.context));
  }
  for (const EndpointSetting& setting : EndpointSettings()) {
    if (setting.field == &Endpoint::context) continue;
    if (Take(setting, flags, variables, &resolved)) continue;
    const bool for_this_server =
        setting.field == &Endpoint::server || endpoint.server == context.server;
    if ((context.*setting.field).empty() || !for_this_server) continue;
    endpoint.*setting.field = context.*setting.field;
    resolved.origins.*setting.field = absl::StrCat("context ", endpoint.context);
  }
  if (endpoint.server.empty()) endpoint.server = proto::DefaultServerTarget();
  return resolved;
}

}  // namespace blockswap::cli
