// SPDX-License-Identifier: Apache-2.0
// Asks before something is lost for good.
#ifndef BLOCKSWAP_CLIENT_CLI_CONFIRM_H_
#define BLOCKSWAP_CLIENT_CLI_CONFIRM_H_

#include <string>

#include "client/cli/arguments.h"
#include "client/cli/session.h"

namespace blockswap::cli {

// True with --yes, or when the person at the terminal says so. Without a terminal nobody is asked
// and nothing is done: false, with a word about --yes.
bool Confirm(const Session& session, const Arguments& arguments, const std::string& question);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_CONFIRM_H_
