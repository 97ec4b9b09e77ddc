// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "client/cli/cli.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return blockswap::cli::RunCli(words, blockswap::cli::SystemSurroundings());
}
