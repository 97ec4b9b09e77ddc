// SPDX-License-Identifier: Apache-2.0
// The commands and options of `blockswap` as a tree: for parsing, completions and the manual page.
#ifndef BLOCKSWAP_CLIENT_CLI_COMMAND_LINE_H_
#define BLOCKSWAP_CLIENT_CLI_COMMAND_LINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cli/arguments.h"

namespace blockswap::cli {

// What CLI11 fills before it becomes Arguments.
struct RawArguments {
  Arguments arguments;
  std::string format = "table";
  std::string job, checkpoint, device, shell;
  std::string timeout, columns, every, expires;
  std::string blocks_to_swap, ring_size, vram_budget;
  bool pinned = false, h2d_only = false, no_colour = false;
  int64_t tail = 0;
  std::vector<std::string> set;
};

// `raw` outlives what is returned, and is filled when that parses.
std::unique_ptr<CLI::App> MakeCommandLine(RawArguments* raw);

// Of `app`, in the order of the help; without those that are not shown.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_COMMAND_LINE_H_
