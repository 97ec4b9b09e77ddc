// SPDX-License-Identifier: Apache-2.0
// The whole program `blockswap`, given its words and the world around it.
#ifndef BLOCKSWAP_CLIENT_CLI_CLI_H_
#define BLOCKSWAP_CLIENT_CLI_CLI_H_

#include <string>
#include <vector>

#include "client/cli/session.h"

namespace blockswap::cli {

// `words` without the program's name. Returns the exit code.
int RunCli(const std::vector<std::string>& words, const Surroundings& surroundings);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_CLI_H_
