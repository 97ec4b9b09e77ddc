// SPDX-License-Identifier: Apache-2.0
// Which server a command talks to and what it shows it: flag, environment, context, default.
#ifndef BLOCKSWAP_CLIENT_CLI_ENDPOINT_H_
#define BLOCKSWAP_CLIENT_CLI_ENDPOINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::cli {

struct Contexts;

// Empty: not said. All but `context` and `server` name files.
struct Endpoint {
  std::string context, server, token_file, tls_ca, tls_cert, tls_key;
};

struct EndpointSetting {
  const char* key;  // in the contexts file; `context` is none of its keys
  std::string Endpoint::*field;
  const char* flag;
  const char* variable;
};

// `context` first, then those that a context holds.
const std::vector<EndpointSetting>& EndpointSettings();

struct ResolvedEndpoint {
  Endpoint endpoint;
  // "flag --server", "environment BLOCKSWAP_SERVER", "context lab", "file" of the contexts, or
  // "default"; of each setting.
  Endpoint origins;
};

// What a context says about files is for its server alone: when a flag or a variable names another
// server, that one gets nothing of the context. NotFound: the context is not in `contexts`.
absl::StatusOr<ResolvedEndpoint> ResolveEndpoint(const Endpoint& flags, const Endpoint& variables,
                                                 const Contexts& contexts);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_ENDPOINT_H_
