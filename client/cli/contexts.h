// SPDX-License-Identifier: Apache-2.0
// The servers that a person keeps by name, in $XDG_CONFIG_HOME/blockswap/contexts.yaml.
#ifndef BLOCKSWAP_CLIENT_CLI_CONTEXTS_H_
#define BLOCKSWAP_CLIENT_CLI_CONTEXTS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/endpoint.h"

namespace blockswap::cli {

// Always there: the local server, with nothing to show it.
inline constexpr char kNoContext[] = "default";

struct Contexts {
  std::string current = kNoContext;
  std::map<std::string, Endpoint> by_name;
};

// $XDG_CONFIG_HOME/blockswap/contexts.yaml, else below $HOME/.config; empty when neither variable
// is an absolute path.
std::string DefaultContextsFile();

// None when there is no such file, or `file` is empty. InvalidArgument, with file, line and key.
absl::StatusOr<Contexts> ReadContexts(const std::string& file);

// Replaces the file as a whole, mode 0600, and makes its directory, mode 0700. FailedPrecondition.
absl::Status WriteContexts(const Contexts& contexts, const std::string& file);

// NotFound, with the nearest name.
absl::StatusOr<Endpoint> FindContext(const Contexts& contexts, const std::string& name);

// InvalidArgument: not a name that a context can have.
absl::Status CheckContextName(const std::string& name);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_CONTEXTS_H_
